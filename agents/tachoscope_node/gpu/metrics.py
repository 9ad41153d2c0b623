"""Readings as families: of the GPUs that answer all that they told, of the others that they are down."""

from __future__ import annotations

from collections.abc import Iterable

from tachoscope_core.metrics.gpu import GPU_INFO, GPU_UP, GPU_VALUES, GPUS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_service.metrics.family import Family, Point

"""The metrics that a reading may have values of."""
METRICS: tuple[Metric, ...] = (GPU_INFO, GPU_UP, GPUS, *GPU_VALUES)


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
    points: dict[str, list[Point]] = {metric.name: [] for metric in GPU_VALUES}
    for reading in readings:
        if not reading.up:
            continue
        gpu = reading.gpu.labels
        for metric, values in reading.values.items():
            points[metric].extend([(gpu + labels, value) for labels, value in values.items()])
    return [Family(metric, points[metric.name]) for metric in GPU_VALUES if points[metric.name]]


def _info(gpu: Gpu) -> tuple[str, ...]:
    return gpu.model, gpu.pci_bus_id, gpu.driver_version, gpu.mig_profile
