"""The ledger of a recorded step: every second of every worker in one state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from benchmarks.pipeline_operations.attribution import Attribution
from benchmarks.pipeline_operations.dependencies import Graph
from benchmarks.pipeline_operations.kinds import COMMUNICATION, COMPUTE, OWN_WORK, PAUSE
from benchmarks.pipeline_operations.operations import Array, Operations
from benchmarks.pipeline_operations.simulation import Timeline

from tachoscope_core.metrics.catalogue import TRAINING_STATES
from tachoscope_core.report.report import Ledger

_IDLE = "idle"
_MOST_RANK_LEDGERS = 64


def states(operations: Operations, found: Attribution) -> dict[str, Array]:
    """Return seconds by state, each of shape (stages, K, D); they sum to the step.

    A worker is idle in communication until the last participant has begun, and before operations that nothing recorded held back.
    Of that is `host_wait` what it is idle for longer than in a replay without delays: where a delay only fills time in which the
    worker would have waited anyway, it costs nothing, and often is itself a wait that is not recorded. Waiting is `pipeline_bubble`
    as far as a worker waits in the ideal step too, and `straggler_wait` beyond that. Collecting garbage is `host_wait`.
    """
    shape = (operations.stages, len(operations.steps), operations.ranks.shape[1])
    split: dict[str, Array] = {}
    for stage in range(operations.stages):
        line = _line(operations, found.graph, stage)
        real = _book(operations, found.graph, line, list(operations.start), list(operations.end), list(found.times.own))
        idle = real.pop(_IDLE) + np.maximum(operations.step_seconds[:, None] - real.pop("cursor"), 0.0)
        free = _idle(operations, found.graph, line, found.free_timeline, list(found.times.own))
        ideal = _idle(operations, found.graph, line, found.ideal_timeline, found.effects.own(frozenset()))
        waiting = np.minimum(idle, free)
        real["host_wait"] = real["host_wait"] + idle - waiting
        real["pipeline_bubble"] = np.minimum(waiting, ideal) if operations.stages > 1 else 0.0 * waiting
        real["straggler_wait"] = waiting - real["pipeline_bubble"]
        for state, seconds in real.items():
            split.setdefault(state, np.zeros(shape))[stage] = seconds
    return split


def _idle(operations: Operations, graph: Graph, line: Sequence[int], timeline: Timeline, own: Sequence[Array]) -> Array:
    """Return how long the workers of a stage are idle in a replay, seconds, broadcast to (K, D)."""
    books = _book(operations, graph, line, timeline.begin, timeline.end, own)
    left = timeline.step_seconds[:, None] - books["cursor"]
    return np.asarray(books[_IDLE] + np.maximum(left, 0.0))


def _line(operations: Operations, graph: Graph, stage: int) -> list[int]:
    """Return the operations in line with the computing of a stage, in their order."""
    mine = [number for number, one in enumerate(operations.each) if one.stage == stage and graph.inline[number]]
    return sorted(mine, key=graph.place.__getitem__)


def _book(
    operations: Operations,
    graph: Graph,
    line: Sequence[int],
    start: Sequence[Array],
    end: Sequence[Array],
    own: Sequence[Array],
) -> dict[str, Array]:
    """Go along the operations of a worker and book each second once; `cursor` is where the last one ends."""
    here = set(line)
    cursor: Array = np.zeros((1, 1))
    books: dict[str, Array] = dict.fromkeys(("compute", "communication", "host_wait", "unexplained", _IDLE), np.zeros((1, 1)))

    def book(state: str, seconds: Array) -> None:
        books[state] = books[state] + seconds

    for number in line:
        begin = np.maximum(start[number], cursor)
        gap = begin - cursor
        for other in graph.before[number]:
            if other not in here:  # it came from beside computing, and was waited for
                waited = np.clip(end[other] - cursor, 0.0, gap)
                moved = np.minimum(own[other], waited)
                book("communication", moved)
                book(_IDLE, waited - moved)
                gap, cursor = gap - waited, cursor + waited
        book(_IDLE, gap)
        lasted = np.maximum(end[number] - begin, 0.0)
        state = _state(operations.each[number].optype)
        if state == "communication":
            moved = np.minimum(own[number], lasted)
            book(_IDLE, lasted - moved)
            lasted = moved
        book(state, lasted)
        cursor = np.maximum(begin, end[number])
    return {**books, "cursor": cursor}


def _state(optype: str) -> str:
    if optype in COMPUTE or optype == OWN_WORK[0]:
        return "compute"
    if optype in COMMUNICATION or optype in OWN_WORK:
        return "communication"
    return "host_wait" if optype == PAUSE else "unexplained"


def ledgers(operations: Operations, split: dict[str, Array]) -> list[Ledger]:
    """Return the ledger over all workers, then those of single ones, in worker-seconds over all steps."""
    wall = float(operations.step_seconds.sum())
    whole = _ledger({state: float(values.sum()) for state, values in split.items()}, wall * operations.ranks.size, None)
    workers = sorted((int(rank), place) for place, rank in np.ndenumerate(operations.ranks))
    if len(workers) == 1:
        return [whole]
    return [
        whole,
        *(
            _ledger({state: float(values[stage, :, replica].sum()) for state, values in split.items()}, wall, rank)
            for rank, (stage, replica) in workers[:_MOST_RANK_LEDGERS]
        ),
    ]


def _ledger(sums: dict[str, float], wall: float, rank: int | None) -> Ledger:
    positive = {state: sums[state] for state in TRAINING_STATES if sums.get(state, 0.0) > 0}
    return Ledger(unit="rank", rank=rank, wall_seconds=wall, states=positive)
