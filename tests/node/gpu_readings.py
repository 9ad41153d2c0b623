"""Readings of GPUs for tests, and a log that keeps its lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from tachoscope_core.metrics import gpu as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family, Labels

Value = tuple[Metric, Labels, float]

FINE: tuple[Value, ...] = (
    (names.GPU_ECC_ERRORS, ("uncorrected", "volatile"), 0.0),
    (names.GPU_ROW_REMAP, ("pending",), 0.0),
    (names.GPU_ROW_REMAP, ("failed",), 0.0),
    (names.GPU_RETIRED_PAGES, ("corrected",), 0.0),
    (names.GPU_RETIRED_PAGES, ("uncorrected",), 0.0),
    *((names.GPU_THROTTLED, (reason,), 0.0) for reason in names.THROTTLE_REASONS),
    (names.GPU_TEMPERATURE_MARGIN, ("gpu",), 40.0),
    (names.GPU_PCIE_LINK, ("width", "current"), 16.0),
    (names.GPU_PCIE_LINK, ("width", "max"), 16.0),
    (names.GPU_PCIE_LINK, ("generation", "current"), 1.0),
    (names.GPU_PCIE_LINK, ("generation", "max"), 5.0),
    (names.GPU_PCIE_REPLAYS, (), 0.0),
    (names.GPU_NVLINKS, ("active",), 18.0),
    *((names.GPU_NVLINK_ERRORS, (kind,), 0.0) for kind in ("crc_flit", "crc_data", "replay", "recovery")),
    (names.GPU_RECOVERY_ACTION, (), 0.0),
)
"""What a data centre GPU says when all is well; its PCIe generation is low because it is idle."""


def uuid(index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{index:012d}"


def reading(*values: Value, index: int = 0, fine: bool = True, model: str = "H100", **fields: Any) -> Reading:
    """Return a reading: what is fine, with these values in its place."""
    held: dict[str, dict[Labels, float]] = {}
    for metric, labels, value in (*(FINE if fine else ()), *values):
        held.setdefault(metric.name, {})[labels] = value
    gpu = Gpu(index, uuid(index), model=model, pci_bus_id=f"00000000:{index + 16:02X}:00.0")
    return Reading(gpu, values=held, **fields)


def lost(index: int = 0) -> Reading:
    return reading(index=index, fine=False, up=False, fault="lost", detail="GPU is lost")


class Lines(logging.Handler):
    """A log whose lines are kept. clock: that by which it leaves out what it said within the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.lines: list[str] = []
        logger = logging.Logger("test")
        logger.addHandler(self)
        self.log = Log(logger, clock)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def points(families: list[Family], metric: Metric) -> Mapping[Labels, float]:
    return {labels: float(value) for family in families if family.metric is metric for labels, value in family.points}  # type: ignore[arg-type]
