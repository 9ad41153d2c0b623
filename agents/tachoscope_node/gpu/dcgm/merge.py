"""Readings of NVML and of a dcgm-exporter as one for each GPU: NVML's value where it has one, else the exporter's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tachoscope_core.metrics.gpu import GPU_METRICS
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_service.metrics.family import Labels

Series = tuple[str, str, str, Labels]
"""UUID of the whole GPU, id of the instance, metric and the labels that come after those of the GPU."""
_COUNTERS = frozenset(metric.name for metric in GPU_METRICS if metric.type == "counter")


def merged(nvml: Iterable[Reading], dcgm: Iterable[Reading], counted: set[Series] | None = None) -> tuple[Reading, ...]:
    """Return one reading for each GPU and MIG instance, by the index of the GPU.

    A GPU that NVML finds down stays down and without values: what the exporter still says of it is from before. One that NVML
    does not report has the exporter's reading.

    Args:
        counted: the counters that NVML has given so far, which the caller keeps and this adds to. One that NVML leaves out for once
            is not taken from the exporter: its value is older, and a counter that goes back looks like one that began again.
    """
    counted = counted if counted is not None else set()
    others = {_key(reading.gpu): reading for reading in dcgm}
    readings = []
    for reading in nvml:
        key = _key(reading.gpu)
        counted.update((*key, metric, labels) for metric in _COUNTERS & reading.values.keys() for labels in reading.values[metric])
        other = others.pop(key, None)
        readings.append(_filled(reading, other, counted) if other and other.up and reading.up else reading)
    return tuple(sorted((*readings, *others.values()), key=lambda reading: reading.gpu.index))


def _key(gpu: Gpu) -> tuple[str, str]:
    return gpu.parent_uuid or gpu.uuid, gpu.mig


def _filled(reading: Reading, other: Reading, counted: set[Series]) -> Reading:
    key = _key(reading.gpu)
    values: dict[str, Mapping[Labels, float]] = dict(reading.values)
    for metric, theirs in other.values.items():
        ours = reading.values.get(metric, {})
        new = {labels: value for labels, value in theirs.items() if labels not in ours and (*key, metric, labels) not in counted}
        if new:
            values[metric] = {**ours, **new}
    return replace(reading, values=values, parts=(reading, other))
