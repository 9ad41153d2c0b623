"""How users, or accounts, used their accelerators: allocations of a scheduler, joined with the lives of the jobs in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tachoscope_analyzers.fleet.job_summary import PRODUCTIVE
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_core.report.efficiency import AllocationUse, Efficiency
from tachoscope_core.report.job_life import Cost

By = Literal["user", "account"]
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job of the store. `allocations`: ids of the scheduler's jobs in which its attempts ran. `cost`: of its whole life."""

    job: str
    allocations: frozenset[str]
    cost: Cost


def allocations_of(job: JobRecords) -> frozenset[str]:
    """Return the ids of the Slurm jobs in which the attempts of a job ran; empty: it did not run under Slurm."""
    named = {job.job.removeprefix("slurm-")} if job.job.startswith("slurm-") else set()
    return frozenset({*named, *(started.lineage.get("slurm_job", "") for started in job.starts)} - {""})


def of_rows(
    rows: Sequence[SacctRow], jobs: Collection[RecordedJob], *, since: float, until: float, by: By = "user"
) -> list[Efficiency]:
    """Return how each user or account used what it held, who held most first.

    The life of a job has no times here: as large a part of an allocation counts as recorded as the hours of its jobs are of
    the hours of all allocations that they ran in, and is divided like the lives of the jobs.

    Args:
        since, until: the period, Unix seconds; allocations count with the part that is within.
    """
    held = [row for row in rows if row.held and row.accelerators and _hours(row, since, until) > 0]
    whole = _whole_hours(rows, until)
    of_allocation = defaultdict(list)
    for job in jobs:
        for allocation in job.allocations:
            of_allocation[allocation].append(job)
    found: dict[str, list[AllocationUse]] = defaultdict(list)
    for row in held:
        name = row.user if by == "user" else row.account
        found[name].append(_use(row, of_allocation[row.job_id or row.job], whole, _hours(row, since, until)))
    made = [_together(name, uses) for name, uses in found.items()]
    return sorted(made, key=lambda one: (-one.held_hours, one.name))


def _hours(row: SacctRow, since: float, until: float) -> float:
    began = until if row.started is None else row.started
    ended = until if row.ended is None else row.ended
    return max(min(ended, until) - max(began, since), 0.0) * row.accelerators / _SECONDS_PER_HOUR


def _whole_hours(rows: Sequence[SacctRow], until: float) -> Mapping[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for row in rows:
        if row.held:
            hours[row.job_id or row.job] += _hours(row, 0.0, until)
    return hours


def _use(row: SacctRow, jobs: Sequence[RecordedJob], whole: Mapping[str, float], hours: float) -> AllocationUse:
    recorded = 0.0
    by_state: dict[str, float] = defaultdict(float)
    for job in jobs:
        available = sum(whole.get(allocation, 0.0) for allocation in job.allocations)
        part = min(hours * job.cost.hours / available, hours) if available > 0 else 0.0
        recorded += part
        for state, state_hours in job.cost.by_state.items():
            by_state[state] += part * state_hours / job.cost.hours if job.cost.hours > 0 else 0.0
    if recorded > hours:  # jobs that shared the accelerators
        by_state = defaultdict(float, {state: value * hours / recorded for state, value in by_state.items()})
        recorded = hours
    return AllocationUse(
        scheduler_job=row.job,
        jobs=sorted(job.job for job in jobs),
        held_hours=hours,
        productive_hours=sum(by_state[state] for state in PRODUCTIVE),
        lost_hours=_most_first({state: value for state, value in by_state.items() if state not in PRODUCTIVE and value > 0}),
        unrecorded_hours=hours - recorded,
    )


def _together(name: str, uses: Sequence[AllocationUse]) -> Efficiency:
    lost: dict[str, float] = defaultdict(float)
    for use in uses:
        for state, hours in use.lost_hours.items():
            lost[state] += hours
    return Efficiency(
        name=name,
        held_hours=sum(use.held_hours for use in uses),
        productive_hours=sum(use.productive_hours for use in uses),
        lost_hours=_most_first(lost),
        unrecorded_hours=sum(use.unrecorded_hours for use in uses),
        allocations=sorted(uses, key=lambda use: -sum(use.lost_hours.values()) - use.unrecorded_hours),
    )


def _most_first(hours: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(hours.items(), key=lambda item: -item[1]))
