"""How an attempt ended: in order, or because a process was gone, stuck, or told to go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tachoscope_analyzers.attempts import hangs, overlaps
from tachoscope_analyzers.attempts.allocations import JobAllocations, Launch
from tachoscope_analyzers.attempts.hangs import HangThreshold
from tachoscope_analyzers.attempts.processes import Clock, RankProcess
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.load import RUNNING_SECONDS, JobRecords
from tachoscope_core.records import records
from tachoscope_core.report import job_life

WORKING_PHASES = ("checkpoint", "evaluation", "compile")
"""Where a rank can be for long between two steps without being stuck."""
_INTERRUPTED = {130, -2}
_INTERRUPT_SECONDS = 5.0
"""An interrupt comes to all processes at once: where one was gone so much before the others, it came after a failure."""
_SEEN_TOGETHER_SECONDS = 1.0
"""A watcher looks a few times a second: whose end it saw within this time may have been gone first."""


@dataclass(frozen=True, slots=True)
class AttemptEnding:
    """How an attempt ended.

    Attributes:
        process: whose doing it was; None: cannot be determined. failed_at: when it was gone or stuck; None: it did not fail.
        hang: the one that it ended in, or is in. lasts: nobody saw that one end.
    """

    kind: job_life.Ending
    reason: str
    process: RankProcess | None = None
    failed_at: float | None = None
    hang: hangs.Hang | None = None
    lasts: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than in order."""
        return self.kind not in {"completed", "running", "unknown"}


def launch_of(run: Run, attempts: Sequence[Run], held: JobAllocations, clock: Clock) -> tuple[Launch | None, bool]:
    """Return the launch that can tell how an attempt ended, and whether it is the last of that, or of the job.

    An attempt that began while this one went on says nothing of its end; nor does a launch that both belong to, as where an agent
    watches them as one job.
    """
    launch = held.launch_of.get(run.key)
    after = [one for one in attempts[attempts.index(run) + 1 :] if not overlaps.outlived(run.processes, one.processes, clock)]
    last = not after or (launch is not None and launch not in (held.launch_of.get(one.key) for one in after))
    shared = any(run.ran_with(one) and held.launch_of.get(one.key) is launch for one in attempts)
    return None if shared else launch, last


def ending(
    run: Run, job: JobRecords, clock: Clock, normal: HangThreshold, launch: Launch | None, *, last: bool, now: float
) -> AttemptEnding:
    """Return how an attempt ended.

    Args:
        launch: the start of the command that it belongs to. last: it is the last attempt of that, or of the job.
        now: Unix seconds: what wrote something within the last minute, and did not end, still runs.
    """
    gone_badly = [p for p in run.processes if p.failed or p.ended is None or p.ended.status == "failed"]
    command = launch.ended if launch is not None and last else None
    notice = _notice(run, job, clock)
    if not gone_badly and (command is None or command.status != "failed"):
        saved = any(save.after_notice for process in run.processes for save in process.saves)
        if notice is not None and (saved or not last):
            return AttemptEnding("preempted", f"it left after a notice by {notice.source}", failed_at=run.end)
        return AttemptEnding("completed", "")
    if command is not None and command.status == "completed":
        return AttemptEnding("completed", "")
    hang = final_hang(run, job, clock, normal)
    lasts = last and command is None and bool(_hang_records(run, job, clock, normal)) and not _somebody_gone(run)
    if last and command is None and _running(run, job, clock, normal, now):
        return _running_on(hang if lasts else None)
    culprit, at = _first_gone(gone_badly or run.processes)
    if hang is not None and not (notice is not None and clock.unix_seconds(notice) < hang.since):
        return AttemptEnding("hung", _hangs(hang), hang.process, hang.since, hang, lasts)
    if notice is not None:
        return AttemptEnding("preempted", f"ended after a notice by {notice.source}", culprit, at)
    if command is not None and _by_user(command) and run.end - at <= _INTERRUPT_SECONDS:
        return AttemptEnding("interrupted", "by the user", failed_at=at)
    if culprit.ended is not None and culprit.ended.status == "failed":
        return AttemptEnding(
            "failed", _of(culprit, culprit.ended.reason or "it raised") + _want_of_memory(culprit, job), culprit, at
        )
    if culprit.failed is not None:
        return AttemptEnding("killed", _of(culprit, culprit.failed.reason or "killed") + _want_of_memory(culprit, job), culprit, at)
    if culprit.ended is None and (command is not None or not last):
        return AttemptEnding("killed", _of(culprit, "gone without a word"), culprit, at)
    if command is not None:
        return AttemptEnding("failed", command.reason, None, at)
    return AttemptEnding("unknown", "its records stop, and its end was not seen")


def _running_on(hang: hangs.Hang | None) -> AttemptEnding:
    if hang is None:
        return AttemptEnding("running", "")
    return AttemptEnding("running", _hangs(hang), hang.process, hang=hang, lasts=True)


def _hangs(hang: hangs.Hang) -> str:
    return _of(hang.process, f"no rank finished a step for {hang.until - hang.since:.0f} s; {hang.why}")


def with_hang_until(run: Run, job: JobRecords, clock: Clock, normal: HangThreshold, now: float) -> Run:
    """Return a job's last attempt; if it hangs by the word of who watches it, and nobody saw it end, with its time until now.

    A process that is stopped writes nothing, and its last word is not its end. Where nothing was heard of the attempt for long, it
    lasts until that was said of it.
    """
    said = _hang_records(run, job, clock, normal)
    if not said or _somebody_gone(run):
        return run
    heard = _running(run, job, clock, normal, now)
    until = clock.seconds(now) if heard else max(clock.unix_seconds(row) for row in said)
    return replace(run, processes=[replace(process, end=max(process.end, until)) for process in run.processes])


def _somebody_gone(run: Run) -> bool:
    return any(process.ended is not None or process.failed is not None for process in run.processes)


def _hang_records(run: Run, job: JobRecords, clock: Clock, normal: HangThreshold) -> list[records.WorkerHung]:
    """Return the watchers' hang records that began with the attempt's last finished step."""
    ends = [process.last_step_end for process in run.processes if process.last_step_end is not None]
    if not ends:
        return []
    # The last step that a watcher knows of may be the one before, where it watches another node.
    earliest = max(run.start, max(ends) - max(1.0, 2 * (normal.step_seconds or 0.0)))
    return [row for row in job.hangs if earliest <= clock.seconds(row.since_time)]


def _by_user(command: records.JobEnded) -> bool:
    return command.exit_code in _INTERRUPTED or command.reason.startswith(records.INTERRUPTED)


def final_hang(run: Run, job: JobRecords, clock: Clock, normal: HangThreshold) -> hangs.Hang | None:
    """Return the hang that an attempt ended in, if no rank finished a step for so long before the first was gone."""
    ends = [process.last_step_end for process in run.processes if process.last_step_end is not None]
    if not ends:
        return None
    since = max(ends)
    until = min(process.end for process in run.processes)
    said = [row for row in _hang_records(run, job, clock, normal) if clock.seconds(row.since_time) <= until]
    if until - since < normal.hang_seconds and not (said and until > since):
        return None
    if any(at_work(process, since, process.end) for process in run.processes):
        return None
    named = next(((p, row) for row in said for p in run.processes if row.failed_writer and p.writer == row.failed_writer), None)
    stopped = [p for p in run.processes if not hangs.is_alive(p, p.last_heard, since, until)]
    behind = min(run.processes, key=lambda p: p.finished_at(since))
    if named is not None:
        process, row = named
        return _final(since, until, process, row.why or "so says who watched")
    if len(stopped) == 1 and len(run.processes) > 1:
        return _final(since, until, stopped[0], "its heartbeats ceased")
    if behind.finished_at(since) < max(p.finished_at(since) for p in run.processes):
        return _final(since, until, behind, "it is a step behind the others")
    return _final(since, until, run.processes[0] if len(run.processes) == 1 else None, "which rank is stuck cannot be determined")


def _final(since: float, until: float, process: RankProcess | None, why: str) -> hangs.Hang:
    where = process.last_heard.line_of_code(since, until) if process is not None else ""
    return hangs.Hang(since, until, process, why, where)


def at_work(process: RankProcess, start: float, end: float) -> str:
    """Return the phase by which a process's heartbeats explain a time since its last step; empty: they do not."""
    within = process.last_heard.during(start, end)
    if not within or not hangs.is_alive(process, process.last_heard, start, end):
        return ""
    working = [beat.phase for beat in within if beat.phase in WORKING_PHASES]
    return working[-1] if len(working) * 2 > len(within) else ""


def _first_gone(gone: Sequence[RankProcess]) -> tuple[RankProcess, float]:
    """Return the first end and its time; of nearly simultaneous ends that of a process without a last record."""
    first = min(process.end for process in gone)
    near = [process for process in gone if process.end <= first + _SEEN_TOGETHER_SECONDS]
    # One watcher's times of seeing them gone keep their order; when they were last seen alive says nothing of it.
    watchers = {process.failed.writer if process.failed else "" for process in near}
    one_watcher = len(watchers) == 1 and "" not in watchers
    culprit = min(
        near,
        key=lambda one: (
            one.ended is not None,
            _told_to_go(one),
            one.failed.gone_time if one_watcher and one.failed else one.end,
            one.last,
        ),
    )
    return culprit, culprit.end


def _told_to_go(process: RankProcess) -> bool:
    # torchrun ends the other workers with SIGTERM once one is gone.
    return process.failed is not None and process.failed.exit_code in {-15, 143}


def _running(run: Run, job: JobRecords, clock: Clock, normal: HangThreshold, now: float) -> bool:
    last = max(
        [process.last for process in run.processes] + [clock.unix_seconds(row) for row in _hang_records(run, job, clock, normal)]
    )
    return clock.seconds(now) - last < RUNNING_SECONDS and not any(process.failed for process in run.processes)


def _notice(run: Run, job: JobRecords, clock: Clock) -> records.PreemptionNotice | None:
    """Return the notice that an attempt ended after, if it came soon enough before its end."""
    for row in job.notices:
        until = clock.unix_seconds(row) + threshold("notice_seconds")
        if row.deadline:
            until = max(clock.unix_seconds(row), clock.seconds(row.deadline)) + 60.0
        if run.start <= clock.unix_seconds(row) <= run.end + 1.0 and run.end <= until:
            return row
    return None


def _want_of_memory(process: RankProcess, job: JobRecords) -> str:
    """Return that the kernel killed a process or a worker of its loader when memory ran out; empty: it is not known."""
    kill = next((row for row in job.out_of_memory if row.failed_writer == process.writer), None)
    if kill is None:
        return ""
    who = "a worker of its loader got no memory" if kill.victim == "loader_worker" else "out of memory"
    return f", {who} (limit of {kill.limit_of})" if kill.limit_of else f", {who}"


def _of(process: RankProcess | None, what: str) -> str:
    if process is None:
        return what
    who = f"rank {process.rank} on {process.host}"
    return f"{who}: {what}" if what != "killed" else who
