"""The ledger of a recorded step: every second of every worker in one state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tachoscope_analyzers.replay.attribution import Attribution
from tachoscope_analyzers.replay.dependencies import Graph
from tachoscope_analyzers.replay.kinds import COMMUNICATION, COMPUTE, OWN_WORK, PAUSE
from tachoscope_analyzers.replay.operations import Array, Operations
from tachoscope_core.names import TRAINING_STATES
from tachoscope_core.report import Ledger

_WAITING = "waiting"
_MOST_RANK_LEDGERS = 64


def states(operations: Operations, found: Attribution) -> dict[str, Array]:
    """Return seconds by state, each of shape (stages, K, D); they sum to the step.

    Waiting is `pipeline_bubble` as far as a worker waits in the ideal step too, and `straggler_wait` beyond that. Delay before an
    operation that nothing recorded explains, and collecting garbage, is `host_wait`.
    """
    shape = (operations.stages, len(operations.steps), operations.ranks.shape[1])
    own = found.effects.own(frozenset())
    timeline = found.ideal_timeline
    split: dict[str, Array] = {}
    for stage in range(operations.stages):
        line = _line(operations, found.graph, stage)
        real = _book(operations, found.graph, line, list(operations.start), list(operations.end), list(found.times.own))
        real[_WAITING] = real[_WAITING] + np.maximum(operations.step_seconds[:, None] - real.pop("cursor"), 0.0)
        ideal = _book(operations, found.graph, line, timeline.begin, timeline.end, own)
        expected = ideal[_WAITING] + np.maximum(timeline.step_seconds[:, None] - ideal["cursor"], 0.0)
        waiting = real.pop(_WAITING)
        real["pipeline_bubble"] = np.minimum(waiting, expected) if operations.stages > 1 else 0.0 * waiting
        real["straggler_wait"] = waiting - real["pipeline_bubble"]
        for state, seconds in real.items():
            split.setdefault(state, np.zeros(shape))[stage] = seconds
    return split


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
    books: dict[str, Array] = dict.fromkeys(("compute", "communication", "host_wait", "unexplained", _WAITING), np.zeros((1, 1)))

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
                book(_WAITING, waited - moved)
                gap, cursor = gap - waited, cursor + waited
        book("host_wait", gap)
        lasted = np.maximum(end[number] - begin, 0.0)
        state = _state(operations.each[number].optype)
        if state == "communication":
            moved = np.minimum(own[number], lasted)
            book(_WAITING, lasted - moved)
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
