"""Accounts the time of a rank around and between its steps: initialisation, restore, hangs, and steps done again.

All that happened up to `rank.accounted` is in its seconds: so its states add up to its wall time, whatever comes in which order.
"""

from __future__ import annotations

from tachoscope_core.jobs.hang_rule import PHASES_WITHOUT_LIMIT, all_idle, excused_seconds, usual_step_seconds
from tachoscope_core.records import records
from tachoscope_node.jobs import hang_time
from tachoscope_node.jobs.state import Job, Rank

_MAX_SECONDS = 7 * 86400.0
_NEGLIGIBLE_SECONDS = 1e-6


def process_began(record: records.JobStarted, at: float) -> float | None:
    """Return when the process was started, by the monotonic clock on which its record is of `at`; None where it cannot be known."""
    before = record.time - record.process_time
    return at - before if record.process_time > 0.0 and 0.0 <= before <= _MAX_SECONDS else None


def next_process(job: Job, rank: Rank, attempt: int) -> None:
    """Begin with another process of a rank; called before the rank takes on its attempt."""
    if attempt > rank.attempt:
        rank.done_before = max(rank.done_before, rank.reached)
    _replaced(rank, attempt)
    if job.idle_since is not None:  # nobody watched until now: that was not a time of the job
        for other in job.ranks.values():
            other.accounted = None
    rank.began, rank.hung, rank.phase = None, 0.0, ""
    if attempt > job.attempt:
        job.restarts += job.attempt >= 0
        job.attempt = attempt


def _replaced(rank: Rank, attempt: int) -> None:
    """Account the end of a process that was missed because the next one had started, as after a restart of the agent."""
    if rank.ended or rank.last_end is None or rank.accounted is None:
        return
    rank.accounted += rank.hung  # that is in its seconds already
    if attempt > rank.attempt:
        rank.seconds["lost_work"] += max(rank.last_record - rank.accounted, 0.0)
        rank.accounted = max(rank.last_record, rank.accounted)


def restored(job: Job, rank: Rank, record: records.CheckpointRestored, at: float) -> bool:
    """Take that a process continued from a checkpoint; say whether the numbers can be true."""
    seconds = record.blocking_seconds
    if not 0.0 <= seconds <= _MAX_SECONDS:
        return False
    known = any(other.done_before or other.reached for other in job.ranks.values())
    job.progress.restore(record.attempt, record.step, record.reference[:1024], first=not known)
    if rank.last_end is None:
        accounted = _begin(job, rank, at - seconds)
        rank.seconds["initialisation"] += max(at - seconds - accounted, 0.0)
        rank.seconds["restore"] += max(at - max(at - seconds, accounted), 0.0)
        rank.accounted = max(at, accounted)
    return True


def heard_of(job: Job, rank: Rank, phase: str, at: float) -> None:
    """Take where a rank is by its heartbeat."""
    rank.phase = phase[:32] if rank.last_end is None or at > rank.last_end else ""
    if rank.phase in PHASES_WITHOUT_LIMIT or all_idle([other.phase for other in job.running()]):
        job.excused_at = max(job.excused_at, at)


def step_done(job: Job, rank: Rank, step: records.StepDone, at: float, least_hang_seconds: float) -> tuple[records.StepDone, bool]:
    """Account the time before a step and what of it was a hang; return what is left of the step, and whether it is a new one."""
    begin = at - step.wall_seconds
    accounted = _begin(job, rank, begin)
    gap = max(begin - accounted, 0.0)
    hung_in_gap = min(rank.hung, gap)
    rank.seconds["initialisation" if rank.last_end is None else "unexplained"] += gap - hung_in_gap
    # A step begins where the one before ended, so nothing of it is accounted but as a hang, a restore, or another process's.
    fresh = accounted == rank.last_end
    room = step.wall_seconds if fresh else max(at - max(begin, accounted), 0.0)
    counted = rank.hung - hung_in_gap
    hung = counted
    if rank.last_end is not None and step.wall_seconds > least_hang_seconds:
        recent = [wall for wall, _ in rank.recent]
        spans = (at - max(begin, job.excused_at), step.wall_seconds - excused_seconds(step.phase_seconds))
        hung = max(counted, min(room, hang_time.hung_seconds(min(spans), recent, least_hang_seconds, job.pace)))
        rank.seconds["hung"] += hung - counted
    left = max(room - hung, 0.0)
    rank.accounted = max(at, accounted) + max(hung - room, 0.0)
    rank.last_end, rank.hung, rank.phase = at, 0.0, ""
    rest = step if step.wall_seconds - left <= _NEGLIGIBLE_SECONDS else hang_time.shortened(step, left)
    return rest, _is_new(job, rank, step, at)


def _is_new(job: Job, rank: Rank, step: records.StepDone, at: float) -> bool:
    whole = len(job.ranks) >= rank.world_size
    base = job.progress.base(rank.attempt, first=not rank.done_before, whole=whole)
    if base is not None:
        if base + step.step <= rank.done_before:
            return False
        rank.reached = max(rank.reached, base + step.step)
    if job.failed_at is not None and rank.attempt > job.failed_attempt:
        job.recovered(at - job.failed_at)
    return True


def hung_until(job: Job, rank: Rank, now: float, least_hang_seconds: float) -> float:
    """Return how long a rank that did a step has hung since then."""
    assert rank.last_end is not None
    without_step = now - max(rank.last_end, job.excused_at)
    if job.hang is not None and job.hanging is not None:  # who watches it says so, and knows more of the processes
        return max(without_step - usual_step_seconds(wall for wall, _ in rank.recent), 0.0) if rank.recent else 0.0
    if without_step <= least_hang_seconds:  # the usual case, cheaply
        return 0.0
    return hang_time.hung_seconds(without_step, [wall for wall, _ in rank.recent], least_hang_seconds, job.pace)


def hangs(rank: Rank, seconds: float) -> None:
    """Count that a rank has hung for so long since its last step."""
    rank.seconds["hung"] += seconds - rank.hung
    rank.hung = seconds


def account_end(job: Job, rank: Rank, at: float, *, failed: bool) -> None:
    """Account what a process did after its last step: of one that failed the step that it did not finish is lost."""
    stepped = rank.last_end is not None
    accounted = _begin(job, rank, at) + rank.hung
    state = "initialisation" if not stepped else "lost_work" if failed else "unexplained"
    rank.seconds[state] += max(at - accounted, 0.0)
    if failed and (job.failed_at is None or rank.attempt > job.failed_attempt):
        job.failed_at, job.failed_attempt = at, rank.attempt
    if failed and job.failed_at is not None:
        job.failed_at = min(job.failed_at, rank.last_end if rank.hung and rank.last_end is not None else at)
    rank.accounted = max(at, accounted)
    rank.last_end, rank.hung = None, 0.0
    if job.released is not None and job.ending.status:  # what launched it said that it ended, which was read before
        command_ended(job, job.released)


def command_ended(job: Job, at: float) -> None:
    """Account what lies between the end of each rank and that of the command that launched it: the rank was held for nothing."""
    for rank in job.ranks.values():
        if rank.ended and rank.accounted is not None and job.launched is not None and job.launched <= rank.accounted < at:
            rank.seconds["unexplained"] += at - rank.accounted
            rank.accounted = at


def _begin(job: Job, rank: Rank, at: float) -> float:
    """Return up to when a rank's time is accounted; where nothing is, it begins with the launch, else with its process."""
    launched = job.launched
    if launched is not None and (launched > at or (job.released is not None and at > job.released)):
        launched = None
    if rank.accounted is None:
        start = launched if launched is not None else rank.began
        rank.accounted = start if start is not None and start <= at else at
    elif rank.last_end is None and launched is not None:
        rank.accounted = max(rank.accounted, launched)  # time between two launches is not the job's
    return rank.accounted
