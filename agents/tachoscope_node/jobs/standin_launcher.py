"""Watches the jobs of the node that no `tachoscope run` watches, such as those of pods whose containers only have the probe.

For these it writes what a launcher would: `JobStarted`, `JobEnded`, failures, restarts, hangs. The records lie in a directory of
their own in the spool, and are shipped like any others. A job with a live launcher is left to that.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tachoscope.preemption import notice_file
from tachoscope.supervisor.job_watch import JobWatch, WatchedProcess
from tachoscope.supervisor.records import OutsideRecords
from tachoscope_core.records import records
from tachoscope_node.jobs import attempt_outcome
from tachoscope_node.jobs.registry import Job, JobRegistry, Rank
from tachoscope_node.memory.kill_watch import KERNEL_LOG, KillWatch
from tachoscope_node.spool.owners import AGENT_DIRECTORY

SETTLE_SECONDS = 2.0
"""A job is watched once it was seen for so long: its launcher's first record may be read after its ranks'."""
RESTART_SECONDS = 120.0
"""So long after its last process failed a job may still be started again, and has not ended."""


@dataclass(eq=False)
class _HeldJob:
    records: OutsideRecords
    watch: JobWatch
    kills: KillWatch
    gone: list[str] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    last_gone_time: float = 0.0


class StandInLauncher:
    """Stands in for the launcher of jobs that have none. Not thread-safe: the agent calls it under its lock.

    Args:
        root: of the spool. host: name of the node. log: gets a sentence when a job of the node fails or hangs.
        kernel_log: path, for out-of-memory kills; empty: not read. clock, unix_clock: monotonic and Unix seconds.
    """

    def __init__(
        self,
        live: JobRegistry,
        root: Path,
        host: str,
        *,
        hang_seconds: float,
        log: Callable[[str], None] = lambda _: None,
        kernel_log: str = KERNEL_LOG,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = root / f"{AGENT_DIRECTORY}{uuid.uuid4()}"
        self._live = live
        self._host = host
        self._hang_seconds = hang_seconds
        self._log = log
        self._kernel_log = kernel_log
        self._clock = clock
        self._unix_clock = unix_clock
        self._held: dict[str, _HeldJob] = {}
        self._seen: dict[str, float] = {}
        self._closed = False
        for job in live.jobs.values():
            job.held = False  # by the agent before this one

    def add_record(self, record: records.AnyRecord) -> None:
        held = self._held.get(record.job)
        if held is not None:
            held.watch.add_record(record, self._clock(), self._unix_clock())
            if isinstance(record, records.JobStarted) and held.watch.exits.follows(record.writer):  # its pid is one of here
                held.kills.add_rank(record.writer, record.rank, record.attempt, record.pid)
            held.kills.add_record(record)

    def before_reading(self) -> None:
        """Find ended processes, whose last records are read next."""
        for held in self._held.values():
            for writer in held.watch.exits.newly_exited():
                held.watch.add_exit(writer, self._unix_clock())
                held.gone.append(writer)

    def writer_gone(self, job: str, writer: str) -> None:
        """Note that a writer's segment was released, all of it read."""
        if job in self._held:
            self._held[job].watch.add_exit(writer, self._unix_clock())
            self._held[job].gone.append(writer)

    def poll(self, now: float, all_read: Callable[[str], bool]) -> None:
        """Judge the jobs, and take up those that nobody watches.

        Args:
            now: by the monotonic clock, before reading began: of what was written since then nothing is known yet.
            all_read: says whether all that was written of a job is read; else who is gone may have said so.
        """
        if self._closed:
            return
        unix_seconds = self._unix_clock() - (self._clock() - now)
        self._seen = {name: self._seen.get(name, now) for name in self._live.jobs}
        for job in list(self._live.jobs.values()):
            if job.name in self._held:
                if job.launcher:
                    self._release(job.name, "left", "a launcher watches it")
                continue
            if not job.launcher and now - self._seen[job.name] >= SETTLE_SECONDS and _works(job):
                self._start_watching(job, now, unix_seconds)
        for name, held in list(self._held.items()):
            if all_read(name):
                self._write_events(name, held, now, unix_seconds)

    def _start_watching(self, job: Job, now: float, unix_seconds: float) -> None:
        running = job.running()
        watch = JobWatch(self._hang_seconds, pace=msgspec.structs.replace(job.pace, pauses=dict(job.pace.pauses)))
        for rank in running:
            watch.add(_process(rank, now, unix_seconds), [wall for wall, _ in rank.recent])
        if job.hanging is not None and job.last_end is not None:
            watch.told_before(job.last_end)
        began = min((rank.began for rank in running if rank.began is not None), default=None)
        held = self._held[job.name] = _HeldJob(self._records(job), watch, KillWatch(self._kernel_log))
        for rank in running:
            if watch.exits.follows(rank.writer):
                held.kills.add_rank(rank.writer, rank.rank, rank.attempt, rank.pid)
        held.records.write(
            records.JobStarted,
            world_size=0,
            pid=os.getpid(),
            process_time=unix_seconds - (now - began) if began is not None else 0.0,
        )
        self._live.set_held(job, held=True, now=now)

    def _records(self, job: Job) -> OutsideRecords:
        attempt = min((rank.attempt for rank in job.running()), default=0)
        return OutsideRecords(self.directory, job.name, attempt, host=self._host)

    def _write_events(self, name: str, held: _HeldJob, now: float, unix_seconds: float) -> None:
        held.watch.mark_alive(unix_seconds)
        gone, held.gone = held.gone, []
        for event in [*held.kills.new_events(gone, now), *held.watch.new_events(now)]:
            if event.kind is not None:
                record = held.records.write(event.kind, **event.fields)
                if name in self._live.jobs:
                    attempt_outcome.judged(self._live.jobs[name], record)
            if event.text:
                self._log(f"job {name}: {event.text}")
        for process in held.watch.processes.values():
            if process.over:
                held.ended[process.rank] = process.ended or "killed"
                held.last_gone_time = max(held.last_gone_time, process.gone_time)
        if held.watch.running():
            held.ended = {}
        elif set(held.ended.values()) <= {"left", "completed"}:
            self._release(name, "completed", "", at=held.last_gone_time)
        elif unix_seconds - held.last_gone_time >= RESTART_SECONDS:
            self._release(name, "failed", "its processes were not started again", at=held.last_gone_time)

    def _release(self, name: str, status: str, reason: str, *, at: float = 0.0) -> None:
        held = self._held.pop(name)
        now, unix_seconds = self._clock(), self._unix_clock()
        at = at or unix_seconds
        when = {"time": at, "monotonic_ns": round((now - (unix_seconds - at)) * 1e9)}
        held.records.write(records.JobEnded, status=status, reason=reason, **when)
        held.records.close()
        held.kills.close()
        held.watch.close()
        job = self._live.jobs.get(name)
        if job is not None:
            job.released = when["monotonic_ns"] / 1e9
            job.ending.status = "" if status == "left" else status
            self._live.set_held(job, held=False, now=now)

    def record_notice(self, job: Job, said: notice_file.Notice) -> None:
        """Record a preemption notice for a running job."""
        held = self._held.get(job.name)
        to = held.records if held is not None else self._records(job)
        to.write(records.PreemptionNotice, source=said.source, time=said.time, deadline=said.deadline)
        if held is None:
            to.close()

    def close(self) -> None:
        """Stop watching all jobs. They continue, and the next agent watches them."""
        self._closed = True
        for name in list(self._held):
            self._release(name, "left", "the agent was stopped")


def _works(job: Job) -> bool:
    """Return whether a job that no launcher watches goes on. Ranks that wrote nothing since their launcher ended, ended with it."""
    return any(job.released is None or rank.last_record > job.released + 1.0 for rank in job.running())


def _process(rank: Rank, now: float, unix_seconds: float) -> WatchedProcess:
    step_time = unix_seconds - (now - rank.last_end) if rank.last_end is not None else 0.0
    return WatchedProcess(
        rank.writer,
        rank.rank,
        rank.attempt,
        rank.pid,
        rank.step,
        rank.last_end,
        step_time,
        rank.last_record,
        rank.phase,
        alive_time=unix_seconds - (now - rank.last_record),
        stack_locator=rank.stack_locator,
        world_size=rank.world_size,
    )
