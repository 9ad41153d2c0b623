"""Faults of hosts and links, each planted from outside of the command, so that the injector knows the truth."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lab import cgroups, network, processes
from benchmarks.preflight import hosts
from benchmarks.preflight.hosts import Shape

SLOW_NETWORK_BYTES_PER_SECOND = 4e6
SLOW_DISK_BYTES_PER_SECOND = 2_000_000
SLOW_CORE_SHARE = 0.08
COMPETITORS = 2
MEMORY_BYTES = 96_000_000
CLOCK_SECONDS = 7.0
SIZE = 4
"""Hosts of a run, where a fault has to know it."""


@dataclass(frozen=True)
class Planted:
    """A fault of a host, or of the link between it and `other`."""

    kind: str
    host: int
    other: int | None = None

    def truth(self, names: Sequence[str]) -> tuple[set[str], set[frozenset[str]]]:
        """Return what is to be named: hosts, links."""
        if self.other is None:
            return {names[self.host]}, set()
        return set(), {frozenset((names[self.host], names[self.other]))}

    def shapes(self, count: int, place: Path) -> list[Shape]:
        found = [Shape() for _ in range(count)]
        KINDS[self.kind](found[self.host], self, place)
        return found


def _cpu_quota(shape: Shape, planted: Planted, place: Path) -> None:
    shape.core_share = SLOW_CORE_SHARE


def _cpu_competitor(shape: Shape, planted: Planted, place: Path) -> None:
    busy = [sys.executable, "-c", "while True: pass"]
    start = functools.partial(subprocess.Popen, busy, preexec_fn=processes.die_with_parent)
    shape.inside += [start] * COMPETITORS  # in the host's control group


def _disk_slow(shape: Shape, planted: Planted, place: Path) -> None:
    shape.disk_bytes_per_second = SLOW_DISK_BYTES_PER_SECOND


def _disk_full(shape: Shape, planted: Planted, place: Path) -> None:
    shape.inside.append(lambda: hosts.mount("tmpfs", str(place / "disk"), 0, b"tmpfs", b"size=2m"))


def _send_slow(shape: Shape, planted: Planted, place: Path) -> None:
    shape.network_bytes_per_second = SLOW_NETWORK_BYTES_PER_SECOND


def _receive_slow(shape: Shape, planted: Planted, place: Path) -> None:
    shape.bridge.append(lambda: network.limit(f"port{planted.host}", SLOW_NETWORK_BYTES_PER_SECOND))


def _netem(*words: str) -> Callable[[Shape, Planted, Path], None]:
    """Change what the host's card sends; its rate stays as it is."""

    def plant(shape: Shape, planted: Planted, place: Path) -> None:
        rate = f"{round(hosts.NETWORK_BYTES_PER_SECOND * 8)}bit"
        shape.inside.append(lambda: network.command("tc", "qdisc", "replace", "dev", "eth0", "root", "netem", "rate", rate, *words))

    return plant


def _packet_loss(shape: Shape, planted: Planted, place: Path) -> None:
    """Lose what comes in bursts: the card's rate stays, its queue holds two packets."""
    rate = f"{round(hosts.NETWORK_BYTES_PER_SECOND * 8)}bit"
    queue = ("tbf", "rate", rate, "burst", "2kb", "limit", "4kb")
    shape.inside.append(lambda: network.command("tc", "qdisc", "replace", "dev", "eth0", "root", *queue))


def _memory_limit(shape: Shape, planted: Planted, place: Path) -> None:
    settings = {"memory.limit_in_bytes": str(MEMORY_BYTES)}  # less than the test of memory takes: the kernel kills the command
    shape.inside.append(lambda: cgroups.join(cgroups.make("memory", f"host{planted.host}", settings)))


def _corrupt_reads(shape: Shape, planted: Planted, place: Path) -> None:
    """Flip a bit in one of eight reads, between the kernel and the command: no device here can be made to do so."""
    read = os.preadv

    def corrupted(descriptor: int, buffers: Sequence[bytearray], place: int) -> int:
        moved = read(descriptor, buffers, place)
        if (place >> 20) % 8 == 3:
            buffers[0][moved // 2] ^= 1
        return moved

    shape.inside.append(lambda: setattr(os, "preadv", corrupted))


def _wrong_clock(shape: Shape, planted: Planted, place: Path) -> None:
    """Let the command read a clock that is behind: no namespace has a real-time clock of its own."""
    clock = time.time
    shape.inside.append(lambda: setattr(time, "time", lambda: clock() - CLOCK_SECONDS))


def _unreachable(shape: Shape, planted: Planted, place: Path) -> None:
    """Refuse whatever goes to others than the first host."""
    for other in set(range(1, SIZE)) - {planted.host}:
        words = ("ip", "route", "add", "prohibit", f"{network.address_of(other)}/32")
        shape.inside.append(functools.partial(network.command, *words))


def _absent(shape: Shape, planted: Planted, place: Path) -> None:
    shape.absent = True


def _link_slow(shape: Shape, planted: Planted, place: Path) -> None:
    assert planted.other is not None
    address = network.address_of(planted.other)
    shape.inside.append(lambda: network.limit_to("eth0", address, SLOW_NETWORK_BYTES_PER_SECOND))


def _link_cut(shape: Shape, planted: Planted, place: Path) -> None:
    assert planted.other is not None
    address = network.address_of(planted.other)
    shape.inside.append(lambda: network.command("ip", "route", "add", "blackhole", f"{address}/32"))


KINDS: dict[str, Callable[[Shape, Planted, Path], None]] = {
    "cpu_quota": _cpu_quota,
    "send_slow": _send_slow,
    "disk_slow": _disk_slow,
    "link_slow": _link_slow,
    "packet_loss": _packet_loss,
    "cpu_competitor": _cpu_competitor,
    "disk_full": _disk_full,
    "receive_slow": _receive_slow,
    "link_cut": _link_cut,
    "delay": _netem("delay", "30ms"),
    "absent": _absent,
    "corrupt_reads": _corrupt_reads,
    "wrong_clock": _wrong_clock,
    "unreachable": _unreachable,
    "memory_limit": _memory_limit,
}
NEED_NETEM = {"delay"}
_NOT_THE_FIRST = {"absent", "link_cut", "memory_limit", "unreachable"}
"""Without the first host, or a way to it, a host has no report but says on stderr that it cannot reach the first one."""


def why_no_netem() -> str:
    """Return why this kernel cannot delay packets, empty if it can."""
    try:
        with network.loopback() as [descriptor], network._elsewhere():
            network.processes.enter_namespace(descriptor)
            network.command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except OSError as error:
        return str(error)
    return ""


def plan(count: int) -> list[Planted]:
    """Return faults of all kinds that can be planted here in turn, on hosts in turn."""
    found = []
    without = NEED_NETEM if why_no_netem() else set()
    kinds = [kind for kind in KINDS if kind not in without]
    for index in range(count):
        kind = kinds[index % len(kinds)]
        host = index % SIZE
        other = (host + 1) % SIZE if kind.startswith("link_") else None
        if kind in _NOT_THE_FIRST:
            host = 1 + index % (SIZE - 1)
            other = 1 + host % (SIZE - 1) if other is not None else None
        found.append(Planted(kind, host, other))
    return found
