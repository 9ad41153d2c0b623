"""The health of GPUs from all sources: the readings, NVML's events and the kernel log, the errors counted, the verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tachoscope_core.storage.node_status import XidStatus
from tachoscope_node.collectors.collector import Collector
from tachoscope_node.config.settings import Gpu
from tachoscope_node.gpu.health.collector import GpuHealthCollector
from tachoscope_node.gpu.pci_address import pci_address
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.xid.counter import XidCounter, this_boot
from tachoscope_node.gpu.xid.kernel_log import KernelLogCollector
from tachoscope_service.common.log import Log


class Gpus(Protocol):
    """Who reads the GPUs."""

    def readings(self) -> tuple[Reading, ...]: ...

    def expected(self) -> int: ...

    def driver(self) -> str: ...


class HealthWatch:
    """Keeps the errors over all configurations, and has the collectors for the one that holds.

    Args:
        state: the agent's state directory. proc: where the host's /proc is mounted.
    """

    def __init__(self, state: Path, proc: str, log: Log) -> None:
        self._log = log
        self._boot = this_boot(proc)
        self._counter = XidCounter(state, self._boot, log)
        self._made_for: tuple[Gpu, Gpus | None] | None = None
        self._collectors: list[Collector] = []
        self._health: GpuHealthCollector | None = None

    @property
    def counter(self) -> XidCounter:
        return self._counter

    def since_boot(self) -> tuple[float, list[XidStatus]]:
        """Return when the node booted, Unix seconds, and the errors of its GPUs since then that make them unhealthy."""
        errors = [seen for seen in self._counter.all() if seen.xid.severity == "unhealthy" and not seen.reset_since]
        return self._boot.seconds, [XidStatus(seen.xid.label, seen.index or seen.uuid, seen.last_seen) for seen in errors]

    def on_xid(self, uuid: str, pci_bus_id: str, xid: int, unix_seconds: float) -> None:
        """Count an error that NVML reported. Thread-safe."""
        self._counter.count_error(uuid or f"PCI:{pci_address(pci_bus_id)}", xid, unix_seconds, "nvml")

    def collectors(self, settings: Gpu, gpus: Gpus | None) -> list[Collector]:
        """Return the collectors, to be run after those that read the GPUs: the same as before if nothing has changed.

        Args:
            gpus: None where NVML is off; then errors come from the kernel log alone, if it is read.
        """
        if self._made_for == (settings, gpus):
            return self._collectors
        self._made_for, self._collectors, self._health = (settings, gpus), [], None
        if settings.kernel_log:
            self._collectors.append(
                KernelLogCollector(
                    settings.kernel_log,
                    self._counter,
                    lambda address: _uuid_of(address, gpus),
                    self._boot,
                    self._log,
                    interval_seconds=settings.interval_seconds,
                )
            )
        if settings.kernel_log or gpus is not None:
            self._health = GpuHealthCollector(
                gpus.readings if gpus is not None else tuple,
                self._counter,
                gpus.expected if gpus is not None else lambda: settings.expected,
                self._log,
                driver=gpus.driver if gpus is not None else lambda: "absent",
                interval_seconds=settings.interval_seconds,
            )
            self._collectors.append(self._health)
        return self._collectors

    def page(self, node_name: str) -> dict[str, Any]:
        """Return the content of /v1/health. Thread-safe."""
        health = self._health
        if health is None:
            return {"node": node_name, "time": None, "state": "unknown", "reasons": [], "gpus": [], "xids": []}
        return health.page(node_name)

    def close(self) -> None:
        """Save what was counted."""
        self._counter.save()


def _uuid_of(address: str, gpus: Gpus | None) -> str | None:
    """Return the UUID of the GPU at an address; empty where all GPUs are known and none is there, None while that may change."""
    whole = [reading.gpu for reading in gpus.readings() if not reading.gpu.mig] if gpus is not None else []
    for gpu in whole:
        if gpu.uuid and pci_address(gpu.pci_bus_id) == address:
            return gpu.uuid
    known = gpus is not None and gpus.driver() == "works" and whole and all(gpu.uuid and gpu.pci_bus_id for gpu in whole)
    return "" if known else None
