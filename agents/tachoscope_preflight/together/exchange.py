"""Exchanges over gloo: a pair of hosts, each pair over connections of its own, so that a broken link breaks no other pair."""

from __future__ import annotations

import socket
import statistics
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tachoscope_core.report.preflight import Exchange
from tachoscope_preflight.repeat import Effort

_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_SLOW_SECONDS = 0.1
"""For two small chunks: less than 1.3 MB/s, and a large one would take a second."""
_RING_BYTES = 8 << 20
_MOST_CHUNKS = 4096
_MOST_TRIPS = 100_000
_EFFORT, _QUICK_EFFORT = Effort(0.3, 5), Effort(0.1, 3)
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Line:
    """How this host reaches the others: by a network interface, or from the address by which it reaches the first one."""

    torch: Any
    address: str
    interface: str | None
    quick: bool

    @property
    def effort(self) -> Effort:
        return _QUICK_EFFORT if self.quick else _EFFORT

    def group(self, store: Any, rank: int, size: int) -> Any:
        """Return a process group of gloo. RuntimeError if a member does not come in time."""
        gloo = self.torch.distributed.ProcessGroupGloo
        options = gloo._Options()
        where = {"interface": self.interface} if self.interface else {"hostname": self.address}
        options._devices = [gloo.create_device(**where)]
        options._timeout = timedelta(seconds=_PATIENCE_SECONDS)
        return gloo(store, rank, size, options)


def own_address(master: str, port: int) -> str:
    """Return the address of this host from which the first one is reached. OSError if its name is not known."""
    family, kind, _, _, where = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)  # of UDP: nothing is sent
        return str(probe.getsockname()[0])


def pair(line: Line, store: Any, name: str, host: str, other: str, *, first: bool) -> list[Exchange]:
    """Exchange with another host; return what this host sent. Of a pair both call it at one time, one of them as `first`."""
    try:
        group = line.group(line.torch.distributed.PrefixStore(name, store), 0 if first else 1, 2)
        member = _Member(line, group, 1 if first else 0)
        trips = member.round_trips(leads=first)
        if not first:
            member.stream(leads=False)
        rate = member.stream(leads=True)
        if first:
            member.stream(leads=False)
    except (RuntimeError, OSError) as error:
        return [Exchange(sender=host, receiver=other, error=_first_line(error))]
    return [Exchange(sender=host, receiver=other, bytes_per_second=rate, round_trips_per_second=trips)]


class _Member:
    """One of a pair. Who leads decides after warm-ups how much is sent: a slow link takes seconds, not minutes."""

    def __init__(self, line: Line, group: Any, other: int) -> None:
        self._torch, self._effort, self._group, self._other = line.torch, line.effort, group, other

    def round_trips(self, *, leads: bool) -> float:
        """Return the median rate of round trips of eight bytes."""
        message = self._torch.zeros(1, dtype=self._torch.int64)

        def seconds(count: int) -> float:
            began = time.perf_counter()
            for _ in range(count):
                (_sent if leads else _got)(self._group, message, self._other)
                (_got if leads else _sent)(self._group, message, self._other)
            return max(time.perf_counter() - began, 1e-9)

        seconds(1)
        count = self._told(round(self._effort.seconds * 4 / seconds(4)), _MOST_TRIPS, leads=leads)
        return statistics.median(count / seconds(count) for _ in range(self._effort.repetitions))

    def stream(self, *, leads: bool) -> float:
        """Return the median rate in bytes per second of chunks in one direction, until the last has arrived."""

        def seconds(size: int, count: int) -> float:
            chunk = self._torch.ones(size, dtype=self._torch.uint8)
            began = time.perf_counter()
            for _ in range(count):
                (_sent if leads else _got)(self._group, chunk, self._other)
            arrived = self._torch.zeros(1, dtype=self._torch.uint8)
            (_got if leads else _sent)(self._group, arrived, self._other)
            return max(time.perf_counter() - began, 1e-9)

        seconds(_SMALL_BYTES, 1)
        fast = seconds(_SMALL_BYTES, 2) < _SLOW_SECONDS
        size = self._told(_CHUNK_BYTES if fast else _SMALL_BYTES, _CHUNK_BYTES, leads=leads)
        count = self._told(round(self._effort.seconds / seconds(size, 1)), _MOST_CHUNKS, leads=leads)
        return statistics.median(count * size / seconds(size, count) for _ in range(self._effort.repetitions))

    def _told(self, number: int, most: int, *, leads: bool) -> int:
        """Return a number from 1 to `most` that both know: that of who leads."""
        message = self._torch.tensor([number], dtype=self._torch.int64)
        (_sent if leads else _got)(self._group, message, self._other)
        return min(max(1, int(message[0])), most)


def _sent(group: Any, tensor: Any, other: int) -> None:
    group.send([tensor], other, 0).wait()


def _got(group: Any, tensor: Any, other: int) -> None:
    group.recv([tensor], other, 0).wait()


def ring(line: Line, store: Any, name: str, rank: int, size: int) -> float:
    """Return bytes per second over each link of an all-reduce of all hosts: of a ring of n 2(n-1)/n of the data pass each link.

    Raises:
        RuntimeError: a host did not take part in time.
    """
    torch = line.torch
    group = line.group(torch.distributed.PrefixStore(name, store), rank, size)
    data = torch.ones(_RING_BYTES // 4, dtype=torch.float32)
    seconds = []
    for _ in range(1 + line.effort.repetitions):  # the first is the warm-up
        data.fill_(1.0)
        began = time.perf_counter()
        group.allreduce([data]).wait()
        seconds.append(time.perf_counter() - began)
    if not bool((data == size).all()):
        raise RuntimeError("the sum over all hosts is wrong")
    return 2 * (size - 1) / size * _RING_BYTES / statistics.median(seconds[1:])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
