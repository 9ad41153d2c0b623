"""Sums of NCCL's operations by job, process group, kind and size class; how many there can be is bounded."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from tachoscope.training.collectives import size_class
from tachoscope_core.metrics.nccl import BUS_BYTES, COLLECTIVE_SECONDS, SECONDS_BUCKETS
from tachoscope_node.nccl.line import OTHER, Operation
from tachoscope_service.metrics.family import Family, Histogram, Labels

MAX_KEYS = 128
"""Told apart; what comes then is added under no job and the group `other`: 11 kinds of 4 sizes."""
FORGET_SECONDS = 3600.0
"""A sum that nothing was added to for so long is dropped: its job has ended."""


@dataclass(slots=True)
class _Sum:
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BUCKETS) + 1))
    seconds: float = 0.0
    bus_bytes: float = 0.0
    last: float = 0.0


class NcclSums:
    """The sums of the node, from when the agent was started."""

    def __init__(self) -> None:
        self._sums: dict[Labels, _Sum] = {}

    def add(self, job: str, group: str, operation: Operation, carried: float, now: float) -> None:
        """Add an operation that carried `carried` bytes over the bus; an empty job is unknown."""
        key = job, group, operation.collective, size_class(operation.size_bytes)
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) >= MAX_KEYS:
                key = "", OTHER, *key[2:]
            sums = self._sums.setdefault(key, _Sum())
        sums.counts[bisect_left(SECONDS_BUCKETS, operation.seconds)] += 1
        sums.seconds += operation.seconds
        sums.bus_bytes += carried
        sums.last = now

    def drop_old(self, now: float) -> None:
        """Drop what nothing was added to for long."""
        for key in [key for key, sums in self._sums.items() if now - sums.last > FORGET_SECONDS]:
            del self._sums[key]

    def families(self) -> list[Family]:
        return [
            Family(COLLECTIVE_SECONDS, [(key, Histogram(tuple(sums.counts), sums.seconds)) for key, sums in self._sums.items()]),
            Family(BUS_BYTES, [(key, sums.bus_bytes) for key, sums in self._sums.items()]),
        ]
