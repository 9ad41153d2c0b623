"""The agent's work, tick by tick: read the spool, keep the live jobs, run the collectors, and ship what is due.

Knows nothing of threads, signals and sockets: `service` calls `tick` once a second and `ship` from a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from tachoscope.preemption.notice_file import Notice
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.hang_rule import least_seconds
from tachoscope_core.records.records import AnyRecord, ShardQuarantined
from tachoscope_core.storage import node_status
from tachoscope_core.storage.ledger_rows import WINDOW_SECONDS
from tachoscope_core.storage.store import Store
from tachoscope_node import agent_metrics as self_families
from tachoscope_node import state_file as saved
from tachoscope_node.checkpoints.verifier import Verifier
from tachoscope_node.collector_set import Collecting
from tachoscope_node.common.boot import boot_id
from tachoscope_node.config.nccl import address
from tachoscope_node.config.settings import Config
from tachoscope_node.gpu.health import failure_cause as host_causes
from tachoscope_node.hang_evidence.collector import EvidenceCollector
from tachoscope_node.hang_evidence.of_jobs import newly_hung
from tachoscope_node.jobs import metrics as live_families
from tachoscope_node.jobs.attempt_outcome import EndedAttempt
from tachoscope_node.jobs.metrics import trainings
from tachoscope_node.jobs.preemption_relay import PreemptionRelay
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.jobs.row_shipper import RowShipper
from tachoscope_node.jobs.shard_quarantine import ShardWatch
from tachoscope_node.jobs.standin_launcher import StandInLauncher
from tachoscope_node.jobs.status import jobs_status
from tachoscope_node.profiling_adapter import profiler_of
from tachoscope_node.rank_views import KnownRanks
from tachoscope_node.services import metrics as live_service_families
from tachoscope_node.spool.agent_records import OwnRecords
from tachoscope_node.spool.follower import Follower
from tachoscope_node.spool.journal import Journal
from tachoscope_node.spool.metric_samples import Samples
from tachoscope_node.spool.owners import Owners
from tachoscope_node.spool.segment import Address, Segment
from tachoscope_node.spool.shipper import Policy, Shipper, due_segments
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family, joined, with_namespaces
from tachoscope_service.metrics.zero_start import ZeroStart

_TICKS_BEFORE_STATUS = 3
"""After a restart: by then who ended while no agent was there is noticed. Before that its silence would look like a hang."""


class Agent:
    """One node's agent. No method raises for what is in the spool or for a store that is away; any thread may call them.

    Args:
        clock: the host's monotonic clock in seconds, the one that records carry. unix_clock: Unix seconds.

    Raises:
        TachoscopeError: state directory or store cannot be opened.
    """

    def __init__(
        self,
        config: Config,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self.log = log
        self._clock = clock
        self._unix_clock = unix_clock
        self.lock = threading.Lock()
        state = config.state_path
        self.journal = Journal(state / "journal.sqlite")
        self._state_file = state / "live.json"
        self._saved = saved.load(self._state_file, boot_id(config.proc))
        self._entries = {(entry.directory, entry.name): entry for entry in self.journal.load()}
        store = Store(config.store_url)
        self.shipper = Shipper(store, self.journal, config.node_name, log, clock=clock)
        self.samples = Samples(state / "samples", store, config.node_name, max_age_seconds=max(config.flush_seconds, 60.0))
        self.owners = Owners(self._saved.owners)
        self.live = self._registry()
        self.keeper = self._standin_launcher()
        self.shards = ShardWatch(config.spool_path, lambda line: log.warning("quarantine", line))
        self._store = store
        self.rows = RowShipper(store, config.node_name, self.owners.known.get)
        self.follower = Follower(
            config.spool_path,
            config.limits,
            remember=self._remember,
            writer_gone=self._writer_gone,
            may_write=self._may_write,
            rejected=self.live.rejected,
        )
        self.records = OwnRecords(config.spool_path, config.node_name)
        self.evidence = self._evidence_collector(store)
        self.verifier = Verifier(state, config.checkpoints, config.limits, self.live, self.records, log, clock=unix_clock)
        self.ranks = KnownRanks(self.live, self.follower, self.lock, clock)
        self.collecting = Collecting(config, self.ranks, self.records.write, log)
        self._notices = PreemptionRelay(self.keeper, lambda line: log.warning(None, line))
        self._newborn = ZeroStart(config.scrape_seconds)
        self.profiler = profiler_of(self, store, clock=unix_clock, monotonic=clock)
        self.errors: Counter[str] = Counter()
        self.ticks = 0
        self.tick_seconds = 0.0
        self.ticked_at: float | None = None
        self._samples_due = self._status_due = 0.0
        self._ticks_before_status = _TICKS_BEFORE_STATUS if self._saved.jobs else 0
        self._says_jobs = True  # what an agent before this one said has to be replaced
        self._changed = True
        self._told: dict[str, int] = {}

    def _registry(self) -> JobRegistry:
        known, owner = self._saved, self.owners.known.get
        return JobRegistry(
            self.config.limits,
            known.jobs,
            known.services,
            known.finished,
            hang_seconds=least_seconds(),
            heard=self._heard,
            owner=owner,
        )

    def _standin_launcher(self) -> StandInLauncher:
        return StandInLauncher(
            self.live,
            self.config.spool_path,
            self.config.node_name,
            hang_seconds=least_seconds(),
            log=lambda line: self.log.warning(None, line),
            kernel_log=self.config.gpu.kernel_log,
            clock=self._clock,
            unix_clock=self._unix_clock,
        )

    def _evidence_collector(self, store: Store) -> EvidenceCollector:
        config = self.config
        return EvidenceCollector(
            store,
            config.node_name,
            proc=config.proc,
            sys=config.sys,
            ras=address(config.nccl.ras),
            log=lambda line: self.log.warning(None, line),
            clock=self._unix_clock,
        )

    def _spool_follower(self) -> Follower:
        return Follower(
            self.config.spool_path,
            self.config.limits,
            remember=self._remember,
            writer_gone=self._writer_gone,
            may_write=self._may_write,
            rejected=self.live.rejected,
        )

    # --- each tick --------------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Read the spool and run the collectors once; return whether more is waiting than one tick may read."""
        now, began = self._clock(), time.perf_counter()
        seconds = min(now - self.ticked_at, 10.0) if self.ticked_at is not None else self.config.tick_seconds
        with self.lock:
            self._changed = self.live.open_window(self._unix_clock()) or self._changed
            try:
                self.follower.scan(now)
            except OSError as error:
                self.errors["spool"] += 1
                self.log.warning("spool", f"could not read the spool {self.config.spool_path}: {error.strerror}")
            self.follower.take_locks()
            self.keeper.before_reading()
            unread = self.follower.read(now, self._apply, seconds)

            def all_read(job: str) -> bool:  # else its next steps may wait to be read
                return self.owners.known.get(job) not in unread

            self.live.settle()
            self._changed = self.live.stand_still(now, all_read, self.follower.writer_lives) or self._changed
            self.keeper.poll(now, all_read)
            self._look_into_hangs()
            self._changed = self.live.count_ends(now, self._ended_by_host, all_read) or self._changed
            notice = self._notice()
            self._notices.pass_on(notice, self.live.jobs.values(), self.follower.directories)
            self._watch_shards(now)
            self._drop_ended_jobs(now)
            self._save()
            self.verifier.tick(self.live.jobs)
            self.ticks += 1
            self.ticked_at = now
        self._tell_of_rejections()
        self.collecting.frame.tick(now)
        self._sample(now)
        self.tick_seconds = time.perf_counter() - began
        return bool(unread)

    def _apply(self, segment: Segment, lines: list[bytes]) -> None:
        self._changed = True
        job = segment.address.job if segment.address else None
        self.live.apply(segment.directory, segment.writer, job, lines, self._clock())
        self.verifier.apply(segment, lines)

    def _notice(self) -> Notice | None:
        return self.collecting.preemption.current if self.collecting.preemption is not None else None

    def _look_into_hangs(self) -> None:
        for hung in newly_hung(self.live.jobs.values(), self.config.spool_path, self.owners.known.get):
            self._changed = True
            self.evidence.begin(hung)

    def _ended_by_host(self, ended: EndedAttempt) -> bool:
        if self._notice() is not None:
            return True
        gpus = self.collecting.gpus
        readings = gpus.readings() if gpus is not None else ()
        since = self._unix_clock() - (self._clock() - ended.since)
        return host_causes.gpu_failed(ended.gpus, since, readings, self.collecting.health.counter.all())

    def _watch_shards(self, now: float) -> None:
        taken, self.live.shard_records = self.live.shard_records, []
        for record in taken:
            self.shards.add_record(record)
        for found in self.shards.decide(now):
            self.records.write(found.job, ShardQuarantined, attempt=found.attempt, **found.fields)
            self.log.warning(f"quarantine {found.job}", found.text)
        for job in self.live.jobs.values():
            job.shards_quarantined = self.shards.listed_count(job.name)
        self.shards.keep_only(self.live.jobs)
        self.records.close_idle()

    def _heard(self, record: AnyRecord) -> None:
        self.keeper.add_record(record)

    def _may_write(self, segment: Segment) -> bool:
        assert segment.address is not None
        job = segment.address.job
        allowed = self.owners.may_write(job, segment.owner, segment.directory)
        if not allowed:
            owner = self.owners.known.get(job, "another")
            why = f"job {job} belongs to {owner}; records of {segment.owner} in {segment.directory} are not taken"
            self.log.warning(f"owner {segment.directory}", why)
        return allowed

    def _writer_gone(self, segment: Segment) -> None:
        if segment.address is not None:
            self._changed = True
            self.live.writer_gone(segment.address.job, segment.writer, self._clock())
            self.keeper.writer_gone(segment.address.job, segment.writer)

    def _remember(self, segment: Segment) -> bool:
        """Restore the position of a segment from journal and state; return whether they have it."""
        position = self._saved.positions.get(saved.position_key(segment))
        known = position is not None and position.inode == segment.inode
        if known and position is not None:
            segment.applied, segment.address = position.applied, position.address
        entry = self._entries.pop(segment.key, None)
        if entry is not None and entry.inode == segment.inode:
            segment.read = segment.shipped = entry.shipped
            segment.pending = entry.pending
            segment.address = Address(entry.job, entry.attempt, entry.time)
            segment.applied = max(segment.applied, entry.shipped)
            return True
        return known

    def _drop_ended_jobs(self, now: float) -> None:
        done = self.follower.drop_done(now, self.config.spool_retention_seconds)
        gone = []
        if self.ticks == 0:  # what was removed while the agent was away
            gone = [key for key in self._entries if not (self.config.spool_path / key[0] / key[1]).exists()]
            self.live.only({segment.writer for segment in (*self.follower.segments(), *done)}, now)
        self.live.forget(now, self.config.retention_seconds)
        followed = {segment.address.job for segment in self.follower.segments() if segment.address is not None}
        self.owners.keep_only(followed | self.live.jobs.keys() | {service.name for service in self.live.services.services.values()})
        self._changed = self._changed or bool(done)
        try:
            self.journal.remove_segments([*gone, *(segment.key for segment in done)])
        except TachoscopeError as error:
            self.errors["journal"] += 1
            self.log.warning("journal", str(error))

    def _save(self) -> None:
        """Save the state before it is visible, so that counters never decrease."""
        if not self._changed:
            return
        positions = {
            saved.position_key(segment): saved.Position(segment.inode, max(segment.read, segment.applied), segment.address)
            for segment in self.follower.segments()
        }
        self._saved.jobs, self._saved.services, self._saved.positions = self.live.jobs, self.live.services.services, positions
        try:
            saved.save(self._state_file, self._saved)
            self._changed = False
        except TachoscopeError as error:
            self.errors["state"] += 1
            self.log.warning("state", str(error))

    def _tell_of_rejections(self) -> None:
        for reason, count in self.live.rejected.items():
            if count > self._told.get(reason, 0):
                self.log.warning(f"rejected {reason}", f"{count} lines or files of the spool rejected so far: {reason}")
                self._told[reason] = count

    def _sample(self, now: float) -> None:
        if not self.config.sample_seconds or now < self._samples_due:
            return
        following = self._samples_due + self.config.sample_seconds
        self._samples_due = following if following > now else now + self.config.sample_seconds
        try:
            self.samples.append(self.exported(), now=now, unix_seconds=self._unix_clock())
        except TachoscopeError as error:
            self.errors["samples"] += 1
            self.log.warning("samples", str(error))

    # --- shipping ---------------------------------------------------------------------------------------------------------

    def ship(self, *, everything: bool = False) -> int:
        """Ship what is due, or everything; return the number of ranges shipped."""
        now = self._clock()
        with self.lock:
            segments = self.follower.to_ship()
            for segment in segments:
                if segment.address is not None and (job := self.live.jobs.get(segment.address.job)) is not None:
                    job.rows.to_ship = True
            if not everything:
                policy = Policy(self.config.flush_seconds, self.config.flush.bytes)
                segments = due_segments(segments, policy, now)
        if not self.shipper.failing:
            # Before the records: a run whose last records are shipped is over, and who waited for that may ask for the list.
            self.shards.sync(self._store, self.config.node_name, now, anyway=everything)
        count = self.shipper.ship(segments, self.lock, anyway=everything)
        if not self.shipper.failing:
            self._say_what_runs(now, anyway=everything)
            self._ship_rows(now, anyway=everything)
            try:
                self.samples.ship()
            except (TachoscopeError, OSError) as error:
                self.errors["samples"] += 1
                self.log.warning("ship samples", str(error))
        return count

    def _say_what_runs(self, now: float, *, anyway: bool) -> None:
        """Write the node's status to the store when due; without jobs only once."""
        every = node_status.every_seconds(self.config.flush_seconds)
        if (now < self._status_due or self.ticks < self._ticks_before_status) and not anyway:
            return
        self._status_due = now + every
        with self.lock:
            jobs = jobs_status(
                self.live.jobs.values(),
                self.owners.known.get,
                now=self._clock(),
                unix_seconds=self._unix_clock(),
                least_hang_seconds=least_seconds(),
            )
        booted_at, xids = self.collecting.health.since_boot()
        if not jobs and not xids and not self._says_jobs:
            return
        status = node_status.NodeStatus(
            self.config.node_name, self._unix_clock(), every, self.config.flush_seconds, jobs, booted_at, xids
        )
        try:
            node_status.write(self._store, status)
            self._says_jobs = bool(jobs or xids)
        except TachoscopeError as error:
            self.errors["node"] += 1
            self.log.warning("node status", str(error))

    def _ship_rows(self, now: float, *, anyway: bool) -> None:
        try:
            with self.lock:
                jobs = list(self.live.jobs.values())
            flush, unix = self.config.flush_seconds, self._unix_clock()
            shipped = self.rows.ship(jobs, self.lock, now, flush, unix_seconds=unix, anyway=anyway)
            self._changed = self._changed or shipped
        except TachoscopeError as error:
            self.errors["node"] += 1
            self.log.warning("ledger rows", str(error))

    def reconfigure(self, config: Config) -> None:
        """Go on with other limits, times and device filters."""
        with self.lock:
            self.config = config
            self.live.limits = self.follower.limits = config.limits
            self.verifier.reconfigure(config.checkpoints, config.limits)
        self.collecting.reconfigure(config)

    def finish(self, deadline: float) -> bool:
        """Read and ship all that is left until the deadline; return whether all of it is in the store."""
        self.samples.finish()
        with self.lock:
            self.keeper.close()
        self.shards.flush()
        self.verifier.close()
        while self.tick() and self._clock() < deadline:
            pass
        with self.lock:
            self.live.open_window(self._unix_clock() + WINDOW_SECONDS)  # so that the rows of this one go, too
        while self._clock() < deadline and self.ship(everything=True):
            pass
        with self.lock:
            left = self.follower.to_ship()
            self._drop_ended_jobs(self._clock())
            self._save()
        return not left

    def close(self) -> None:
        self.profiler.close()
        self.verifier.close()
        self.collecting.close()
        self.records.close()
        with self.lock:
            self.follower.close()
            self.journal.close()

    # --- what others read -------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Return all metrics of this moment; thread-safe."""
        now = self._clock()
        with self.lock:
            jobs = live_families.families(
                trainings(self.live.jobs.values(), self.live.services), node=self.config.node_name, now=now
            )
            services = live_service_families.families(self.live.services.services.values())
            own = self_families.families(self, now)
            verified = self.verifier.families(self.live.jobs)
            ended = live_families.finished(self.live.finished.counts)
        return self._newborn.with_zero_starts(
            joined([*jobs, ended, *services, *verified, *self.collecting.frame.families(), *own]), now
        )

    def exported(self) -> list[Family]:
        """Return all metrics of this moment as they leave the agent: those of jobs and services with their namespaces."""
        return with_namespaces(self.families(), self._namespace_of)

    def _namespace_of(self, workload: str) -> str:
        owner = self.owners.known.get(workload)
        if owner is not None:
            return owner.namespace
        return next((server.namespace for server in self.config.servers if server.name == workload), "")

    def health(self) -> dict[str, object]:
        """Return the verdicts on the node's GPUs, for people and programs."""
        return self.collecting.health.page(self.config.node_name)
