"""Replays a step: all steps and replicas at once, operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from benchmarks.pipeline_operations.dependencies import Graph
from benchmarks.pipeline_operations.kinds import COMMUNICATION
from benchmarks.pipeline_operations.operations import Array, Operations


@dataclass(frozen=True, slots=True)
class Measured:
    """What was recorded, divided into what an operation itself takes and what it waited for; all in seconds, shape (N, K, D).

    Attributes:
        own: computing, or transfer: what is left of a communication once its last participant has begun.
        wait: from the begin of a communication until its last participant has begun.
        gap: from the moment at which nothing that is recorded held an operation back until it began: launch and host delay.
    """

    own: Array
    wait: Array
    gap: Array


def measured(operations: Operations, graph: Graph) -> Measured:
    """Divide the recorded durations."""
    start, end = operations.start, operations.end
    own, wait = operations.duration.copy(), np.zeros_like(start)
    for group in graph.groups:
        members = list(group.members)
        if operations.each[members[0]].optype in COMMUNICATION:
            last = start[members].max(axis=(0, 2) if group.everywhere else 0, keepdims=True)
            own[members] = np.maximum(end[members] - np.maximum(last, start[members]), 0.0)
            wait[members] = operations.duration[members] - own[members]
    gap = np.empty_like(start)
    for number, before in enumerate(graph.before):
        ready = end[list(before)].max(axis=0) if before else 0.0
        gap[number] = np.maximum(start[number] - ready, 0.0)
    return Measured(own, wait, gap)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A replayed step: when each operation could begin, when its last participant did, and when it ended; lists of N, seconds."""

    begin: list[Array]
    last: list[Array]
    end: list[Array]

    @property
    def step_seconds(self) -> Array:
        """End of the last operation, shape (K,) or, if all steps are the same, (1,)."""
        return reduce(np.maximum, (one.max(axis=-1) for one in self.end))


def simulate(graph: Graph, own: Sequence[Array], gap: Sequence[Array] | None = None) -> Timeline:
    """Replay with other times.

    Args:
        own: what each of the N operations takes itself, seconds, each broadcast to (K, D). gap: delay before each, or none.
    """
    nothing = np.zeros((1, 1))
    begin = [nothing] * len(own)
    last, end = begin.copy(), begin.copy()
    for group in graph.groups:
        for number in group.members:
            before = graph.before[number]
            moment = end[before[0]] if before else nothing
            for one in before[1:]:
                moment = np.maximum(moment, end[one])
            begin[number] = moment if gap is None else moment + gap[number]
        latest = begin[group.members[0]]
        for number in group.members[1:]:
            latest = np.maximum(latest, begin[number])
        if group.everywhere:
            latest = latest.max(axis=-1, keepdims=True)
        for number in group.members:
            last[number] = latest
            end[number] = latest + own[number]
    return Timeline(begin, last, end)
