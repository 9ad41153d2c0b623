"""Whether a job hangs now, judged over all its hosts: by their last steps, heartbeats and the phases that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tachoscope.supervisor.job_watch import WatchedProcess
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs import hang_rule
from tachoscope_core.jobs.hang_rule import SILENT_SECONDS_OF_SHIPPED, WAITING_PHASES, RankState
from tachoscope_core.report.report import Evidence, Finding


@dataclass(frozen=True, slots=True)
class Hang:
    """No rank finished a step for `seconds`, longer than `limit_seconds`. `rank`: None: not known. `waiting`: how many do."""

    seconds: float
    limit_seconds: float
    rank: int | None
    why: str
    waiting: int


def processes(job: JobRecords) -> list[WatchedProcess]:
    """Return the processes of the newest attempt, by rank, as their records show them; times are Unix seconds."""
    ranks = [start for start in job.starts if start.rank >= 0]
    newest = max((start.attempt for start in ranks), default=0)
    ranks = [start for start in ranks if start.attempt == newest]
    found = {start.writer: WatchedProcess(start.writer, start.rank, start.attempt, start.pid) for start in ranks}
    for rows in (job.starts, job.steps, job.heartbeats, job.checkpoints, job.collectives):
        for row in rows:
            if row.writer in found:
                found[row.writer].record_at = max(found[row.writer].record_at, row.time)
    for step in job.steps:
        process = found.get(step.writer)
        if process is not None and step.time >= process.step_time:
            process.step, process.step_at, process.step_time = step.step, step.time, step.time
    for beat in job.heartbeats:
        process = found.get(beat.writer)
        if process is not None and beat.time >= max(process.step_time, process.alive_time):
            process.phase, process.alive_time = beat.phase, beat.time
    for end in job.ends:
        if end.writer in found:
            found[end.writer].ended, found[end.writer].over = end.status, True
    return sorted(found.values(), key=lambda process: process.rank)


def hang(job: JobRecords, everybody: Sequence[WatchedProcess], now: float) -> Hang | None:
    """Return the hang that a job is in; None: it is in none, as far as its records tell."""
    running = [process for process in everybody if not process.over]
    last = max((process.step_time for process in running), default=0.0)
    ranks = [_state_of(process, now) for process in running]
    if not last or not job.steps or all(rank.silent for rank in ranks):
        return None  # nobody is there: it ended, or its agents do not ship
    usual = hang_rule.usual_step_seconds(step.wall_seconds for step in job.steps)
    least, seconds = hang_rule.least_seconds(), now - last
    if not hang_rule.is_hang(ranks, seconds, usual, least):
        return None
    gone = [(process.rank, process.writer) for process in everybody if process.over and process.ended == "failed"]
    stuck, why = hang_rule.stuck_rank(ranks, gone, SILENT_SECONDS_OF_SHIPPED)
    waiting = sum(not rank.silent and rank.phase in WAITING_PHASES for rank in ranks)
    return Hang(seconds, hang_rule.limit_seconds(usual, least), None if stuck is None else stuck[0], why, waiting)


def _state_of(process: WatchedProcess, now: float) -> RankState:
    silent = now - process.record_at > SILENT_SECONDS_OF_SHIPPED
    return RankState(process.rank, process.writer, process.step, process.phase, silent=silent)


def finding(found: Hang) -> Finding:
    """Return the finding of a hang that lasts: nothing goes on, so its share is all."""
    source = "records of all hosts"
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
        action="see what that rank does: `py-spy dump --pid PID`, `ps -o stat,wchan -p PID` on its host; then end it: "
        "its launcher goes on from the last checkpoint",
        runbook="runbooks/hang.md",
    )
