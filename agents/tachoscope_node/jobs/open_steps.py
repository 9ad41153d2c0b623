"""Steps that not all ranks of the node have finished: what is known only once they have, is settled then."""

from __future__ import annotations

from tachoscope_core.metrics.training import STEP_SLOWDOWN
from tachoscope_core.records.records import StepDone
from tachoscope_node.jobs.state import RECENT_STEPS, Job, Rank
from tachoscope_node.jobs.step_attribution import PendingWait, StepStates, split_waiting

MAX_OPEN_STEPS = 256
"""Steps of a job that wait for its other ranks from one look at the spool to the next: ranks write a tenth of a second apart."""
MAX_OPEN_STEPS_IN_A_LOOK = 4096
"""The same within a look: one rank's file is read before the next one's, and each may hold all steps since the last look."""


def add_step(job: Job, rank: Rank, step: StepDone, part: StepStates, excused: float) -> None:
    """Take a rank's part of a step, and settle the step if it was the last part of it. `excused`: seconds of it."""
    parts = job.open_steps.setdefault(step.step, {})
    if rank.rank in parts:  # the step again, by a process started again
        _settle(job, {rank.rank: parts[rank.rank]})
    parts[rank.rank] = PendingWait(part.wall, part.waiting, part.exchange, step.wall_seconds, excused)
    if job.has_all_ranks(parts):
        _settle(job, job.open_steps.pop(step.step))
    elif len(job.open_steps) > MAX_OPEN_STEPS_IN_A_LOOK:
        _settle(job, job.open_steps.pop(min(job.open_steps)))


def settle(job: Job) -> None:
    """Settle the steps to which no rank of this node will add. For the end of a look: a rank's end may be read before another's
    first record.
    """
    running = {rank.rank for rank in job.running()}
    done = [number for number, parts in job.open_steps.items() if running <= parts.keys()]
    left = len(job.open_steps) - len(done) - MAX_OPEN_STEPS
    oldest = sorted(job.open_steps.keys() - set(done))[:left] if left > 0 else []
    for number in sorted((*done, *oldest)):
        _settle(job, job.open_steps.pop(number))


def settle_earlier(job: Job, rank: Rank, attempt: int) -> None:
    """Settle what earlier attempts, and earlier processes of the rank, left open: their steps have the same numbers."""
    for number, parts in list(job.open_steps.items()):
        if rank.rank in parts or any(job.ranks[other].attempt < attempt for other in parts):
            _settle(job, job.open_steps.pop(number))


def _settle(job: Job, parts: dict[int, PendingWait]) -> None:
    states, late = split_waiting(parts, whole=job.has_all_ranks(parts))
    for rank, seconds in states.items():
        for state, value in seconds.items():
            job.ranks[rank].seconds[state] += value
    if late is not None:
        job.late = [*job.late[1 - RECENT_STEPS :], (max(part.wall for part in parts.values()), late)]
    # Where one rank saves or evaluates, the others wait for it in the same step: that is not an irregularity.
    seconds_taken = max(part.seconds for part in parts.values()) - max(part.excused for part in parts.values())
    slowdown = job.regularity.compared(max(job.ranks[rank].attempt for rank in parts), max(seconds_taken, 0.0))
    if slowdown is not None:
        job.step_slowdown.observe(slowdown, STEP_SLOWDOWN.buckets)
