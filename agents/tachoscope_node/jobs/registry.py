"""What is known of the jobs that run on this node, from their records: the state behind the metrics.

It is plain data, saved at every tick before it is shown: counters go on after a restart of the agent, and no record counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from tachoscope_core.jobs.hang_rule import LEAST_SECONDS, excused_seconds
from tachoscope_core.jobs.memory_outlook import MemoryOutlook
from tachoscope_core.metrics.training import CHECKPOINT_BACKGROUND, CHECKPOINT_BLOCKING, STEP_DATA_WAIT, STEP_SECONDS
from tachoscope_core.owner import Owner
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine
from tachoscope_node.common.shares import has_room
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs import attempt_outcome, open_steps
from tachoscope_node.jobs import time_accounting as account
from tachoscope_node.jobs.attempt_outcome import EndedAttempt, Finished
from tachoscope_node.jobs.integrity_counts import Integrity
from tachoscope_node.jobs.ledger_windows import close_windows, note_row, window_of
from tachoscope_node.jobs.state import RECENT_STEPS, Job, Rank, Rows, layout_of
from tachoscope_node.jobs.step_attribution import Clocks, attribute, data_wait_seconds
from tachoscope_node.jobs.step_baseline import Regularity
from tachoscope_node.services import registry as live_services
from tachoscope_node.services.registry import ServiceRegistry
from tachoscope_node.services.state import Service
from tachoscope_node.spool.owners import AGENT_DIRECTORY

MAX_SHARDS = 20
MAX_SHARD_RECORDS = 10_000
"""Kept from one look at the spool to the next."""
MAX_RANK = 1 << 20
MAX_DROPPED = 1 << 40
_MEASURED = records.Heartbeat | records.MemorySampled | records.CollectiveDone | records.UpdatesApplied
TAKEN_OVER_SECONDS = 60.0
"""Another process may say that it is a rank when the one before ended, or wrote nothing for this long."""


__all__ = ["Job", "JobRegistry", "Rank"]


class JobRegistry:
    """The jobs, and how many records were taken and left out, by reason.

    Args:
        owner: says whom a job belongs to; None: it is not known.

    Attributes:
        services: what serves requests, and is not a job. shard_records: about data shards, taken since somebody last emptied it.
        finished: attempts of jobs that ended.
    """

    def __init__(
        self,
        limits: Limits,
        jobs: dict[str, Job] | None = None,
        services: dict[str, Service] | None = None,
        finished: Finished | None = None,
        *,
        hang_seconds: float = LEAST_SECONDS,
        heard: Callable[[records.AnyRecord], None] = lambda _: None,
        owner: Callable[[str], Owner | None] = lambda _: None,
    ) -> None:
        self.limits = limits
        self._owner = owner
        self._hang_seconds = hang_seconds
        self._heard = heard
        self.jobs: dict[str, Job] = jobs if jobs is not None else {}
        self.records = 0
        self.rejected: Counter[str] = Counter()
        self.services = ServiceRegistry(self.rejected, services, owner=owner)
        self.shard_records: list[records.ShardRead | records.ShardFailed] = []
        self._shard_records_held: Counter[Owner | None] = Counter()
        self.finished = finished if finished is not None else Finished()
        self._unix_seconds = 0.0

    def open_window(self, unix_seconds: float) -> bool:
        """Close the ledger's windows that are over at a time, before what came since is read; say whether there are new rows."""
        self._unix_seconds = unix_seconds
        return close_windows(self.jobs.values(), window_of(unix_seconds))

    def apply(self, directory: str, writer: str, job: str | None, lines: list[bytes], now: float) -> None:
        """Take lines of one writer, of which `job` is the job that its first record names."""
        for record in records.decode_lines(b"\n".join(lines)) or self._decoded(lines):
            self.records += 1
            if record.job != job or record.writer != writer:
                self.rejected["identity"] += 1
                continue
            try:
                self._add_record(directory, record, now)
            except Exception:  # of this record: those after it, and other jobs, must not be lost with it
                self.rejected["fault"] += 1

    def _decoded(self, lines: list[bytes]) -> Iterator[records.AnyRecord]:
        """Yield the records among lines that are not all records."""
        for line in filter(None, lines):
            try:
                yield records.decode(line)
            except records.UnknownKindError:
                self.rejected["unknown_kind"] += 1
            except records.MalformedRecordError:
                self.rejected["malformed"] += 1

    def _add_record(self, directory: str, record: records.AnyRecord, now: float) -> None:
        # The same clock, on the same host: one in the future, or before the host's start, is forged.
        at = max(min(record.monotonic_ns / 1e9, now), 0.0)
        is_step = isinstance(record, records.StepDone)  # as nearly all are: these ask no more than they must
        if not is_step and self._of_no_job(directory, record, at, now):
            return
        job = self.jobs.get(record.job) or self._new_job(record.job, now)
        if job is None:
            return
        if record.rank == records.LAUNCHER_RANK:
            if not directory.startswith(AGENT_DIRECTORY):
                job.directory = directory
                self._launcher(job, record, at, now)
            return
        if not is_step and isinstance(record, records.ShardRead | records.ShardFailed):
            self._shard(job, record)
            return
        rank = job.ranks.get(record.rank)
        if rank is None or rank.writer != record.writer:
            rank = self._other_process(job, rank, directory, record, now)
        if rank is None:
            return
        self._heard(record)
        rank.last_record = max(rank.last_record, at)
        if isinstance(record, records.StepDone):
            self._step(job, rank, record, at)
        else:
            self._other(job, rank, record, at, now)

    def _of_no_job(self, directory: str, record: records.AnyRecord, at: float, now: float) -> bool:
        """Take a record of a service, and skip one of an agent; return whether it was one of these."""
        if directory.startswith(AGENT_DIRECTORY) and isinstance(record, records.CollectiveDone):
            return True  # what NCCL told this agent, or one before it, of a rank: no word of the rank itself
        of_service = live_services.of_service(record)
        if of_service is not None:
            self.services.add_record(directory, of_service, at, now, self.limits)
        return of_service is not None

    def _other(self, job: Job, rank: Rank, record: records.AnyRecord, at: float, now: float) -> None:
        """Take what a rank says beside its steps."""
        job.events += not isinstance(record, _MEASURED)
        if isinstance(record, records.Heartbeat | records.JobEnded):
            rank.dropped = max(rank.dropped, min(record.dropped_total, MAX_DROPPED))
        match record:
            case records.JobStarted():
                rank.pid, rank.world_size, rank.device = record.pid, record.world_size, record.device[:32]
                rank.gpu_uuid, rank.pod_uid = record.gpu_uuid[:96], record.pod_uid[:64]
                rank.stack_locator = record.stack_locator[:1024]
                rank.layout = layout_of(record)
                rank.began = account.process_began(record, at)
                job.scheduler_job = record.lineage.get("slurm_job", "")[:64]
            case records.Heartbeat():
                account.heard_of(job, rank, record.phase, at)
                rank.clocks.see(record)
            case records.MemorySampled():
                rank.memory.add_sample(record, at)
            case records.CheckpointSaved():
                self._checkpoint(job, record, at)
            case records.CheckpointRestored():
                if not account.restored(job, rank, record, at):
                    self.rejected["implausible"] += 1
            case records.IntegrityEvent():
                job.integrity = job.integrity or Integrity()
                job.integrity.add_event(record)
            case records.CompilationDone():
                job.recompilations += record.recompiled and not (record.backward or record.limit)
            case records.WorkerFailed():
                job.worker_failures += 1
            case records.JobEnded():
                self._end(job, rank, "failed" if record.status == "failed" else "left", at, now)

    def _shard(self, job: Job, record: records.ShardRead | records.ShardFailed) -> None:
        """Take what a reader of data shards says: perhaps a loader worker, so its writer is not the rank's process."""
        if isinstance(record, records.ShardFailed):
            job.events += 1
            _count_shard(job, record.shard[:128])
        if not self.shard_records:
            self._shard_records_held.clear()
        owner = self._owner(job.name)
        if has_room(self._shard_records_held, owner, MAX_SHARD_RECORDS):
            self._shard_records_held[owner] += 1
            name = record.shard[: shard_quarantine.MAX_NAME]  # what waits is bounded in bytes as well
            self.shard_records.append(record if name == record.shard else msgspec.structs.replace(record, shard=name))
        else:
            self.rejected["over_limit"] += 1

    def _launcher(self, job: Job, record: records.AnyRecord, at: float, now: float) -> None:
        if isinstance(record, records.JobStarted):
            if job.ending.status:  # of the launcher before, which has ended
                self._close(job, at)
            job.ending.begin(at)
            job.launched, job.launcher, job.idle_since, job.released = at, record.writer, None, None
        elif job.launcher == record.writer:
            attempt_outcome.judged(job, record)
            if isinstance(record, records.JobEnded):
                job.ending.status, job.ending.reason = record.status, record.reason
                job.launcher, job.released = "", at
                account.command_ended(job, at)
                self._idle_if_ended(job, now)

    def count_ends(
        self, now: float, by_host: Callable[[EndedAttempt], bool], all_read: Callable[[str], bool] = lambda _: True
    ) -> bool:
        """Count ended attempts; return whether anything changed.

        Args:
            by_host: returns whether the node itself was at fault. all_read: returns whether all records of a job were read.
        """
        ended = [job for job in self.jobs.values() if job.ending.open and job.idle_since is not None and all_read(job.name)]
        for job in ended:
            self._close(job, job.idle_since or now)
        return self.finished.count(now, by_host) or bool(ended)

    def _close(self, job: Job, at: float) -> None:
        ended = attempt_outcome.close(job, at)
        if ended is not None:
            self.finished.waiting.append(ended)

    def set_held(self, job: Job, *, held: bool, now: float) -> None:
        """Note whether this agent watches a job."""
        job.held = held
        if held:
            job.idle_since = None
        self._idle_if_ended(job, now)

    def _idle_if_ended(self, job: Job, now: float) -> None:
        if not job.launcher and not job.held and not job.running():
            job.idle_since = now

    def _new_job(self, name: str, now: float) -> Job | None:
        if not has_room(Counter(map(self._owner, self.jobs)), self._owner(name), self.limits.jobs):
            self.rejected["over_limit"] += 1
            return None
        rows = Rows(window_of(self._unix_seconds))
        job = self.jobs[name] = Job(name, idle_since=now, began=int(self._unix_seconds), rows=rows)
        return job

    def _other_process(self, job: Job, rank: Rank | None, directory: str, record: records.AnyRecord, now: float) -> Rank | None:
        """Return the rank that a record of a new process is of, or None if it cannot be: its number, or that another live process
        has it.
        """
        if not 0 <= record.rank < MAX_RANK:
            self.rejected["implausible"] += 1
            return None
        if rank is None:
            held: Counter[Owner | None] = Counter()
            for other in self.jobs.values():
                held[self._owner(other.name)] += len(other.ranks)
            if not has_room(held, self._owner(job.name), self.limits.ranks):
                self.rejected["over_limit"] += 1
                return None
            job.ranks[record.rank] = rank = Rank(record.rank, record.writer, directory)
        elif not rank.ended and rank.directory != directory and now - rank.last_record < TAKEN_OVER_SECONDS:
            self.rejected["identity"] += 1
            return None
        open_steps.settle_earlier(job, rank, record.attempt)
        if record.attempt != rank.attempt:
            note_row(job, rank)
        account.next_process(job, rank, record.attempt)
        rank.writer, rank.directory, rank.attempt = record.writer, directory, record.attempt
        rank.ended, rank.last_end, rank.clocks, job.hang = "", None, Clocks(), None
        rank.memory = MemoryOutlook()
        rank.dropped_before, rank.dropped = rank.dropped_before + rank.dropped, 0
        if job.idle_since is not None:  # nothing ran until now: perhaps it is another training by the same name
            job.regularity = Regularity()
            job.idle_since = None
        job.ending.begin(min(record.monotonic_ns / 1e9, now))
        return rank

    def _step(self, job: Job, rank: Rank, step: records.StepDone, at: float) -> None:
        if not records.plausible(step):
            self.rejected["implausible"] += 1
            return
        rest, new = account.step_done(job, rank, step, at, self._hang_seconds)
        excused = excused_seconds(step.phase_seconds)
        job.pace.add(step.step, step.wall_seconds, excused)
        job.ending.since = max(job.ending.since, at)
        rank.steps += 1
        seconds = records.step_seconds(step)
        rank.step, rank.step_seconds = step.step, seconds
        rank.slowest = max(rank.slowest, seconds)
        data_wait = data_wait_seconds(step)
        rank.recent = [*rank.recent[1 - RECENT_STEPS :], (seconds, data_wait)]
        job.step_seconds.observe(seconds, STEP_SECONDS.buckets)
        if not new:
            rank.seconds["lost_work"] += rest.wall_seconds
            return
        job.step_data_wait.observe(
            min(data_wait / step.wall_seconds, 1.0) if step.wall_seconds > 0.0 else 0.0, STEP_DATA_WAIT.buckets
        )
        part = attribute(rest, rank.clocks, together=rank.world_size > 1)
        for state, seconds in part.states.items():
            rank.seconds[state] += seconds
        open_steps.add_step(job, rank, step, part, excused)

    def settle(self) -> None:
        """Settle steps that no other rank of this node will join. Called at the end of a tick: a rank's end may be read before
        another's first record.
        """
        for job in self.jobs.values():
            open_steps.settle(job)

    def _checkpoint(self, job: Job, saved: records.CheckpointSaved, at: float) -> None:
        if not (0.0 <= saved.blocking_seconds < 86400.0 and 0.0 <= saved.background_seconds < 86400.0):
            self.rejected["implausible"] += 1
            return
        job.checkpoint_blocking.observe(saved.blocking_seconds, CHECKPOINT_BLOCKING.buckets)
        if saved.background_seconds:
            job.checkpoint_background.observe(saved.background_seconds, CHECKPOINT_BACKGROUND.buckets)
        job.last_checkpoint = max(at, job.last_checkpoint or 0.0)
        job.progress.save(saved.attempt, saved.step, saved.reference[:1024])
        job.ending.told = job.ending.told or saved.after_notice

    def writer_gone(self, job: str, writer: str, now: float) -> None:
        """A process is gone. Without an end record it was killed."""
        self.services.writer_gone(job, writer, now)
        found = self.jobs.get(job)
        if found is None:
            return
        if found.launcher == writer:
            found.launcher, found.released = "", now
            self._idle_if_ended(found, now)
        for rank in found.running():
            if rank.writer == writer:
                self._end(found, rank, "killed", rank.last_record, now)

    def _end(self, job: Job, rank: Rank, how: str, at: float, now: float) -> None:
        rank.ended = how
        account.account_end(job, rank, at, failed=how != "left")
        if how != "left":
            job.worker_failures += 1
        self._idle_if_ended(job, now)

    def stand_still(
        self, now: float, all_read: Callable[[str], bool] = lambda _: True, lives: Callable[[str], bool] = lambda _: True
    ) -> bool:
        """Add hang time of ranks whose jobs are fully read; return whether anything changed.

        Args:
            lives: returns whether a writer lives. One that ended while no agent was there is noticed only after a second, and does
                not hang until then.
        """
        standing = [
            (rank, hung)
            for job in self.jobs.values()
            if all_read(job.name)
            for rank in job.running()
            if rank.last_end is not None and (hung := account.hung_until(job, rank, now, self._hang_seconds)) > rank.hung
        ]
        hanging = [(rank, hung) for rank, hung in standing if lives(rank.writer)]
        for rank, hung in hanging:
            account.hangs(rank, hung)
        return bool(hanging)

    def only(self, writers: set[str], now: float) -> None:
        """End what writes no longer: whose files went while the agent was away, shipped by `tachoscope run`, is over. How it ended
        is not known, so its end is not counted.
        """
        self.services.only(writers, now)
        for job in self.jobs.values():
            gone = [rank for rank in job.running() if rank.writer not in writers]
            if not gone:
                continue
            job.ending.open = False
            if job.launcher not in writers:
                job.launcher, job.released = "", now
            for rank in gone:
                self._end(job, rank, "left", rank.last_record, now)

    def forget(self, now: float, retention_seconds: float) -> None:
        self.services.drop_ended(now, retention_seconds)
        for name, job in list(self.jobs.items()):
            if job.idle_since is not None and now - job.idle_since > retention_seconds:
                del self.jobs[name]


def _count_shard(job: Job, name: str) -> None:
    shard = name if name in job.shard_failures or len(job.shard_failures) < MAX_SHARDS else "other"
    job.shard_failures[shard] = job.shard_failures.get(shard, 0) + 1
