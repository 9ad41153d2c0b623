"""Exchanges: a pair of hosts, each pair over connections of its own, so that a broken link breaks no other pair; and a ring."""

from __future__ import annotations

import socket
import statistics
import time
from dataclasses import dataclass
from typing import Any

from tachoscope_core.report.preflight import Exchange
from tachoscope_preflight.repeat import Effort
from tachoscope_preflight.together.backends import Backend, Group

_CHUNK_BYTES = 1 << 20
_SMALL_BYTES = 64 << 10
_SLOW_SECONDS = 0.1
"""For two small chunks: less than 1.3 MB/s, and a large one would take a second."""
_RING_BYTES, _RING_WARM_UP_BYTES = 8 << 20, 512 << 10
_MOST_CHUNKS = 4096
_MOST_TRIPS = 100_000
_EFFORT, _QUICK_EFFORT = Effort(0.3, 5), Effort(0.1, 3)


@dataclass(frozen=True, slots=True)
class Line:
    """How this host reaches the others, and how thoroughly that is measured."""

    backend: Backend
    quick: bool

    @property
    def effort(self) -> Effort:
        return _QUICK_EFFORT if self.quick else _EFFORT

    def group(self, store: Any, name: str, rank: int, size: int) -> Group:
        return self.backend.group(self.backend.torch.distributed.PrefixStore(name, store), rank, size)


def own_address(master: str, port: int) -> str:
    """Return the address of this host from which the first one is reached. OSError if its name is not known."""
    family, kind, _, _, where = socket.getaddrinfo(master, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)  # of UDP: nothing is sent
        return str(probe.getsockname()[0])


def pair(line: Line, store: Any, name: str, host: str, other: str, *, first: bool) -> list[Exchange]:
    """Exchange with another host; return what this host sent. Of a pair both call it at one time, one of them as `first`."""
    try:
        member = _Member(line, line.group(store, name, 0 if first else 1, 2), 1 if first else 0)
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

    def __init__(self, line: Line, group: Group, other: int) -> None:
        self._torch, self._device, self._effort = line.backend.torch, line.backend.device, line.effort
        self._group, self._other = group, other

    def round_trips(self, *, leads: bool) -> float:
        """Return the median rate of round trips of eight bytes."""
        message = self._torch.zeros(1, dtype=self._torch.int64, device=self._device)

        def seconds(count: int) -> float:
            began = time.perf_counter()
            for _ in range(count):
                self._move(message, sends=leads)
                self._move(message, sends=not leads)
            return max(time.perf_counter() - began, 1e-9)

        seconds(1)
        count = self._told(round(self._effort.seconds * 4 / seconds(4)), _MOST_TRIPS, leads=leads)
        return statistics.median(count / seconds(count) for _ in range(self._effort.repetitions))

    def stream(self, *, leads: bool) -> float:
        """Return the median rate in bytes per second of chunks in one direction, until the last has arrived."""

        def seconds(size: int, count: int) -> float:
            chunk = self._torch.ones(size, dtype=self._torch.uint8, device=self._device)
            began = time.perf_counter()
            for _ in range(count):
                self._move(chunk, sends=leads)
            arrived = self._torch.zeros(1, dtype=self._torch.uint8, device=self._device)
            self._move(arrived, sends=not leads)
            return max(time.perf_counter() - began, 1e-9)

        seconds(_SMALL_BYTES, 1)
        fast = seconds(_SMALL_BYTES, 2) < _SLOW_SECONDS
        size = self._told(_CHUNK_BYTES if fast else _SMALL_BYTES, _CHUNK_BYTES, leads=leads)
        count = self._told(round(self._effort.seconds / seconds(size, 1)), _MOST_CHUNKS, leads=leads)
        return statistics.median(count * size / seconds(size, count) for _ in range(self._effort.repetitions))

    def _told(self, number: int, most: int, *, leads: bool) -> int:
        """Return a number from 1 to `most` that both know: that of who leads."""
        message = self._torch.tensor([number], dtype=self._torch.int64, device=self._device)
        self._move(message, sends=leads)
        return min(max(1, int(message[0])), most)

    def _move(self, tensor: Any, *, sends: bool) -> None:
        (self._group.send if sends else self._group.receive)(tensor, self._other)


def ring(line: Line, store: Any, name: str, rank: int, size: int) -> float:
    """Return bytes per second over each link of an all-reduce of all hosts: of a ring of n 2(n-1)/n of the data pass each link.

    A repetition is as long as the line's effort asks, so that a slow network takes no longer than a fast one.

    Raises:
        RuntimeError: a host did not take part in time.
    """
    group = line.group(store, name, rank, size)
    torch = line.backend.torch

    def seconds(count: int) -> float:
        data = torch.ones(count, dtype=torch.float32, device=line.backend.device)
        began = time.perf_counter()
        group.sum(data)
        took = time.perf_counter() - began
        if not bool((data == size).all()):
            raise RuntimeError("the sum over all hosts is wrong")
        return took

    seconds(_RING_WARM_UP_BYTES // 4)
    mean = torch.tensor([seconds(_RING_WARM_UP_BYTES // 4) / size], dtype=torch.float32, device=line.backend.device)
    group.sum(mean)  # so that all hosts choose the same size
    times = min(max(1, round(line.effort.seconds / max(float(mean[0]), 1e-9))), _RING_BYTES // _RING_WARM_UP_BYTES)
    found = [seconds(times * _RING_WARM_UP_BYTES // 4) for _ in range(line.effort.repetitions)]
    return 2 * (size - 1) / size * times * _RING_WARM_UP_BYTES / statistics.median(found)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
