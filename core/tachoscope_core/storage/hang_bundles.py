"""What was found at a hang on each node, while it lasted: `jobs/<job>/hangs/<attempt>-<since>/<node>.json.gz`.

Who noticed the hang (the node's agent, or `tachoscope run` where there is none) writes one object, once for each hang and node.
What could not be had is named in `missing`, with the reason: an absent part never looks like an empty one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.base import Amount, Count, Rank, Seconds, UnixSeconds, check_job_name
from tachoscope_core.storage.store import Store, host_folder, unpacked, written_time

SCHEMA = 1
STOPPED = ("T", "t")
"""States of a thread that a signal or a debugger stopped."""
MOST_BYTES = 8 << 20
"""Of one bundle, unpacked: some 500 processes."""
MOST_TOGETHER = 65_536
"""Processes that are read of all nodes at one hang."""
_FEWER_THREADS = (16, 4, 1)
_HANG = re.compile(r"(?P<attempt>\d{1,9})-(?P<since>\d{1,12})")


class ThreadEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A thread of a process that stands still.

    Attributes:
        tid, name: as the kernel knows them. state: `R`, `S`, `D`, `T`, ... of `/proc/PID/status`.
        wchan: the kernel function that it sleeps in. syscall: number and arguments, as `/proc/PID/syscall` has them.
        kernel: its kernel stack, the innermost function first; only root may read it.
        frames: Python frames as `path:line function`, the innermost first.
    """

    tid: int
    name: str = ""
    state: str = ""
    wchan: str = ""
    syscall: str = ""
    kernel: list[str] = []
    frames: list[str] = []


class ProcessEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank, or a process that a rank started.

    Attributes:
        rank: the rank, also of what it started. kind: `rank`, `loader_worker` or `child`. step, phase: of the rank, as it said.
        threads: that which trains, or loads, first. py_spy: what `py-spy dump` printed; empty: it was not asked.
        missing: parts that could not be had, with the reason.
    """

    rank: Rank
    pid: Count
    kind: Literal["rank", "loader_worker", "child"] = "rank"
    step: Count = 0
    phase: str = ""
    threads: list[ThreadEvidence] = []
    py_spy: str = ""
    missing: dict[str, str] = {}


class HangBundle(msgspec.Struct, frozen=True, kw_only=True):
    """All that one node found at one hang. Times are Unix seconds by the node's clock.

    Attributes:
        since: when a rank of the node finished its last step. noticed: when the hang was. complete: when all was collected.
        failed_rank: the rank that the others wait for, by the hang rule; -1: not known. why: what it was judged by.
        network: counters of the node by interface, what they moved in `network_seconds`; by port of InfiniBand as well.
        kernel_log: lines on GPUs (Xid), file systems, links and tasks that stand still.
        ras: what NCCL's RAS answered. dumps: flight-recorder dumps by rank, files beside this object.
        missing: parts that could not be had, with the reason.
    """

    schema: int = SCHEMA
    job: str
    attempt: Count
    node: str
    since: UnixSeconds
    noticed: UnixSeconds
    complete: UnixSeconds = 0.0
    step: Count = 0
    failed_rank: Rank = -1
    why: str = ""
    processes: list[ProcessEvidence] = []
    network: dict[str, dict[str, Amount]] = {}
    network_seconds: Seconds = 0.0
    kernel_log: list[str] = []
    ras: str = ""
    dumps: dict[str, str] = {}
    missing: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class StoredHang:
    """One hang of a job: its attempt, the Unix second of its last step, and its nodes' objects with when they were written."""

    attempt: int
    since: int
    paths: dict[str, float]


def write(store: Store, bundle: HangBundle) -> str:
    """Write what a node found; return the path of the object. Of more than `MOST_BYTES` parts are left out, which it then says.

    Raises:
        TachoscopeError: the store does not take it.
    """
    document = b""
    for form in _smaller_forms(bundle):
        document = msgspec.json.encode(form)
        if len(document) <= MOST_BYTES:
            break
    return store.write_hang(bundle.job, f"{_folder(bundle)}/{host_folder(bundle.node)}.json.gz", document)


def _smaller_forms(bundle: HangBundle) -> Iterator[HangBundle]:
    """Yield the whole bundle, then forms with more and more left out, the least useful part first."""
    yield bundle
    bundle = _without(bundle, "ras", "left out, for its size", ras="")
    yield bundle
    for most in _FEWER_THREADS:
        processes = [msgspec.structs.replace(process, threads=process.threads[:most], py_spy="") for process in bundle.processes]
        why = f"all but the first {most} of each process are left out, for their size, and what py-spy printed"
        bundle = _without(bundle, "threads", why, processes=processes)
        yield bundle
    ranks = [process for process in bundle.processes if process.kind == "rank"]
    bundle = _without(bundle, "children", "left out, for their size", processes=ranks)
    yield bundle
    processes = [msgspec.structs.replace(process, threads=[]) for process in ranks]
    yield _without(bundle, "threads", "left out, for their size", processes=processes)


def _without(bundle: HangBundle, what: str, why: str, **rest: Any) -> HangBundle:
    return msgspec.structs.replace(bundle, missing=bundle.missing | {what: why}, **rest)


def write_dump(store: Store, bundle: HangBundle, rank: int, data: bytes) -> str:
    """Write a flight-recorder dump of a rank beside the bundle; return its name there. Raises TachoscopeError as `write`."""
    name = f"comm_lib_trace_rank_{rank}"
    store.write_hang_dump(bundle.job, f"{_folder(bundle)}/{name}", data)
    return name


def _folder(bundle: HangBundle) -> str:
    return f"{bundle.attempt}-{int(bundle.since)}"


def hangs(store: Store, job: str) -> list[StoredHang]:
    """Return the hangs of a job, the newest first; none where there are none.

    Nodes notice one hang at their own last steps: hangs of one attempt within `SAME_SECONDS` are one.

    Raises:
        TachoscopeError: the store cannot be read, or the job's name is none.
    """
    key = f"jobs/{check_job_name(job)}/hangs"
    found: list[StoredHang] = []
    by_hang: dict[tuple[int, int], dict[str, float]] = {}
    for path, entry in store.find(key).items():
        folder = _HANG.fullmatch(path.rsplit("/", 2)[-2])
        if folder is not None and path.endswith(".json.gz"):
            by_hang.setdefault((int(folder["attempt"]), int(folder["since"])), {})[path] = written_time(entry)
    for (attempt, since), paths in sorted(by_hang.items()):
        last = found[-1] if found else None
        is_same = last is not None and last.attempt == attempt and since - last.since <= SAME_SECONDS
        if last is not None and is_same and _nodes(last.paths).isdisjoint(_nodes(paths)):
            last.paths.update(paths)
        else:
            found.append(StoredHang(attempt, since, dict(paths)))
    return found[::-1]


def _nodes(paths: Iterable[str]) -> set[str]:
    return {path.rpartition("/")[2] for path in paths}


SAME_SECONDS = 60
"""Ranks that wait for each other finish their last steps within a step; clocks of nodes differ. A node's next one is another."""


def read(store: Store, path: str) -> HangBundle:
    """Read what a node found.

    Raises:
        TachoscopeError: it cannot be read, is too large, has a newer schema, or is not a bundle.
    """
    try:
        packed = store.files.cat_file(path, 0, MOST_BYTES + 1)
        document = unpacked(packed, MOST_BYTES) if len(packed) <= MOST_BYTES else None
    except Exception as error:  # each object store has its own
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    if document is None:
        raise TachoscopeError(f"could not read {path} in store {store.url}: larger than {MOST_BYTES >> 20} MiB")
    return parse(document, path)


@dataclass(frozen=True, slots=True)
class FoundHang:
    """What the nodes found at one hang, by the path of each object; of those that cannot be used the reason.

    Both empty: nothing was collected.
    """

    bundles: dict[str, HangBundle] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def last_hang(store: Store, job: str, attempt: int | None = None) -> FoundHang:
    """Return what the nodes found at a job's last hang, or at the last one of an attempt.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    found, room = FoundHang(), MOST_TOGETHER
    hang = next((one for one in hangs(store, job) if attempt in (None, one.attempt)), None)
    if hang is None:
        return found
    for path in sorted(hang.paths):
        if room <= 0:
            found.refused[path] = f"{path} was not read: of all nodes together {MOST_TOGETHER} processes are"
            continue
        try:
            found.bundles[path] = _read_of(store, path, job, hang.attempt)
            room -= len(found.bundles[path].processes)
        except TachoscopeError as error:
            found.refused[path] = str(error)
    return found


def _read_of(store: Store, path: str, job: str, attempt: int) -> HangBundle:
    bundle = read(store, path)
    if (bundle.job, bundle.attempt) != (job, attempt):
        raise TachoscopeError(f"{path} is of job {bundle.job!r}, attempt {bundle.attempt}")
    return bundle


class _Schema(msgspec.Struct):
    schema: int


def parse(document: bytes, where: str) -> HangBundle:
    """Return the bundle that a document is. Raises TachoscopeError, naming `where` it lies, if it is none."""
    try:
        schema = msgspec.json.decode(document, type=_Schema).schema
        if schema > SCHEMA:
            raise TachoscopeError(
                f"{where} is of schema {schema}, newer than the schema {SCHEMA} that this version reads",
                fix="pip install --upgrade tachoscope",
            )
        return msgspec.json.decode(document, type=HangBundle)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TachoscopeError(f"{where} is not the evidence of a hang: {error}") from None
