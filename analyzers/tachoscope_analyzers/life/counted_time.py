"""Whose seconds by state a life has: those that the agents counted while it ran, or those that follow from its records.

An agent counts each second once, as soon as it is over; a counter cannot be corrected by later records. An analysis of all records
is more exact. To report the same seconds as the metrics, the agents' ledger is used wherever it covers the life. The records give
what no agent knows: attempts, recoveries, checkpoints, the ranks at fault, and in a job of several nodes the part of a step that
was spent waiting for ranks on other nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tachoscope_analyzers.attempts.endings import AttemptEnding
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.life.findings import Loss
from tachoscope_analyzers.life.ledger import Waterfall
from tachoscope_core.report.report import LEDGER_TOLERANCE, QualityNote
from tachoscope_core.storage.job_counters import NodeCounters

_EDGE_SECONDS = 1.0
"""Of a rank: who watches a process sees its end a little late, and each in its own moment."""
_MOST_NAMED = 4
_SPLIT_BY_ALL_RANKS = ("compute", "communication", "straggler_wait")
"""States whose sum a node knows, but with ranks on other nodes not which is which; of ETTR all are."""


@dataclass(frozen=True, slots=True)
class LifeTime:
    """The time of a life by state, its source, and notes on it."""

    total: Waterfall
    ledger: Literal["agents", "records"]
    notes: Sequence[QualityNote] = ()

    def as_counted(self, loss: Loss, state: str) -> Loss:
        """Return a loss with the seconds that the ledger has of its state, if it has any: the records tell the occurrences."""
        seconds, told = self.total.states.get(state, 0.0), sum(loss.events)
        if self.ledger == "records" or seconds <= 0 or told <= 0:
            return loss
        return replace(loss, events=[event * seconds / told for event in loss.events])


def life_time(
    counted: Sequence[NodeCounters], of_records: Waterfall, runs: Sequence[Run], endings: Sequence[AttemptEnding], clock: Clock
) -> LifeTime:
    """Return the agents' seconds, where these are of all ranks and of all the time; else those of the records.

    Args:
        counted: by the agents. of_records: what follows from the records.
    """
    if not counted or not runs:
        return LifeTime(of_records, "records")
    without = {process.rank for run in runs for process in run.processes} - {rank for one in counted for rank in one.ranks}
    if without:
        return LifeTime(of_records, "records", [_partial(f"no agent counted the time of {_named(without)}")])
    states: dict[str, float] = {}
    for one in counted:
        for state, seconds in one.state_seconds.items():
            states[state] = states.get(state, 0.0) + seconds
    seconds, units = sum(states.values()), max(len(run.processes) for run in runs)
    apart = 0.0
    if any(ending.kind in {"running", "unknown"} for ending in endings):  # agents are heard of sooner than records are shipped
        apart = abs(max(one.time for one in counted) - clock.unix(max(run.end for run in runs)))
    allocated = of_records.allocated_seconds
    if abs(seconds - allocated) > LEDGER_TOLERANCE * allocated + (_EDGE_SECONDS + apart) * units:
        return LifeTime(of_records, "records", [_partial(f"agents counted {seconds:.0f} of {allocated:.0f} rank-seconds")])
    total = replace(of_records, states=states, allocated_seconds=seconds)
    if all(any({process.rank for process in run.processes} <= one.ranks for one in counted) for run in runs):
        return LifeTime(total, "agents")
    return LifeTime(replace(total, states=_split(states, of_records.states)), "agents", [_SPLIT])


_SPLIT = QualityNote(
    what="compute, communication and straggler_wait are split by the records, since the ranks are on several nodes",
    severity="note",
    means="an agent knows the ranks of its node only, so its metrics count these three together, as communication or compute",
)


def _split(states: Mapping[str, float], of_records: Mapping[str, float]) -> dict[str, float]:
    """Return the agents' seconds with those that a node cannot tell apart in the proportions that the records tell."""
    together, told = (sum(one.get(state, 0.0) for state in _SPLIT_BY_ALL_RANKS) for one in (states, of_records))
    if told <= 0:
        return dict(states)
    return {**states, **{state: together * of_records.get(state, 0.0) / told for state in _SPLIT_BY_ALL_RANKS}}


def _partial(what: str) -> QualityNote:
    means = "seconds by state are from the records; the metrics of the agents are of their part only"
    return QualityNote(what=what, severity="note", means=means)


def _named(ranks: Collection[int]) -> str:
    first = ", ".join(map(str, sorted(ranks)[:_MOST_NAMED]))
    more = f" and {len(ranks) - _MOST_NAMED} more" if len(ranks) > _MOST_NAMED else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {first}{more}"
