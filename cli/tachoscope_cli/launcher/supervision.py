"""What `tachoscope run` sees of its command from outside, and writes down: start, end, failures, hangs, restarts, notices."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from tachoscope import guard
from tachoscope.failures import fault_stack
from tachoscope.lineage import collect as lineage
from tachoscope.lineage import tracker_runs
from tachoscope.preemption import notice_file
from tachoscope.supervisor.job_watch import JobEvent, JobWatch
from tachoscope.supervisor.records import OutsideRecords
from tachoscope.supervisor.spool_reader import RunReader
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.jobs.hang_rule import least_seconds
from tachoscope_core.jobs.shared_ranks import shared_ranks
from tachoscope_core.owner import of_this_process
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from tachoscope_node.hang_evidence.collector import EvidenceCollector, HungJob, HungRank
from tachoscope_node.jobs.shard_quarantine import ShardWatch
from tachoscope_node.memory.kill_watch import KillWatch

EVIDENCE_SECONDS = 5.0
"""How long the end of a run waits for the evidence of a hang to be stored."""
_SIGNALS = {int(number) for number in signal.Signals}


class Follower(Protocol):
    """What takes the records of a run."""

    def add_record(self, record: records.AnyRecord) -> None: ...


class Supervision:
    """Watches the processes of one run. No method raises for what lies in the spool, or for a spool that is gone.

    Args:
        shards: keeps the quarantine list of data shards; None: the node's agent does.
        evidence: collects what a hang leaves; None: the node's agent does.
        followers: take each record, such as what wants another interval of checkpoints.
    """

    def __init__(
        self,
        directory: Path,
        job: str,
        attempt: int,
        shards: ShardWatch | None = None,
        evidence: EvidenceCollector | None = None,
        followers: Sequence[Follower] = (),
    ) -> None:
        self._directory = directory
        self._job = job
        self._shards = shards
        self._evidence = evidence
        self._followers = followers
        self._records = OutsideRecords(directory, job, attempt)
        self._reader = RunReader(directory, self.writer)
        self._watch = JobWatch(least_seconds())
        self._kills = KillWatch()
        self._facts = job_notes.Facts()
        self._interrupted = False
        self._hung_since: float | None = None
        self._tracked: list[tuple[int, int, dict[str, str]]] = []

    @property
    def writer(self) -> str:
        return self._records.writer

    def started(self, command: Sequence[str]) -> None:
        self._note(records.JobStarted, world_size=0, pid=os.getpid(), lineage=lineage.launch(command))

    @property
    def tracker_runs(self) -> dict[str, str]:
        """What the lowest rank of the newest attempt said of its runs of experiment trackers."""
        return max(self._tracked, key=itemgetter(0, 1), default=(0, 0, {}))[2]

    def poll(self, *, last: bool = False) -> None:
        """Look once at all processes of the run, and write down what happened since; `last`: it is the last look."""
        now, unix_seconds = time.monotonic(), time.time()
        # Who is gone is asked before reading: then its last words are read, and it comes before those whom its end brought down.
        ended, closed = self._watch.exits.newly_exited(), self._reader.newly_exited()
        # One that was never followed was gone before it could be: earlier than those that were.
        early = [writer for writer in closed if writer not in ended and not self._watch.exits.follows(writer)]
        gone = [*early, *ended, *closed]
        for writer in gone:
            self._watch.add_exit(writer, unix_seconds)
        for line in self._reader.lines():
            try:
                record = records.decode(line)
            except (records.UnknownKindError, records.MalformedRecordError):
                continue  # the analysis counts them
            self._watch.add_record(record, now, unix_seconds)
            self._learn_of_memory(record)
            self._facts.add_record(record)
            if isinstance(record, records.JobStarted | records.JobEnded) and (runs := tracker_runs.runs_in(record.lineage)):
                self._tracked.append((record.attempt, -record.rank, runs))
            if self._shards is not None:
                self._shards.add_record(record)
            for follower in self._followers:
                follower.add_record(record)
        for writer in gone:  # one that came and went between two looks was not known before
            self._watch.add_exit(writer, unix_seconds)
        self._watch.mark_alive(unix_seconds)
        for event in self._kills.new_events(gone, now, last=last):
            self._report_event(event)
        for event in self._watch.new_events(now):
            self._report_event(event)
        self._hung_since = (self._hung_since or now) if self._watch.hangs else None
        for found in self._shards.decide(now) if self._shards is not None else ():
            self._report_event(JobEvent(records.ShardQuarantined, found.fields, found.text))

    @property
    def hung_seconds(self) -> float:
        """For how long the job has been known to hang; 0: it does not."""
        return 0.0 if self._hung_since is None else time.monotonic() - self._hung_since

    def wait_for_evidence(self) -> None:
        """Wait briefly until the evidence of a hang is stored, as far as this process collects it."""
        if self._evidence is not None:
            self._evidence.wait(EVIDENCE_SECONDS)

    def _learn_of_memory(self, record: records.AnyRecord) -> None:
        if isinstance(record, records.JobStarted) and self._watch.exits.follows(record.writer):  # its pid is one of here
            self._kills.add_rank(record.writer, record.rank, record.attempt, record.pid)
        self._kills.add_record(record)

    def _report_event(self, event: JobEvent) -> None:
        if event.kind is not None:
            self._note(event.kind, **event.fields)
        if event.text:
            guard.print_line(event.text)
        if event.kind is records.WorkerHung and self._evidence is not None:
            self._evidence.begin(self._hung(event.fields))

    def _hung(self, fields: dict[str, Any]) -> HungJob:
        running = self._watch.running()
        attempt = max((process.attempt for process in running), default=0)
        ranks = [
            HungRank(one.rank, one.writer, one.pid, one.step, one.phase, one.stack_locator)
            for one in sorted(running, key=lambda process: process.rank)
            if one.attempt == attempt
        ]
        failed_rank = fields.get("failed_rank", records.LAUNCHER_RANK)
        owner = of_this_process()
        return HungJob(self._job, attempt, fields["since_time"], fields["step"], failed_rank, fields["why"], ranks, owner)

    def _note(self, kind: type[records.Record], **fields: Any) -> None:
        """Write a record, and keep what the final summary needs."""
        self._facts.add_record(self._records.write(kind, **fields))

    def lines(self, *, root_known: bool = False) -> list[str]:
        """Return what is to be said of the job once it ended: how it failed, and what bounds its records, each with the way out.

        Args:
            root_known: how it failed is said by others.
        """
        if not any(seen.steps for seen in self._facts.of_attempt()):
            return [] if root_known else [f"no training step was seen: {job_notes.why_no_steps(self._facts)}"]
        failed = "" if self._interrupted or root_known else job_notes.first_failure(self._facts)
        found = job_notes.data_notes(self._facts.of_attempt(), shared_ranks(self._facts.claims()))
        return [*([failed] if failed else []), *job_notes.texts(found)]

    def noticed(self, grace_seconds: float) -> float:
        """Note that this process was told to end, and leave word of it for the command.

        Returns:
            How many seconds the command has to end by itself: none unless a process of it asks for notices.
        """
        at = time.time()
        asks = (self._directory / spool.ASKS).exists()
        seconds = grace_seconds if asks else 0.0
        said = notice_file.Notice("sigterm", at, at + seconds)
        self._records.write(records.PreemptionNotice, time=at, source=said.source, deadline=said.deadline)
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return 0.0
        try:
            left = notice_file.leave(said, directory)
        finally:
            os.close(directory)
        if not asks:
            guard.print_line("SIGTERM received and sent to the command, which does not call tachoscope.preempted()")
        if asks and left:
            guard.print_line(f"SIGTERM received; the command has {seconds:g} s to save a checkpoint and exit")
        return seconds if left else 0.0

    def interrupted(self) -> None:
        self._interrupted = True

    def command_ended(self, code: int) -> None:
        """Note how the command ended, and let go of its processes."""
        self.poll(last=True)
        reason = ""
        if code:
            reason = (
                f"killed by {signal.Signals(code - 128).name}" if code > 128 and code - 128 in _SIGNALS else f"exit code {code}"
            )
            if self._interrupted:
                reason = f"{records.INTERRUPTED} ({reason})"
        for pid, fault in fault_stack.take_all(self._directory):  # of a process that torchrun did not start
            if fault.place.location:
                self._note(
                    records.ProcessExited,
                    exited_pid=pid,
                    exited_rank=self._rank_of(pid),
                    exit_code=_as_waited(code),
                    **fault.fields,
                )
        loaded = [name for name, mark in spool.LOADED.items() if (self._directory / mark).exists()]
        self._note(records.JobEnded, status="failed" if code else "completed", reason=reason, exit_code=code, loaded=loaded)
        self.wait_for_evidence()
        self._reader.close()
        self._kills.close()
        self._watch.close()
        self._records.close()

    def _rank_of(self, pid: int) -> int:
        """Return the rank of a process; -1: it said none."""
        return next((process.rank for process in self._watch.processes.values() if process.pid == pid), records.LAUNCHER_RANK)


def _as_waited(code: int) -> int:
    """Return an exit code as a parent gets it, where a signal is a negative number, of one as a shell gives it."""
    return 128 - code if code > 128 and code - 128 in _SIGNALS else code
