"""The collectors of a node as its configuration wants them, and what changes of them when it is read again."""

from __future__ import annotations

from collections.abc import Callable

from tachoscope_node.collectors.all import host_collectors
from tachoscope_node.collectors.collector import Collector
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.collectors.preemption import PreemptionCollector
from tachoscope_node.config.device_filter import DeviceFilter
from tachoscope_node.config.nccl import address
from tachoscope_node.config.settings import Config
from tachoscope_node.gpu.dcgm.combined_collector import GpuSource, sources
from tachoscope_node.gpu.dcgm.source import gpu_collector
from tachoscope_node.gpu.dcgm.xids import not_counted_yet
from tachoscope_node.gpu.health.collector_factory import HealthWatch
from tachoscope_node.gpu.workloads.collector import PodsCollector
from tachoscope_node.nccl.collector import NcclCollector
from tachoscope_node.nccl.ras import RasCollector
from tachoscope_node.rank_views import KnownRanks
from tachoscope_node.services.scrape_collector import ServersCollector
from tachoscope_service.common.log import Log


class Collecting:
    """Makes the collectors, runs them, and replaces those whose settings changed.

    Args:
        write: writes a record of a job, as `OwnRecords.write` does.

    Attributes:
        health: verdicts on the GPUs. gpus, preemption: None where they are not wanted.
    """

    def __init__(self, config: Config, ranks: KnownRanks, write: Callable[..., None], log: Log) -> None:
        self._ranks = ranks
        self._write = write
        self._log = log
        self.health = HealthWatch(config.state_path, config.proc, log)
        self.gpus: GpuSource | None = self._gpus(config)
        self.preemption: PreemptionCollector | None = _preemption(config)
        self._servers = self._watched_servers(config)
        self._nccl, self._ras = self._inspected(config), self._asked_ras(config)
        self._config = config
        self.frame = self._frame(config)

    def reconfigure(self, config: Config) -> None:
        """Apply another configuration; unchanged collectors keep their state."""
        before, old = self._config, self._own()
        if config.nccl != before.nccl:
            self._nccl, self._ras = self._inspected(config), self._asked_ras(config)
        if (config.servers, config.node_name) != (before.servers, before.node_name):
            self._servers = self._watched_servers(config)
        if config.preemption != before.preemption:
            self.preemption = _preemption(config)
        if config.gpu != before.gpu:
            self.gpus = self._gpus(config)
        self._config = config
        old_frame, self.frame = self.frame, self._frame(config)
        old_frame.close()
        kept = self._own()
        for part in old:
            if not any(part is other for other in kept):
                part.close()

    def close(self) -> None:
        self.frame.close()
        for part in self._own():
            part.close()
        self.health.close()

    def _own(self) -> list[PreemptionCollector | ServersCollector | NcclCollector | RasCollector | GpuSource]:
        """Return the collectors that hold resources."""
        parts = (self.preemption, self._servers, self._nccl, self._ras, self.gpus)
        return [part for part in parts if part is not None]

    def _frame(self, config: Config) -> Frame:
        filters = {name: DeviceFilter(devices.include, devices.exclude) for name, devices in config.devices.items()}
        collectors: list[Collector] = [*host_collectors(config.proc, config.sys, self._ranks.pids, filters)]
        if self.gpus is not None:
            collectors += [*sources(self.gpus), self._pods(config, self.gpus)]
        collectors += self.health.collectors(config.gpu, self.gpus)
        collectors += [part for part in (self.preemption, self._servers, self._nccl, self._ras) if part is not None]
        return Frame(collectors, self._log_collector)

    def _watched_servers(self, config: Config) -> ServersCollector | None:
        own = [server for server in config.servers if server.node in {"", config.node_name}]
        return ServersCollector(own, self._log_collector) if own else None

    def _inspected(self, config: Config) -> NcclCollector | None:
        if not config.nccl.inspector:
            return None
        state = config.state_path / "nccl.json"
        return NcclCollector(config.nccl, state=state, members=self._ranks.members, write=self._write, log=self._log_collector)

    def _asked_ras(self, config: Config) -> RasCollector | None:
        asked = config.nccl
        if (at := address(asked.ras)) is None:
            return None
        return RasCollector(
            at,
            hung_polls=asked.hung_polls,
            poll_seconds=asked.ras_interval_seconds,
            wait_for=self._ras_waits_for,
            log=lambda line: self._log.warning(None, line),
        )

    def _ras_waits_for(self) -> str:
        """Return the reason not to query RAS now, if any: jobs must not be queried while they start."""
        running = self._ranks.running()
        if not running:
            return "" if self._nccl is not None and self._nccl.active else "no rank runs on this node"
        if any(rank.steps == 0 for rank in running):
            return "a rank has not finished its first step"
        return "" if any(rank.rank == 0 for rank in running) else "the node of rank 0 asks"

    def _pods(self, config: Config, gpus: GpuSource) -> PodsCollector:
        socket = config.gpu.pod_resources
        return PodsCollector(gpus.readings, self._ranks.on_gpus, socket=socket, proc=config.proc, log=self._log_collector)

    def _gpus(self, config: Config) -> GpuSource | None:
        return gpu_collector(
            config.gpu,
            state=config.state_path,
            on_xid=self.health.on_xid,
            on_dcgm_xid=not_counted_yet(self.health.counter),
            log=lambda line: self._log.warning(line, line),
        )

    def _log_collector(self, line: str) -> None:
        if ": failed" in line:
            self._log.warning(line.partition(":")[0], line)
        else:  # a machine without InfiniBand is not a cause for worry
            self._log.info(line)


def _preemption(config: Config) -> PreemptionCollector | None:
    asked = config.preemption
    if isinstance(asked.provider, bool) or asked.provider == "off":
        return None
    return PreemptionCollector(asked.provider, url=asked.url, interval_seconds=asked.interval_seconds)
