"""Readings as families: of the GPUs that answer all that they told, of the others that they are down."""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope_core.gpu_metrics import (
    GPU_ACTIVE,
    GPU_CLOCK,
    GPU_COPY_UTILIZATION,
    GPU_ECC_ERRORS,
    GPU_ENERGY,
    GPU_INFO,
    GPU_LINK_RATE,
    GPU_MEMORY_BYTES,
    GPU_NVLINK_BYTES,
    GPU_NVLINK_ERRORS,
    GPU_NVLINKS,
    GPU_PCIE_BYTES,
    GPU_PCIE_LINK,
    GPU_PCIE_REPLAYS,
    GPU_POWER,
    GPU_PROCESSES,
    GPU_RECOVERY_ACTION,
    GPU_REMAPPED_ROWS,
    GPU_RETIRED_PAGES,
    GPU_ROW_REMAP,
    GPU_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN,
    GPU_THROTTLED,
    GPU_THROTTLED_SECONDS,
    GPU_UP,
    GPU_UTILIZATION,
    GPUS,
)
from tachoscope_core.metric import Metric
from tachoscope_node.families import Family, Point
from tachoscope_node.gpu.reading import Gpu, Reading

VALUES: tuple[Metric, ...] = (
    GPU_UTILIZATION,
    GPU_COPY_UTILIZATION,
    GPU_ACTIVE,
    GPU_MEMORY_BYTES,
    GPU_POWER,
    GPU_ENERGY,
    GPU_CLOCK,
    GPU_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN,
    GPU_THROTTLED,
    GPU_THROTTLED_SECONDS,
    GPU_ECC_ERRORS,
    GPU_REMAPPED_ROWS,
    GPU_ROW_REMAP,
    GPU_RETIRED_PAGES,
    GPU_PCIE_BYTES,
    GPU_PCIE_REPLAYS,
    GPU_PCIE_LINK,
    GPU_NVLINK_BYTES,
    GPU_NVLINK_ERRORS,
    GPU_NVLINKS,
    GPU_LINK_RATE,
    GPU_RECOVERY_ACTION,
    GPU_PROCESSES,
)
"""The metrics that a reading may have values of."""
METRICS: tuple[Metric, ...] = (GPU_INFO, GPU_UP, GPUS, *VALUES)


def families(readings: Iterable[Reading], expected: int) -> list[Family]:
    """Return the families of readings. expected: how many whole GPUs there should be."""
    readings = tuple(readings)
    seen = sum(reading.up for reading in readings if not reading.gpu.mig)
    found = [
        Family(GPUS, [(("expected",), float(expected)), (("seen",), float(seen))]),
        Family(GPU_INFO, [((*reading.gpu.labels, *_info(reading.gpu)), 1.0) for reading in readings]),
        Family(GPU_UP, [(reading.gpu.labels, float(reading.up)) for reading in readings]),
    ]
    return [*found, *value_families(readings)]


def value_families(readings: Iterable[Reading]) -> list[Family]:
    """Return the families of what readings tell; metrics that none tells are left out."""
    points: dict[str, list[Point]] = {metric.name: [] for metric in VALUES}
    for reading in readings:
        if not reading.up:
            continue
        gpu = reading.gpu.labels
        for metric, values in reading.values.items():
            points[metric].extend([(gpu + labels, value) for labels, value in values.items()])
    return [Family(metric, points[metric.name]) for metric in VALUES if points[metric.name]]


def _info(gpu: Gpu) -> tuple[str, ...]:
    return gpu.model, gpu.pci_bus_id, gpu.driver_version, gpu.mig_profile
