"""Whether a job hangs now, judged over all its hosts: by their last steps, heartbeats and the phases that they are in."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.jobs import hang_rule
from tachoscope_core.jobs.hang_rule import WAITING_PHASES, RankState
from tachoscope_core.report.report import Evidence, Finding
from tachoscope_watch.live_jobs import LiveJob

_CLOCK_SECONDS = 1.0
"""Between the time of a step as its rank and as its node's agent tell it."""


@dataclass(frozen=True, slots=True)
class Hang:
    """No rank finished a step for `seconds`, longer than `limit_seconds`. `rank`: None: not known. `waiting`: how many do."""

    seconds: float
    limit_seconds: float
    rank: int | None
    why: str
    waiting: int


def hang_of(job: LiveJob) -> Hang | None:
    """Return the hang that a job is in; None: it is in none, as far as its nodes tell."""
    running = [rank for rank in job.ranks if not rank.status.ended]
    last = max((rank.status.step_time for rank in running), default=0.0)
    usual = [rank.status.usual_step_seconds for rank in running if rank.status.usual_step_seconds > 0.0]
    told = job.hang if job.hang is not None and last <= job.hang.since + _CLOCK_SECONDS else None
    if not last or not usual or (told is None and all(rank.silent for rank in running)):
        return None  # it ended, or its agents are down
    ranks = [
        RankState(rank.status.rank, rank.status.writer, rank.status.step, rank.status.phase, silent=rank.silent) for rank in running
    ]
    usual_step, least, seconds = hang_rule.usual_step_seconds(usual), hang_rule.least_seconds(), job.time - last
    limits = hang_rule.limits_of(usual_step, max(least, job.hang_limit_seconds))
    if told is None and not hang_rule.is_hang(ranks, seconds, limits):
        return None
    gone = [(rank.status.rank, rank.status.writer) for rank in job.ranks if rank.status.ended in {"failed", "killed"}]
    stuck, why = hang_rule.stuck_rank(ranks, gone)
    waiting = sum(not rank.silent and rank.phase in WAITING_PHASES for rank in ranks)
    limit = limits.full if seconds > limits.full else hang_rule.least_quick_seconds(usual_step, least)
    if told is not None and told.failed_rank >= 0:  # who sees the processes knows more than their records tell
        return Hang(seconds, limit, told.failed_rank, told.why, waiting)
    return Hang(seconds, limit, None if stuck is None else stuck[0], why, waiting)


def finding(found: Hang, job: str) -> Finding:
    """Return the finding of a job's hang that lasts: nothing goes on, so its share is all."""
    source = "status of all nodes"
    evidence = [
        Evidence(
            signal="time without a step of any rank",
            value=found.seconds,
            threshold=found.limit_seconds,
            comparison=">",
            unit="seconds",
            source=source,
        ),
        Evidence(signal="ranks that wait for others", value=float(found.waiting), unit="ranks", source=source),
    ]
    if found.rank is not None:
        evidence.append(Evidence(signal=f"rank {found.rank}: {found.why}", value=1.0, source=source))
    return Finding(
        class_="hang",
        severity="critical",
        seconds_per_step=found.seconds,
        share=1.0,
        share_ci=(1.0, 1.0),
        ranks="all" if found.rank is None else [found.rank],
        confidence=0.5 if found.rank is None else 0.9,
        runner_up=None,
        evidence=evidence,
        speedup_if_fixed=None,
        action=f"see where its processes stand: `tachoscope hang {job}`; then end that rank: "
        "its launcher goes on from the last checkpoint",
        runbook="runbooks/hang.md",
    )
