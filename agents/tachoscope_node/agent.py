"""The agent's work, tick by tick: read the spool, keep the live jobs, run the collectors, and ship what is due.

Knows nothing of threads, signals and sockets: `service` calls `tick` once a second and `ship` from a thread of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

from tachoscope.job_watch import hang_seconds
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import AnyRecord, ShardQuarantined
from tachoscope_core.store import Store
from tachoscope_node import host_causes, live_families, live_service_families, saved, self_families
from tachoscope_node.collectors.all import gpu_collector, host_collectors
from tachoscope_node.collectors.collector import Collector
from tachoscope_node.collectors.filters import DeviceFilter
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.config import Config
from tachoscope_node.endings import Ended
from tachoscope_node.families import Family, joined
from tachoscope_node.follow import Follower
from tachoscope_node.gpu.dcgm_xids import not_counted_yet
from tachoscope_node.gpu.health_watch import HealthWatch
from tachoscope_node.gpu.joined import GpuSource, sources
from tachoscope_node.gpu.pods import PodsCollector, placed
from tachoscope_node.gpu.workloads import Rank
from tachoscope_node.journal import Journal
from tachoscope_node.keeper import Keeper
from tachoscope_node.live import Live
from tachoscope_node.live_services import trainings
from tachoscope_node.logs import Log
from tachoscope_node.nccl.collector import NcclCollector
from tachoscope_node.nccl.groups import Member
from tachoscope_node.nccl.ras import RasCollector
from tachoscope_node.nccl.settings import address
from tachoscope_node.newborn import Newborn
from tachoscope_node.notices import Notices
from tachoscope_node.own_records import OwnRecords
from tachoscope_node.preemption import PreemptionCollector
from tachoscope_node.profiled import profiler_of
from tachoscope_node.samples import Samples
from tachoscope_node.segment import Address, Segment
from tachoscope_node.servers import ServersCollector
from tachoscope_node.shard_watch import ShardWatch
from tachoscope_node.shipper import Policy, Shipper, due
from tachoscope_node.verifier import Verifier


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
        self._saved = saved.load(self._state_file, saved.boot_id(config.proc))
        self._entries = {(entry.directory, entry.name): entry for entry in self.journal.load()}
        store = Store(config.store_url)
        self.shipper = Shipper(store, self.journal, config.node_name, log, clock=clock)
        self.samples = Samples(state / "samples", store, config.node_name, max_age_seconds=max(config.flush_seconds, 60.0))
        least = hang_seconds()
        known = self._saved
        self.live = Live(config.limits, known.jobs, known.services, known.finished, hang_seconds=least, heard=self._heard)
        self.keeper = Keeper(
            self.live,
            config.spool_path,
            config.node_name,
            hang_seconds=least,
            log=lambda line: log.warning(None, line),
            clock=clock,
            unix_clock=unix_clock,
        )
        self.shards = ShardWatch(config.spool_path, lambda line: log.warning("quarantine", line))
        self._store = store
        self.follower = Follower(
            config.spool_path, config.limits, remember=self._remember, writer_gone=self._writer_gone, rejected=self.live.rejected
        )
        self.records = OwnRecords(config.spool_path, config.node_name)
        self.verifier = Verifier(state, config.checkpoints, config.limits, self.live, self.records, log, clock=unix_clock)
        self._health = HealthWatch(state, config.proc, log)
        self.gpus = self._gpus(config)
        self._preemption = self._asks_for_preemption(config)
        self._servers = self._watched_servers(config)
        self._nccl = self._inspected(config)
        self._ras = self._asked_ras(config)
        self._notices = Notices(self.keeper, lambda line: log.warning(None, line))
        self._newborn = Newborn()
        self.frame = self._frame(config)
        self.profiler = profiler_of(self, store, clock=unix_clock, monotonic=clock)
        self.errors: Counter[str] = Counter()
        self.ticks = 0
        self.tick_seconds = 0.0
        self.ticked_at: float | None = None
        self._samples_due = 0.0
        self._changed = True
        self._told: dict[str, int] = {}

    # --- each tick --------------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Look at the spool and the host once; say whether more waits to be read than one tick may take."""
        now, began = self._clock(), time.perf_counter()
        seconds = min(now - self.ticked_at, 10.0) if self.ticked_at is not None else self.config.tick_seconds
        with self.lock:
            try:
                self.follower.scan(now)
            except OSError as error:
                self.errors["spool"] += 1
                self.log.warning("spool", f"could not read the spool {self.config.spool_path}: {error.strerror}")
            self.follower.take_locks()
            self.keeper.before_reading()
            more = self.follower.read(now, self._apply, seconds)
            self.live.settle()
            if not more:  # else the next steps may wait to be read
                self._changed = self.live.stand_still(now) or self._changed
            self.keeper.look(all_read=not more)
            if not more:
                self._changed = self.live.count_ends(now, self._ended_by_host) or self._changed
            notice = self._preemption.current if self._preemption is not None else None
            self._notices.pass_on(notice, self.live.jobs.values(), self.follower.directories)
            self._watch_shards(now)
            self._let_go(now)
            self._save()
            self.verifier.tick(self.live.jobs)
            self.ticks += 1
            self.ticked_at = now
        self._tell_of_rejections()
        self.frame.tick(now)
        self._sample(now)
        self.tick_seconds = time.perf_counter() - began
        return more

    def _apply(self, segment: Segment, lines: list[bytes]) -> None:
        self._changed = True
        job = segment.address.job if segment.address else None
        self.live.apply(segment.directory, segment.writer, job, lines, self._clock())
        self.verifier.apply(segment, lines)

    def _ended_by_host(self, ended: Ended) -> bool:
        if self._preemption is not None and self._preemption.current is not None:
            return True
        readings = self.gpus.readings() if self.gpus is not None else ()
        since = self._unix_clock() - (self._clock() - ended.since)
        return host_causes.gpu_failed(ended.gpus, since, readings, self._health.counter.all())

    def _watch_shards(self, now: float) -> None:
        taken, self.live.shard_records = self.live.shard_records, []
        for record in taken:
            self.shards.take(record)
        for found in self.shards.decide(now):
            self.records.write(found.job, ShardQuarantined, attempt=found.attempt, **found.fields)
            self.log.warning(f"quarantine {found.job}", found.text)
        for job in self.live.jobs.values():
            job.shards_quarantined = self.shards.listed(job.name)
        self.shards.forget(self.live.jobs)
        self.records.close_idle()

    def _heard(self, record: AnyRecord) -> None:
        self.keeper.heard(record)

    def _writer_gone(self, segment: Segment) -> None:
        if segment.address is not None:
            self._changed = True
            self.live.writer_gone(segment.address.job, segment.writer, self._clock())
            self.keeper.writer_gone(segment.address.job, segment.writer)

    def _remember(self, segment: Segment) -> bool:
        """Take up a segment where the journal and the state left it; say whether they know it."""
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

    def _let_go(self, now: float) -> None:
        done = self.follower.drop_done(now, self.config.spool_retention_seconds)
        gone = []
        if self.ticks == 0:  # what was removed while the agent was away
            gone = [key for key in self._entries if not (self.config.spool_path / key[0] / key[1]).exists()]
            self.live.services.only({segment.writer for segment in (*self.follower.segments(), *done)}, now)
        self.live.forget(now, self.config.retention_seconds)
        self._changed = self._changed or bool(done)
        try:
            self.journal.forget([*gone, *(segment.key for segment in done)])
        except TachoscopeError as error:
            self.errors["journal"] += 1
            self.log.warning("journal", str(error))

    def _save(self) -> None:
        """Save the state before anybody is shown it: then counters never go back."""
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
            self.samples.append(self.families(), now=now, unix_seconds=self._unix_clock())
        except TachoscopeError as error:
            self.errors["samples"] += 1
            self.log.warning("samples", str(error))

    # --- shipping ---------------------------------------------------------------------------------------------------------

    def ship(self, *, everything: bool = False) -> int:
        """Ship what is due, or everything that can go; return how many ranges went."""
        now = self._clock()
        with self.lock:
            segments = self.follower.to_ship()
            if not everything:
                policy = Policy(self.config.flush_seconds, self.config.flush.bytes)
                segments = due(segments, policy, now)
        if not self.shipper.failing:
            # Before the records: a run whose last records are shipped is over, and who waited for that may ask for the list.
            self.shards.sync(self._store, self.config.node_name, now, anyway=everything)
        count = self.shipper.ship(segments, self.lock, anyway=everything)
        if not self.shipper.failing:
            try:
                self.samples.ship()
            except (TachoscopeError, OSError) as error:
                self.errors["samples"] += 1
                self.log.warning("ship samples", str(error))
        return count

    def reconfigure(self, config: Config) -> None:
        """Go on with other limits, times and device filters."""
        old, old_gpus, old_preemption, old_servers = self.frame, self.gpus, self._preemption, self._servers
        old_nccl, old_ras = self._nccl, self._ras
        if config.nccl != self.config.nccl:
            self._nccl, self._ras = self._inspected(config), self._asked_ras(config)
        if config.servers != self.config.servers:
            self._servers = self._watched_servers(config)
        if config.preemption != self.config.preemption:
            self._preemption = self._asks_for_preemption(config)
        if config.gpu != self.config.gpu:
            self.gpus = self._gpus(config)
        frame = self._frame(config)
        with self.lock:
            self.config = config
            self.live.limits = self.follower.limits = config.limits
            self.verifier.reconfigure(config.checkpoints, config.limits)
            self.frame = frame
        old.close()
        if old_preemption is not None and old_preemption is not self._preemption:
            old_preemption.close()
        if old_servers is not None and old_servers is not self._servers:
            old_servers.close()
        if old_nccl is not None and old_nccl is not self._nccl:
            old_nccl.close()
        if old_ras is not None and old_ras is not self._ras:
            old_ras.close()
        if old_gpus is not None and old_gpus is not self.gpus:
            old_gpus.close()

    def _frame(self, config: Config) -> Frame:
        filters = {name: DeviceFilter(devices.include, devices.exclude) for name, devices in config.devices.items()}
        collectors: list[Collector] = [*host_collectors(config.proc, config.sys, self.pids, filters)]
        if self.gpus is not None:
            collectors += [*sources(self.gpus), self._pods(config, self.gpus)]
        collectors += self._health.collectors(config.gpu, self.gpus)
        collectors += [self._preemption] if self._preemption is not None else []
        collectors += [self._servers] if self._servers is not None else []
        collectors += [self._nccl] if self._nccl is not None else []
        collectors += [self._ras] if self._ras is not None else []
        return Frame(collectors, self._log_collector)

    def _asks_for_preemption(self, config: Config) -> PreemptionCollector | None:
        asked = config.preemption
        if isinstance(asked.provider, bool) or asked.provider == "off":
            return None
        return PreemptionCollector(asked.provider, url=asked.url, interval_seconds=asked.interval_seconds)

    def _watched_servers(self, config: Config) -> ServersCollector | None:
        return ServersCollector(config.servers, self._log_collector) if config.servers else None

    def _inspected(self, config: Config) -> NcclCollector | None:
        if not config.nccl.inspector:
            return None
        state = config.state_path / "nccl.json"
        return NcclCollector(config.nccl, state=state, members=self.members, write=self.records.write, log=self._log_collector)

    def _asked_ras(self, config: Config) -> RasCollector | None:
        asked = config.nccl
        if (at := address(asked.ras)) is None:
            return None
        return RasCollector(
            at,
            hung_polls=asked.hung_polls,
            poll_seconds=asked.ras_interval_seconds,
            wait_for=self._ras_waits_for,
            log=lambda line: self.log.warning(None, line),
        )

    def _ras_waits_for(self) -> str:
        """Return what speaks against asking RAS: it tells of a whole job, and jobs must not be asked while they start."""
        with self.lock:
            running = [rank for job in self.live.jobs.values() for rank in job.running()]
        if not running:
            return "" if self._nccl is not None and self._nccl.active else "no rank runs on this node"
        if any(rank.steps == 0 for rank in running):
            return "a rank has not finished its first step"
        return "" if any(rank.rank == 0 for rank in running) else "the node of rank 0 asks"

    def _pods(self, config: Config, gpus: GpuSource) -> PodsCollector:
        socket = config.gpu.pod_resources
        return PodsCollector(gpus.readings, self.gpu_ranks, socket=socket, proc=config.proc, log=self._log_collector)

    def _gpus(self, config: Config) -> GpuSource | None:
        gpu = config.gpu
        return gpu_collector(
            gpu.nvml,
            state=config.state_path,
            expected=gpu.expected,
            interval_seconds=gpu.interval_seconds,
            on_xid=self._health.on_xid,
            log=lambda line: self.log.warning(line, line),
            dcgm_url=gpu.dcgm_url,
            on_dcgm_xid=not_counted_yet(self._health.counter),
        )

    def _log_collector(self, line: str) -> None:
        if ": failed" in line:
            self.log.warning(line.partition(":")[0], line)
        else:  # a machine without InfiniBand is no cause for worry
            self.log.info(line)

    def finish(self, deadline: float) -> bool:
        """Read and ship all that is left, until the deadline on the clock; say whether all is in the store."""
        self.samples.finish()
        with self.lock:
            self.keeper.close()
        self.shards.flush()
        self.verifier.close()
        while self.tick() and self._clock() < deadline:
            pass
        while self._clock() < deadline and self.ship(everything=True):
            pass
        with self.lock:
            left = self.follower.to_ship()
            self._let_go(self._clock())
            self._save()
        return not left

    def close(self) -> None:
        """Let go of all files, locks and threads."""
        self.profiler.close()
        self.verifier.close()
        self.frame.close()
        if self._preemption is not None:
            self._preemption.close()
        if self._servers is not None:
            self._servers.close()
        if self._nccl is not None:
            self._nccl.close()
        if self._ras is not None:
            self._ras.close()
        if self.gpus is not None:
            self.gpus.close()
        self._health.close()
        self.records.close()
        with self.lock:
            self.follower.close()
            self.journal.close()

    # --- what others read -------------------------------------------------------------------------------------------------

    def families(self) -> list[Family]:
        """Return all metrics of this moment."""
        now = self._clock()
        with self.lock:
            jobs = live_families.families(
                trainings(self.live.jobs.values(), self.live.services), node=self.config.node_name, now=now
            )
            services = live_service_families.families(self.live.services.services.values())
            own = self_families.families(self, now)
            verified = self.verifier.families(self.live.jobs)
            ended = live_families.finished(self.live.finished.counts)
        return self._newborn.shown(joined([*jobs, ended, *services, *verified, *self.frame.families(), *own]), now)

    def health(self) -> dict[str, object]:
        """Return the verdicts on the node's GPUs, for people and programs."""
        return self._health.page(self.config.node_name)

    def pids(self) -> dict[tuple[str, str], int]:
        """Return the process id of each running rank, by job and rank."""
        with self.lock:
            return {
                (job.name, str(rank.rank)): rank.pid for job in self.live.jobs.values() for rank in job.running() if rank.pid > 0
            }

    def members(self) -> list[Member]:
        """Return the ranks of the node, those that ended lately included, as far as they can be joined to NCCL's communicators."""
        with self.lock:
            owners = {name: os.fstat(directory.descriptor).st_uid for name, directory in self.follower.directories.items()}
            return [
                Member(job.name, rank.rank, rank.attempt, rank.pid, rank.world_size, owners[rank.directory], rank.layout)
                for job in self.live.jobs.values()
                for rank in job.ranks.values()
                if rank.pid > 0 and rank.directory in owners
            ]

    def gpu_ranks(self) -> tuple[Rank, ...]:
        """Return the ranks that run, as far as they can be joined to GPUs."""
        with self.lock:
            return placed(self.live.jobs.values(), self._clock())

    def ranks(self) -> list[dict[str, object]]:
        """Return what is known of each rank, for people and programs: one object a rank, times in seconds."""
        now = self._clock()
        with self.lock:
            return [
                {
                    "training_job": job.name,
                    "rank": rank.rank,
                    "attempt": rank.attempt,
                    "pid": rank.pid,
                    "world_size": rank.world_size,
                    "device": rank.device,
                    "state": rank.ended or "running",
                    "step": rank.step,
                    "step_seconds": rank.step_seconds,
                    "last_record_age_seconds": round(max(now - rank.last_record, 0.0), 3),
                    "seconds": {state: round(seconds, 6) for state, seconds in rank.seconds.items() if seconds},
                    "dropped": rank.dropped_before + rank.dropped,
                }
                for job in self.live.jobs.values()
                for rank in sorted(job.ranks.values(), key=lambda rank: rank.rank)
            ]
