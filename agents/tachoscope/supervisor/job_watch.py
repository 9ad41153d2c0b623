"""Judges a job's processes on one host from outside: which are gone, which were started again, and whether the job hangs.

Whoever reads the spool (`tachoscope run`, or else the node agent) hands over the records and writes down what is judged.

A hang is: no rank finished a step for `HANG_SECONDS`, or ten times what a step takes if that is longer; and a process is stopped or
silent, or ranks wait for others. Where all are in the midst of a step and none waits for another, they compile, or wait for data:
then it is one only after `PATIENCE` times as long. It is none while a rank saves a checkpoint or evaluates, since the others wait
for that, and none before the first step, which may take any time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tachoscope.supervisor.process_exits import ProcessExits
from tachoscope_core.records import records

HANG_VARIABLE = "TACHOSCOPE_HANG_SECONDS"
HANG_SECONDS = 30.0
HANG_STEPS = 10.0
PATIENCE = 20.0
SILENT_SECONDS = 15.0
"""Without any record for so long a process is silent: a heartbeat comes every 5 s."""
WAITING = frozenset({"backward", "collective"})
"""Phases in which a rank waits for others."""
EXCUSED = frozenset({"checkpoint", "evaluation"})
"""Phases that last as long as they last."""
_BETWEEN = frozenset({"", "other", "gc"})
_NO_RANKS = (
    records.ShardRead
    | records.ShardFailed
    | records.UpdatesApplied
    | records.ServiceStarted
    | records.RequestDone
    | records.EngineWindow
    | records.ServiceEnded
)
"""Records of processes that are not ranks: loader workers, parameter servers, and processes that serve requests."""
_RECENT_STEPS = 64
_MAX_PROCESSES = 4096


def hang_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Return after how many seconds without a step a hang may be said: `$TACHOSCOPE_HANG_SECONDS`, else 30."""
    try:
        given = float(environ.get(HANG_VARIABLE, ""))
    except ValueError:
        return HANG_SECONDS
    return given if 0.0 < given < float("inf") else HANG_SECONDS


@dataclass(slots=True)
class WatchedProcess:
    """A process of the job, as its records show it. Times are Unix seconds and, with `_at`, seconds of the monotonic clock.

    Attributes:
        step: the last that it finished. phase: where it was after that, by its last heartbeat; empty: not known.
        alive_time: when it was last seen alive. gone_time: when it was first seen gone; 0: it was not.
        ended: status of its `JobEnded`; empty: none came. over: nothing more is to be said about it.
    """

    writer: str
    rank: int
    attempt: int
    pid: int = 0
    step: int = 0
    step_at: float | None = None
    step_time: float = 0.0
    record_at: float = 0.0
    phase: str = ""
    alive_time: float = 0.0
    gone_time: float = 0.0
    ended: str = ""
    reason: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class JobEvent:
    """What is to be written down, a record's kind and fields, and what is to be said to a person; None and empty: nothing."""

    kind: type[records.Record] | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass
class JobWatch:
    """Knows the processes of one job on this host.

    Args:
        least_hang_seconds: without a step, from which on a hang may be said.
    """

    least_hang_seconds: float = HANG_SECONDS
    exits: ProcessExits = field(default_factory=ProcessExits)
    processes: dict[str, WatchedProcess] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    _attempts: dict[int, int] = field(default_factory=dict)
    _events: list[JobEvent] = field(default_factory=list)
    _ended: list[WatchedProcess] = field(default_factory=list)
    _hung_at: float | None = None
    _gone_time: float = 0.0

    def add_record(self, record: records.AnyRecord, now: float, unix_seconds: float) -> None:
        """Take a record of any process of the job; `now` is the monotonic clock's.

        Those of who watches from outside are none of a process of the job, and are left alone. So are those that others than ranks
        write.
        """
        if record.rank < 0 or isinstance(record, _NO_RANKS):
            return
        if isinstance(record, records.Heartbeat) and "requests_in_flight" in record.signals:
            return
        process = self.processes.get(record.writer) or self._new(record)
        process.alive_time = max(process.alive_time, min(record.time, unix_seconds))
        at = min(record.monotonic_ns / 1e9, now)
        process.record_at = max(process.record_at, at)
        match record:
            case records.JobStarted():
                process.pid = record.pid
                self.exits.follow(process.writer, record.pid)
            case records.StepDone():
                process.step, process.step_at, process.step_time = record.step, at, min(record.time, unix_seconds)
                process.phase = ""
                self._recent.append(record.wall_seconds)
            case records.Heartbeat():
                process.phase = record.phase if process.step_at is None or at > process.step_at else ""
            case records.JobEnded():
                process.ended, process.reason = record.status, record.reason
                self._end(process, unix_seconds)

    def _new(self, record: records.AnyRecord) -> WatchedProcess:
        if len(self.processes) >= _MAX_PROCESSES:
            self.processes = {writer: process for writer, process in self.processes.items() if not process.over}
        process = self.processes[record.writer] = WatchedProcess(record.writer, record.rank, record.attempt)
        before = self._attempts.get(record.rank, record.attempt)
        if record.attempt > before:
            fields = {"restarted_rank": record.rank, "restarted_attempt": record.attempt}
            self._events.append(JobEvent(records.WorkerRestarted, fields))
        self._attempts[record.rank] = max(before, record.attempt)
        return process

    def add(self, process: WatchedProcess, step_seconds: list[float]) -> None:
        """Add a process that is known otherwise, and what its last steps took."""
        self.processes[process.writer] = process
        self._attempts[process.rank] = max(process.attempt, self._attempts.get(process.rank, 0))
        self._recent.extend(step_seconds)
        self.exits.follow(process.writer, process.pid)

    def saw_alive(self, unix_seconds: float) -> None:
        """Mark every process that has not exited as alive."""
        for process in self.processes.values():
            if not process.gone_time:
                process.alive_time = unix_seconds

    def add_exit(self, writer: str, unix_seconds: float) -> None:
        """Note that a process is gone. It is judged at the next `judge`: take its last records before that."""
        self.exits.forget(writer)
        process = self.processes.get(writer)
        if process is not None:
            self._end(process, unix_seconds)

    def _end(self, process: WatchedProcess, unix_seconds: float) -> None:
        if not process.gone_time:
            # Of several that were gone at one look, the times keep the order.
            self._gone_time = process.gone_time = max(unix_seconds, self._gone_time + 1e-6)
            self._ended.append(process)

    def new_events(self, now: float) -> list[JobEvent]:
        """Return what is new: failures in the order in which the processes ended, restarts, a hang."""
        events, self._events = self._events, []
        ended, self._ended = self._ended, []
        for process in ended:
            process.over = True
            self.exits.forget(process.writer)
            if _failed(process):
                events.append(_failure(process))
        return [*events, *self._hang(now)]

    def running(self) -> list[WatchedProcess]:
        """Return the processes that have not ended."""
        return [process for process in self.processes.values() if not process.over]

    def close(self) -> None:
        """Let go of the processes."""
        self.exits.close()

    def _hang(self, now: float) -> list[JobEvent]:
        running = self.running()
        newest = max((process.attempt for process in running), default=0)
        running = [process for process in running if process.attempt == newest]
        last = max((process for process in running if process.step_at is not None), key=_step_at, default=None)
        if last is None or last.step_at is None or not self._recent:
            self._hung_at = None
            return []
        if self._hung_at is not None:
            if last.step_at <= self._hung_at:
                return []
            told, self._hung_at = self._hung_at, None
            return [JobEvent(text=f"the job goes on, after {last.step_at - told:.0f} s without a step")]
        usual = median(self._recent)
        idle = now - last.step_at
        if idle <= max(self.least_hang_seconds, HANG_STEPS * usual):
            return []
        gone = [process for process in self.processes.values() if process.over and process.attempt == newest and _failed(process)]
        views = [
            ProcessView(process, self.exits.stopped(process.writer), now - process.record_at > SILENT_SECONDS)
            for process in running
        ]
        if not is_hang(views) or (nobody_waits(views) and idle <= PATIENCE * self.least_hang_seconds):
            return []
        self._hung_at = last.step_at
        stuck, why = stuck_rank(views, gone)
        fields = {"since_time": last.step_time, "step": last.step, "why": why}
        fields |= {"failed_rank": stuck.rank, "failed_writer": stuck.writer} if stuck is not None else {}
        who = f"rank {stuck.rank} hangs: {why}" if stuck is not None else f"it cannot be determined which rank hangs: {why}"
        return [
            JobEvent(
                records.WorkerHung, fields, f"no step for {idle:.0f} s (a step takes {usual:.2g} s); {who}{_others(views, stuck)}"
            )
        ]


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process at the moment of judging."""

    process: WatchedProcess
    stopped: bool
    silent: bool


def is_hang(views: list[ProcessView]) -> bool:
    """Return whether processes that finish no step hang, or have something else to do."""
    if any(view.stopped or (view.silent and view.process.phase not in EXCUSED) for view in views):
        return True
    phases = {view.process.phase for view in views}
    return not phases & EXCUSED and not phases <= _BETWEEN


def nobody_waits(views: list[ProcessView]) -> bool:
    """Return whether no process waits for another, as far as their phases tell, and none is stopped or silent."""
    return not any(view.stopped or view.silent or view.process.phase in WAITING for view in views)


def stuck_rank(views: list[ProcessView], gone: list[WatchedProcess]) -> tuple[WatchedProcess | None, str]:
    """Return the process that the others wait for, None if it cannot be determined, and why.

    Args:
        gone: processes of the attempt that died.
    """
    for view in views:
        if view.stopped:
            return view.process, "its process is stopped by a signal"
    if gone:
        return gone[0], "its process is gone"
    silent = [view.process for view in views if view.silent]
    if len(silent) == 1:
        return silent[0], f"its process wrote nothing for more than {SILENT_SECONDS:.0f} s"
    if len(views) == 1:
        return views[0].process, f"it is in {views[0].process.phase or 'an unknown phase'}"
    most = max(view.process.step for view in views)
    behind = [view.process for view in views if view.process.step < most]
    if len(behind) == 1:
        return behind[0], f"it finished {behind[0].step} steps, the others {most}"
    ahead = [view.process for view in views if view.process.step == most]
    others = {view.process.phase for view in views if view.process.step < most}
    if len(views) > 2 and len(ahead) == 1 and others == {"collective"}:
        return ahead[0], f"it finished {most} steps; the others wait in a collective before that: it left it out or gave less"
    apart = [view.process for view in views if view.process.phase not in WAITING]
    if len(apart) == 1:
        return apart[0], f"it is in {apart[0].phase or 'an unknown phase'}, the others wait"
    if not apart:
        return None, "all ranks of this host wait for others; if there are more hosts, it is on one of them"
    return None, f"{len(apart)} of {len(views)} ranks do not wait"


def _step_at(process: WatchedProcess) -> float:
    return process.step_at or 0.0


def _failed(process: WatchedProcess) -> bool:
    return process.ended in {"", "failed"}


def _failure(process: WatchedProcess) -> JobEvent:
    reason = process.reason if process.ended == "failed" and process.reason else "killed"
    fields = {
        "reason": reason,
        "failed_rank": process.rank,
        "failed_writer": process.writer,
        "failed_attempt": process.attempt,
        "failed_pid": process.pid,
        "gone_time": process.gone_time,
        "seen_time": process.alive_time,
        "step": process.step,
    }
    return JobEvent(records.WorkerFailed, fields)


def _others(views: list[ProcessView], stuck: WatchedProcess | None) -> str:
    phases = sorted({view.process.phase or "not known" for view in views if view.process is not stuck})
    return f"; the others are in: {', '.join(phases)}" if phases and stuck is not None else ""
