"""Judges a job's processes on one host from outside: which are gone, which were started again, and whether the job hangs.

Whoever reads the spool (`tachoscope run`, or else the node agent) hands over the records and writes down what is judged.

When a job hangs, `tachoscope_core.jobs.hang_rule` says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tachoscope.supervisor.movement import WINDOW_SECONDS as MOVEMENT_SECONDS
from tachoscope.supervisor.movement import Movement
from tachoscope.supervisor.process_exits import ProcessExits
from tachoscope_core.jobs import hang_rule
from tachoscope_core.records import records

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


@dataclass(slots=True)
class WatchedProcess:
    """A process of the job, as its records show it. Times are Unix seconds and, with `_at`, seconds of the monotonic clock.

    Attributes:
        step: the last that it finished. phase: where it was after that, by its last heartbeat; empty: not known.
        alive_time: when it was last seen alive. gone_time: when it was first seen gone; 0: it was not.
        ended: status of its `JobEnded`; empty: none came. over: nothing more is to be said about it.
        stack_locator, world_size: as its `JobStarted` says.
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
    stack_locator: str = ""
    world_size: int = 0


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
        least_hang_seconds: without a step, from which on a hang may be said. pace: of the job's steps so far.
    """

    least_hang_seconds: float = hang_rule.LEAST_SECONDS
    pace: hang_rule.Pace = field(default_factory=hang_rule.Pace)
    exits: ProcessExits = field(default_factory=ProcessExits)
    processes: dict[str, WatchedProcess] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    _attempts: dict[int, int] = field(default_factory=dict)
    _events: list[JobEvent] = field(default_factory=list)
    _ended: list[WatchedProcess] = field(default_factory=list)
    _movement: Movement = field(default_factory=Movement)
    _hung_at: float | None = None
    _gone_time: float = 0.0

    def add_record(self, record: records.AnyRecord, now: float, unix_seconds: float) -> None:
        """Take a record of a rank of the job; those of other writers are ignored. `now` is monotonic."""
        is_step = isinstance(record, records.StepDone)  # as nearly all are
        if record.rank < 0 or (not is_step and _of_no_rank(record)):
            return
        process = self.processes.get(record.writer) or self._new(record)
        process.alive_time = max(process.alive_time, min(record.time, unix_seconds))
        at = min(record.monotonic_ns / 1e9, now)
        process.record_at = max(process.record_at, at)
        match record:
            case records.StepDone():
                process.step, process.step_at, process.step_time = record.step, at, min(record.time, unix_seconds)
                process.phase = ""
                self._recent.append(record.wall_seconds)
                self.pace.add(record.step, record.wall_seconds, hang_rule.excused_seconds(record.phase_seconds))
                self._movement.forget()
            case records.JobStarted():
                process.pid, process.stack_locator, process.world_size = record.pid, record.stack_locator, record.world_size
                self.exits.follow(process.writer, record.pid)
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
        """Add a process known from elsewhere, and the seconds of its last steps."""
        self.processes[process.writer] = process
        self._attempts[process.rank] = max(process.attempt, self._attempts.get(process.rank, 0))
        self._recent.extend(step_seconds)
        self.exits.follow(process.writer, process.pid)

    def told_before(self, hung_at: float) -> None:
        """Take that the hang after a step that ended then, seconds of the monotonic clock, is known: it is told of once."""
        self._hung_at = hung_at

    def mark_alive(self, unix_seconds: float) -> None:
        """Mark every process that has not exited as alive."""
        for process in self.processes.values():
            if not process.gone_time:
                process.alive_time = unix_seconds

    def add_exit(self, writer: str, unix_seconds: float) -> None:
        """Mark a process as ended. It is judged by the next `new_events`, so add its last records first."""
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
        """Return new events: failures in the order of the exits, restarts, a hang."""
        events, self._events = self._events, []
        ended, self._ended = self._ended, []
        for process in ended:
            process.over = True
            self.exits.forget(process.writer)
            if _failed(process):
                events.append(_failure(process))
        return [*events, *self._hang(now)]

    @property
    def hangs(self) -> bool:
        """Whether the job hung when it was last looked at."""
        return self._hung_at is not None

    def running(self) -> list[WatchedProcess]:
        return [process for process in self.processes.values() if not process.over]

    def close(self) -> None:
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
            return [JobEvent(text=f"the job continues after {last.step_at - told:.0f} s without a step")]
        usual, idle = hang_rule.usual_step_seconds(self._recent), now - last.step_at
        all_seen = _all_seen(running)
        limits = hang_rule.limits_of(usual, self.least_hang_seconds, self.pace, all_seen=all_seen)
        if idle <= limits.quick - MOVEMENT_SECONDS:  # the usual case, cheaply
            return []
        ranks = [self._state_of(process, now, last.step_at + limits.full) for process in running]
        if not hang_rule.is_hang(ranks, idle, limits):
            return []
        gone = [process for process in self.processes.values() if process.over and process.attempt == newest and _failed(process)]
        self._hung_at = last.step_at
        stuck, why = hang_rule.stuck_rank(ranks, [(process.rank, process.writer) for process in gone], all_seen=all_seen)
        fields = {"since_time": last.step_time, "step": last.step, "why": why}
        fields |= {"failed_rank": stuck[0], "failed_writer": stuck[1]} if stuck is not None else {}
        who = f"rank {stuck[0]} hangs: {why}" if stuck is not None else f"it cannot be determined which rank hangs: {why}"
        return [
            JobEvent(
                records.WorkerHung, fields, f"no step for {idle:.0f} s (a step takes {usual:.2g} s); {who}{_others(ranks, stuck)}"
            )
        ]

    def _state_of(self, process: WatchedProcess, now: float, until: float) -> hang_rule.RankState:
        stopped, silent = self.exits.stopped(process.writer), now - process.record_at > hang_rule.SILENT_SECONDS
        pid = self.exits.pid_of(process.writer)
        still = pid is not None and self._movement.stands_still(pid, now, until)
        loads = pid is not None and process.phase == hang_rule.LOADING_PHASE
        blocked = self._movement.stopped_worker(pid, now) if pid is not None and loads else ""
        closed = pid is not None and process.phase in hang_rule.PAUSING_PHASES and self._movement.waits_for_itself(pid, now, until)
        return hang_rule.RankState(
            process.rank, process.writer, process.step, process.phase, stopped, silent, still, blocked, closed
        )


def _all_seen(running: list[WatchedProcess]) -> bool:
    """Return whether all ranks of the job run on this host: what others do is not known here."""
    return len({process.rank for process in running}) >= max(process.world_size for process in running) > 0


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


def _others(ranks: list[hang_rule.RankState], stuck: tuple[int, str] | None) -> str:
    phases = sorted({rank.phase or "not known" for rank in ranks if stuck and rank.writer != stuck[1]})
    return f"; the others are in: {', '.join(phases)}" if phases else ""


def _of_no_rank(record: records.AnyRecord) -> bool:
    """Return whether a record says nothing of a rank's life: of data shards and the like, and of what serves requests."""
    serves = isinstance(record, records.Heartbeat) and "requests_in_flight" in record.signals
    return serves or isinstance(record, _NO_RANKS)
