"""Input: slow to fetch, dear to decode, too few workers, or slow on one rank only."""

from __future__ import annotations

import mmap
import os
import socket
import socketserver
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
from benchmarks.lab import cgroups, processes
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.rank_rows import waited_for_input
from benchmarks.lab.site import Hooks, Site, repeats_for
from benchmarks.lab.spec import Planned
from benchmarks.lab.workloads.models import BATCH

CHUNKS = 4
READ_BYTES = 65_536


def per_sample_seconds(site: Site, planned: Planned) -> float:
    """Return how much longer a sample is to take, for the step to wait as long as wanted.

    Workers make a batch while the step computes: each has the time of as many steps for one as there are workers.
    """
    workers = int(site.spec.shape["workers"])
    target = site.target_seconds(planned)
    if not workers:
        return target / BATCH
    loading = site.measured.notes.get("clean_load_seconds", 0.0)
    return max((site.seconds + target) * workers - loading, 0.0) / BATCH


def _from(planned: Planned, load: Callable[[], object], site: Site, *, only: Callable[[int], bool] = lambda batch: True) -> Hooks:
    def hook(batch: int) -> None:
        if batch >= planned.first_step and only(batch):
            with site.measured.time(planned.slug):
                load()

    return Hooks(load=hook)


class _Slowly(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        for _ in range(CHUNKS):
            time.sleep(self.server.seconds / CHUNKS)  # type: ignore[attr-defined]
            self.request.sendall(b"\0" * (READ_BYTES // CHUNKS))


class _Server(socketserver.ThreadingTCPServer):
    request_queue_size = 64
    daemon_threads = True


def server(site: Site, planned: Planned) -> Hooks:
    """Samples come from a server, in a process of its own, that sends no faster than a rate."""
    listening = _Server(("127.0.0.1", 0), _Slowly)
    listening.seconds = per_sample_seconds(site, planned)  # type: ignore[attr-defined]
    processes.fork(listening.serve_forever, helper=True)
    address = listening.server_address[:2]
    listening.socket.close()

    def fetch() -> None:
        with socket.create_connection(address) as connection:
            while connection.recv(READ_BYTES):
                pass

    return _from(planned, fetch, site)


def pipe(site: Site, planned: Planned, chunks: int = CHUNKS) -> Hooks:
    """Samples come through a pipe that a process fills no faster than a rate; each process that loads has one of its own."""
    seconds = per_sample_seconds(site, planned)
    ends: dict[int, int] = {}

    def fill(wanted: int, given: int) -> None:
        while os.read(wanted, 1):
            for _ in range(chunks):
                time.sleep(seconds / chunks)
                os.write(given, b"\0" * (READ_BYTES // 2 // chunks))

    asks: dict[int, int] = {}

    def open_here() -> None:
        wanted, ask = os.pipe()
        end, given = os.pipe()
        if os.fork() == 0:
            os.close(ask)
            processes.die_with_parent()
            try:
                fill(wanted, given)
            finally:
                os._exit(0)
        os.close(wanted)
        os.close(given)
        ends[os.getpid()], asks[os.getpid()] = end, ask

    def fetch() -> None:
        if os.getpid() not in ends:
            open_here()
        os.write(asks[os.getpid()], b"?")
        left = READ_BYTES // 2
        while left > 0:
            left -= len(os.read(ends[os.getpid()], left))

    return _from(planned, fetch, site)


def disk(site: Site, planned: Planned) -> Hooks:
    """Samples are read past the page cache from a disk that a control group slows down."""
    path = site.folder / f"cold-{site.rank}.bin"
    data = os.urandom(READ_BYTES)
    with path.open("wb") as file:
        for _ in range(64):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    device = os.stat(path).st_dev
    rate = max(4096, round(READ_BYTES / max(per_sample_seconds(site, planned), 1e-5)))
    number = f"{os.major(device)}:{os.minor(device)} {rate}"
    cgroups.join(cgroups.make("blkio", f"{site.spec.id}-{site.rank}", {"blkio.throttle.read_bps_device": number}))
    state: dict[int, tuple[int, Any]] = {}
    place = [0]

    def fetch() -> None:
        pid = os.getpid()
        if pid not in state:
            state[pid] = (os.open(path, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, READ_BYTES))
        descriptor, buffer = state[pid]
        place[0] = (place[0] + 1) % 64
        os.preadv(descriptor, [buffer], place[0] * READ_BYTES)

    return _from(planned, fetch, site)


def _blob(size: int) -> bytes:
    return zlib.compress(np.random.default_rng(0).integers(0, 64, size, dtype=np.uint8).tobytes())


def inflate() -> Callable[[], object]:
    """Return a unit of decoding: decompressing 8 KiB."""
    packed = _blob(8192)
    return lambda: zlib.decompress(packed)


def transform() -> Callable[[], object]:
    """Return a unit of decoding: inverse cosine transforms of 8 x 8 blocks, as in a JPEG."""
    grid = np.arange(8)
    basis = np.cos((2 * grid[:, None] + 1) * grid[None, :] * np.pi / 16)
    blocks = np.random.default_rng(0).standard_normal((24, 8, 8))
    return lambda: basis @ blocks @ basis.T


UNITS = {"inflate": inflate, "transform": transform}


def _decoding(site: Site, planned: Planned) -> Callable[[], object]:
    unit = UNITS[planned.parameters["unit"]]()
    repeats = repeats_for(unit, per_sample_seconds(site, planned))

    def decode() -> None:
        for _ in range(repeats):
            unit()

    return decode


def decode(site: Site, planned: Planned) -> Hooks:
    """Each sample is decoded, really, as often as it takes."""
    return _from(planned, _decoding(site, planned), site)


def sleep(site: Site, planned: Planned) -> Hooks:
    """Each sample comes late while cores and disk are idle, as from a far store: more batches made ahead would hide it."""
    seconds = per_sample_seconds(site, planned)
    return _from(planned, lambda: time.sleep(seconds), site)


def _one_rank(site: Site, planned: Planned, load: Callable[[Site, Planned], Hooks]) -> Hooks:
    return load(site, planned) if site.is_culprit(planned) else Hooks()


def on_one_rank(site: Site, planned: Planned) -> Hooks:
    """One rank's samples come late, by sleeping or decoding."""
    return _one_rank(site, planned, {"sleep": sleep, "decode": decode, "pipe": pipe}[planned.parameters["how"]])


def rank_of_part(planned: Planned, batch: int, steps: int, world_size: int) -> int:
    """Return the culprit of the part of the run that a batch is in: the next rank for each part, so that none has all of it."""
    part = batch * int(planned.parameters["parts"]) // steps
    return (int(planned.parameters["first_rank"]) + part) % world_size


def on_changing_rank(site: Site, planned: Planned) -> Hooks:
    """Of each part of the data set the shard of another rank is slow."""
    seconds = per_sample_seconds(site, planned)

    def late(batch: int) -> bool:
        return rank_of_part(planned, batch, site.spec.steps, site.spec.world_size) == site.rank

    return _from(planned, lambda: time.sleep(seconds), site, only=late)


def read_and_decode(site: Site, planned: Planned) -> Hooks:
    """Samples are read slowly and decoded as well: `main_ratio` of the time goes to the one that the class is named after.

    They are read in one piece: what each piece takes beyond its sleep would make a small part of reading a large one.
    """
    ratio = float(planned.parameters["main_ratio"])
    reads = ratio if planned.slug == "input_fetch" else 1 - ratio
    some = [replace(planned, seconds_ratio=planned.seconds_ratio * share) for share in (reads, 1 - reads)]
    loads = (pipe(site, some[0], chunks=1).load, decode(site, some[1]).load)

    def both(batch: int) -> None:
        for load in loads:
            assert load is not None
            load(batch)

    return Hooks(load=both)


def _drawn_unit(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {"unit": dice.choice(list(UNITS))}


def _mixed(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {**_drawn_unit(dice, ratio, shape), "main_ratio": 0.75}


def _no_workers(dice: Random, ratio: float) -> dict[str, Any]:
    return {"workers": 0}


def _with_loader(dice: Random, ratio: float) -> dict[str, Any]:
    return {"source": "loader"}


def _free_core(dice: Random, ratio: float) -> dict[str, Any]:
    """One rank computes on one core, so that its worker has the other: with two ranks decoding would contend for cores."""
    return {"workers": dice.choice([0, 1])}


def _bare_loop(dice: Random, ratio: float) -> dict[str, Any]:
    """The script makes its batches itself: no loader says where input begins."""
    return {"workers": 0, "source": "get_batch", "micro_batches": dice.choice([1, 4])}


def _some_rank(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    """Decoding in workers would take the other rank's core, and then be contention."""
    ways = ["sleep", "pipe"] + ([] if shape["workers"] else ["decode"])
    return {"rank": dice.randrange(2), "how": dice.choice(ways), **_drawn_unit(dice, ratio, shape)}


CAUSES = (
    Cause("input_fetch", "server", "ddp", server, seconds=waited_for_input),
    Cause("input_fetch", "pipe", "ddp", pipe, seconds=waited_for_input),
    Cause("input_fetch", "disk", "ddp", disk, seconds=waited_for_input, needs=("two_cores", "disk_throttle"), shape=_no_workers),
    Cause("input_preprocess", "decode", "ddp", decode, _drawn_unit, waited_for_input, shape=_no_workers),
    Cause(
        "input_preprocess", "decode_one_process", "single", decode, _drawn_unit, waited_for_input, shape=_free_core, world_size=1
    ),
    Cause("input_fetch", "pipe_bare_loop", "single", pipe, seconds=waited_for_input, shape=_bare_loop, world_size=1),
    Cause("input_preprocess", "decode_bare_loop", "single", decode, _drawn_unit, waited_for_input, shape=_bare_loop, world_size=1),
    Cause("input_workers", "sleep", "ddp", sleep, seconds=waited_for_input, shape=_with_loader),
    Cause("input_straggler", "one_rank", "ddp", on_one_rank, _some_rank, waited_for_input, one_rank=True),
    Cause(
        "input_straggler",
        "changing_rank",
        "ddp",
        on_changing_rank,
        lambda dice, ratio, shape: {"parts": dice.choice([3, 4, 6]), "first_rank": dice.randrange(2)},
        waited_for_input,
        shape=_no_workers,
    ),
)

LOOKALIKE_CAUSES = tuple(
    Cause(slug, "read_and_decode", "ddp", read_and_decode, _mixed, waited_for_input, shape=_no_workers)
    for slug in ("input_fetch", "input_preprocess")
)
"""Made for look-alike pairs only."""
