"""What every operation of a step waits for: the order measured on its worker, and the partners of its transfers.

The order is that of the medians over steps and replicas, which all do the same. Operations of a type that never runs beside
computing are in line with it: each waits for what was there before it (the usual, blocking schedule). Types that do run beside
computing have a line of their own, and meet computing only where data pass. The dependencies follow
https://github.com/ByteDance-Seed/StragglerAnalysis, but for the measured order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from benchmarks.pipeline_operations.kinds import (
    COMMUNICATION,
    COMPUTE,
    FORWARD,
    GATHER,
    OF_ALL,
    OF_ENDS,
    OF_REPLICAS,
    POINT_TO_POINT,
    RECEIVES,
    SENDS,
)
from benchmarks.pipeline_operations.operations import Array, Operations

from tachoscope_core.errors import TachoscopeError

_BESIDE_RATIO = 0.5
"""Design choice: two operations run beside each other if they share more than half of the shorter one; less is the clock."""
_OFTEN_RATIO = 0.1
"""Design choice: a type of which more than a tenth runs beside computing does not block it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that end together: none is over before the last of them has begun. One alone is its own group.

    Attributes:
        members: numbers of operations. everywhere: whether the same operation of all replicas belongs to it.
    """

    members: tuple[int, ...]
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Graph:
    """The dependencies of a step, the same in all steps and replicas.

    Attributes:
        groups: in an order in which they can be done. before: for each operation, those that it waits for on its own worker.
        inline: for each operation, whether it is in line with its worker's computing. place: of each in the worker's order.
    """

    groups: tuple[Group, ...]
    before: tuple[tuple[int, ...], ...]
    inline: tuple[bool, ...]
    place: tuple[int, ...]


def dependencies(operations: Operations) -> Graph:
    """Return the graph.

    Raises:
        TachoscopeError: sends and receives do not fit the computing, or the measured orders contradict each other.
    """
    begin, end = np.median(operations.start, axis=(1, 2)), np.median(operations.end, axis=(1, 2))
    lines = _lines(operations, begin, end)
    beside = _types_beside_computing(operations, lines, begin, end)
    before: list[set[int]] = [set() for _ in operations.each]
    carries = _carried(operations, begin)
    for line in lines:
        _chain([number for number in line if operations.each[number].optype not in beside], begin, end, before)
        for optype in beside:
            own = [number for number in line if operations.each[number].optype == optype]
            _chain(own, begin, end, before)
            for number in own:
                _join(operations, number, line, carries, begin, end, before)
    groups = _groups(operations, carries)
    place = [0] * len(operations.each)
    for line in lines:
        for index, number in enumerate(line):
            place[number] = index
    return Graph(
        groups=_in_order(operations, groups, before),
        before=tuple(tuple(sorted(ones)) for ones in before),
        inline=tuple(one.optype not in beside for one in operations.each),
        place=tuple(place),
    )


def _lines(operations: Operations, begin: Array, end: Array) -> list[list[int]]:
    """Return the operations of each stage in their order."""
    order = np.lexsort((end, begin)).tolist()
    return [[number for number in order if operations.each[number].stage == stage] for stage in range(operations.stages)]


def _beside(one: int, other: int, begin: Array, end: Array) -> bool:
    """Return whether two operations run at the same time."""
    shared = min(end[one], end[other]) - max(begin[one], begin[other])
    return bool(shared > _BESIDE_RATIO * min(end[one] - begin[one], end[other] - begin[other]))


def _types_beside_computing(operations: Operations, lines: list[list[int]], begin: Array, end: Array) -> tuple[str, ...]:
    """Return the types of communication that run beside computing."""
    count: dict[str, list[bool]] = {}
    for line in lines:
        computing = [number for number in line if operations.each[number].optype in COMPUTE]
        starts = begin[computing]
        for number in line:
            optype = operations.each[number].optype
            if optype in COMMUNICATION:
                near = slice(max(int(np.searchsorted(starts, begin[number])) - 1, 0), int(np.searchsorted(starts, end[number])))
                count.setdefault(optype, []).append(any(_beside(number, one, begin, end) for one in computing[near]))
    return tuple(optype for optype, found in count.items() if sum(found) > _OFTEN_RATIO * len(found))


def _chain(line: list[int], begin: Array, end: Array, before: list[set[int]]) -> None:
    """Let each wait for those before it; what runs at one time, as a send and a receive in one call, waits for the same."""
    earlier: list[int] = []
    now: list[int] = []
    for number in line:
        if not any(_beside(number, one, begin, end) for one in now):
            earlier, now = now, []
        now.append(number)
        before[number].update(earlier)


def _join(
    operations: Operations,
    number: int,
    line: list[int],
    carries: dict[int, int],
    begin: Array,
    end: Array,
    before: list[set[int]],
) -> None:
    """Let an operation that runs beside computing meet it where data pass."""
    one = operations.each[number]
    computing = [other for other in line if operations.each[other].optype in COMPUTE]
    ended = [other for other in computing if begin[other] < begin[number] and not _beside(number, other, begin, end)]
    if one.optype in SENDS:
        before[number].add(carries[number])
        return
    if ended:
        before[number].add(ended[-1])
    if one.optype in RECEIVES:
        before[carries[number]].add(number)
        return
    meets = FORWARD if one.optype == GATHER else ""
    for other in line[line.index(number) + 1 :]:
        optype = operations.each[other].optype
        wanted = optype == meets if meets else optype not in COMMUNICATION[: len(POINT_TO_POINT)] and optype not in COMPUTE
        if wanted and optype != one.optype and not _beside(number, other, begin, end):
            before[other].add(number)
            return


def _carried(operations: Operations, begin: Array) -> dict[int, int]:
    """Return for each send and receive the computing whose outcome or input it carries, if any.

    Raises:
        TachoscopeError: their numbers do not fit.
    """
    last = operations.chunks - 1
    found: dict[int, int] = {}
    for stage in range(operations.stages):
        for optype, computed in POINT_TO_POINT.items():
            transfers = _sorted(operations, stage, optype, begin)
            computing = _sorted(operations, stage, computed, begin)
            alone = 0 if (optype in RECEIVES) == (computed == FORWARD) else last
            needing = [number for number in computing if operations.each[number].chunk != alone]
            if len(transfers) == len(needing):
                partners = needing
            elif len(transfers) == len(computing):
                partners = computing
            elif len(transfers) == len(computing) - 1 and optype in RECEIVES:
                partners = computing[1:]
            else:
                raise TachoscopeError(
                    f"stage {stage} has {len(transfers)} {optype} a step for {len(needing)} {computed} that need one",
                    fix="record all transfers between stages, or none of the stages before",
                )
            found.update(zip(transfers, partners, strict=True))
    return found


def _sorted(operations: Operations, stage: int, optype: str, begin: Array) -> list[int]:
    return sorted(
        (number for number, one in enumerate(operations.each) if one.stage == stage and one.optype == optype),
        key=lambda number: (begin[number], operations.each[number].number),
    )


def _groups(operations: Operations, carries: dict[int, int]) -> list[Group]:
    """Return which operations end together."""
    each = operations.each
    groups = [
        Group((number,), one.optype in OF_REPLICAS) for number, one in enumerate(each) if one.optype not in (*OF_ENDS, *OF_ALL)
    ]
    groups = [group for group in groups if each[group.members[0]].optype not in POINT_TO_POINT]
    for optypes, everywhere in ((OF_ENDS, False), (OF_ALL, True)):
        together: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(each):
            if one.optype in optypes:
                together.setdefault((one.optype, one.number), []).append(number)
        groups += [Group(tuple(members), everywhere) for members in together.values()]
    return groups + _pairs(operations, carries)


def _pairs(operations: Operations, carries: dict[int, int]) -> list[Group]:
    """Return sends with their receives; what goes to or comes from nobody is alone."""
    sides: dict[tuple[str, int, int], list[int]] = {}
    for number, computing in carries.items():
        one, of = operations.each[number], operations.each[computing]
        # A transfer has the name of the chunk that sends: forward to the next chunk, backward to the one before.
        back = 0 if one.optype in SENDS else 1 if of.optype == FORWARD else -1
        sides.setdefault((of.optype, of.chunk - back, of.batch), []).append(number)
    return [Group(tuple(members), everywhere=False) for members in sides.values()]


def _in_order(operations: Operations, groups: list[Group], before: list[set[int]]) -> tuple[Group, ...]:
    """Sort the groups so that each comes after all that its members wait for (Kahn's algorithm)."""
    of = {number: index for index, group in enumerate(groups) for number in group.members}
    waits = [{of[one] for number in group.members for one in before[number]} for group in groups]
    then: list[list[int]] = [[] for _ in groups]
    for index, earlier in enumerate(waits):
        for one in earlier:
            then[one].append(index)
    left = [len(earlier) for earlier in waits]
    ready = deque(index for index, count in enumerate(left) if not count)
    done: list[Group] = []
    while ready:
        index = ready.popleft()
        done.append(groups[index])
        for later in then[index]:
            left[later] -= 1
            if not left[later]:
                ready.append(later)
    if len(done) < len(groups):
        stuck = operations.each[groups[next(index for index, count in enumerate(left) if count)].members[0]]
        raise TachoscopeError(
            f"the order of the operations of stage {stuck.stage} contradicts that of others, at {stuck.optype} {stuck.number}",
            fix="the clocks of the workers may differ, or operations be missing: record them again",
        )
    return tuple(done)
