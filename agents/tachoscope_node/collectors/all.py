"""The collectors of the host, all of them: nothing registers by import."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.collectors.cgroup import CgroupCollector, Ranks
from tachoscope_node.collectors.clock import ClockCollector
from tachoscope_node.collectors.collector import Collector
from tachoscope_node.collectors.cpu import CpuCollector
from tachoscope_node.collectors.disk import DiskCollector
from tachoscope_node.collectors.infiniband import InfinibandCollector
from tachoscope_node.collectors.memory import MemoryCollector
from tachoscope_node.collectors.network import NetworkCollector
from tachoscope_node.collectors.pressure import PressureCollector
from tachoscope_node.config.device_filter import DEFAULT_FILTERS, DeviceFilter


def host_collectors(proc: str, sys: str, ranks: Ranks, filters: Mapping[str, DeviceFilter]) -> list[Collector]:
    """Return the collectors of the host.

    Args:
        proc: where /proc is mounted. sys: where /sys is mounted. ranks: (training job, rank) to process id.
        filters: by collector; one given replaces the collector's default.
    """
    if unknown := set(filters) - set(DEFAULT_FILTERS):
        raise TachoscopeError(
            f"no device filter exists for {', '.join(map(repr, sorted(unknown)))}",
            fix=f"give one for {', '.join(DEFAULT_FILTERS)}",
        )
    devices = {**DEFAULT_FILTERS, **filters}
    return [
        CpuCollector(proc),
        PressureCollector(proc),
        MemoryCollector(proc),
        DiskCollector(proc, devices["disk"]),
        NetworkCollector(proc, devices["network"]),
        InfinibandCollector(sys, devices["infiniband"]),
        CgroupCollector(ranks, proc, sys),
        ClockCollector(),
    ]
