"""Hosts on one machine: each a process with its own network card on a bridge, host name, and control groups for CPU and disk.

A card sends 200 Mbit/s at most, a host has 0.2 of a core and writes and reads 40 MB/s at most, so that what is slow is the planted
fault and not the machine that all hosts share. What else runs on the machine disturbs all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from benchmarks.lab import cgroups, network, processes

from tachoscope_preflight import node
from tachoscope_preflight.repeat import QUICK, Effort

PERIOD_MICROSECONDS = 50_000  # the kernel takes no quota below 1 ms
CORE_SHARE, CPU_SHARES = 0.2, 4096
DISK_BYTES_PER_SECOND = 40_000_000
NETWORK_BYTES_PER_SECOND = 25e6
LEAST = ("storage_fsyncs_per_second=5", "exchange_round_trips_per_second=40")
"""Of what other programs on the shared disk and cores disturb so much that the fleet's own results may not judge it."""
_NEW_UTS, _NEW_MOUNTS = 0x04000000, 0x00020000
_BIND, _PRIVATE = 0x1000, 0x4000 | 0x40000
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Shape:
    """What a host has; a fault changes it. `inside`: runs in the host before the command; `bridge`: in the bridge's namespace."""

    core_share: float = CORE_SHARE
    cpu_shares: int = CPU_SHARES
    disk_bytes_per_second: int = DISK_BYTES_PER_SECOND
    network_bytes_per_second: float = NETWORK_BYTES_PER_SECOND
    absent: bool = False
    inside: list[Callable[[], object]] = field(default_factory=list)
    bridge: list[Callable[[], object]] = field(default_factory=list)


def device_of(folder: str) -> str:
    """Return the number of the block device of a folder, as blkio wants it."""
    number = os.stat(folder).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def mount(source: str | None, target: str, flags: int, kind: bytes | None = None, options: bytes | None = None) -> None:
    """Mount in the namespace of this process. Raises OSError."""
    if _LIBC.mount(source.encode() if source else None, target.encode(), kind, flags, options):
        raise OSError(ctypes.get_errno(), f"could not mount {target}")


def _become(name: str, shape: Shape, namespace: int, hosts: str, storage: str) -> None:
    """Make this process the host: its name, the names of the others, network, CPU and disk."""
    processes.enter_namespace(namespace)
    processes.unshare(_NEW_UTS | _NEW_MOUNTS)
    mount(None, "/", _PRIVATE)
    mount(hosts, "/etc/hosts", _BIND)
    _LIBC.sethostname(name.encode(), len(name))
    quota = {"cpu.cfs_period_us": str(PERIOD_MICROSECONDS), "cpu.cfs_quota_us": str(round(shape.core_share * PERIOD_MICROSECONDS))}
    cgroups.join(cgroups.make("cpu", name, quota | {"cpu.shares": str(shape.cpu_shares)}))
    limit = f"{device_of(storage)} {shape.disk_bytes_per_second}"
    settings = {"blkio.throttle.read_bps_device": limit, "blkio.throttle.write_bps_device": limit}
    cgroups.join(cgroups.make("blkio", name, settings))
    network.limit("eth0", shape.network_bytes_per_second)
    for act in shape.inside:
        act()


def _run(name: str, shape: Shape, namespace: int, words: Sequence[str], place: Path, effort: Effort | None) -> None:
    node.QUICK = effort or QUICK
    for descriptor, ending in ((1, "json"), (2, "err")):
        os.dup2(os.open(place / f"{name}.{ending}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), descriptor)
    storage = str(place / "disk")
    _become(name, shape, namespace, str(place / "hosts"), storage)
    if effort is None:
        os.execv(sys.executable, [sys.executable, "-m", "tachoscope_cli.main", *words, "--storage", storage])
    from tachoscope_cli.main import main

    main([*words, "--storage", storage])


@dataclass(frozen=True)
class Outcome:
    """What a preflight of several hosts ended with: exit codes by host, the first host's report, and its seconds."""

    codes: dict[str, int | None]
    report: dict[str, Any] | None
    seconds: float
    errors: dict[str, str]

    @property
    def named(self) -> tuple[set[str], set[frozenset[str]]]:
        """The hosts that are unfit, and the bad links."""
        found = self.report or {"hosts": [], "links": []}
        links = {frozenset((one["one"], one["other"])) for one in found["links"]}
        return {one["host"] for one in found["hosts"] if one["verdict"] == "unfit"}, links


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Give a folder on a disk; what a killed benchmark left in control groups is removed."""
    cgroups.remove_all(of_others=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as made:
        yield Path(made)


def preflight(
    names: Sequence[str],
    shapes: Sequence[Shape],
    store: Path,
    place: Path,
    *,
    effort: Effort | None = QUICK,
    quick: bool = True,
    patience_seconds: float = 240.0,
) -> Outcome:
    """Run `tachoscope preflight --hosts` on these hosts at once; return how it ended.

    Args:
        effort: of the tests of each host alone, in processes that are forked; None: the command's, which is started anew.
    """
    words = [
        "preflight",
        *(["--quick"] if quick else []),
        "--force",
        "--format",
        "json",
        "--interface",
        "eth0",
        "--wait",
        "30",
        "--store",
        str(store),
    ]
    words += ["--hosts", ",".join(names), *(word for least in LEAST for word in ("--least", least))]
    began = time.monotonic()
    (place / "disk").mkdir(exist_ok=True)
    (place / "hosts").write_text("".join(f"{network.address_of(index)} {name}\n" for index, name in enumerate(names)))
    running: dict[str, ForkProcess] = {}
    try:
        with network.cards(len(names)) as namespaces:
            _on_bridge(namespaces[-1], shapes)
            for name, shape, namespace in zip(names, shapes, namespaces, strict=False):
                if not shape.absent:
                    running[name] = processes.fork(_run, name, shape, namespace, words, place, effort)
            for process in running.values():
                process.join(max(patience_seconds - (time.monotonic() - began), 0.1))
            codes = {name: process.exitcode for name, process in running.items()}
    finally:
        processes.end_all()
        cgroups.remove_all()
    errors = {name: (place / f"{name}.err").read_text()[-500:] for name in running}
    return Outcome(codes, _report(place / f"{names[0]}.json"), time.monotonic() - began, errors)


def _on_bridge(namespace: int, shapes: Sequence[Shape]) -> None:
    with network._elsewhere():
        processes.enter_namespace(namespace)
        for shape in shapes:
            for act in shape.bridge:
                act()


def _report(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found
