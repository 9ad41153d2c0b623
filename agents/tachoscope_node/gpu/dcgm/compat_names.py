"""What the agent says of GPUs, said again under dcgm-exporter's names: for dashboards that were made for those.

Values of a whole GPU are given once, for the GPU; a dcgm-exporter repeats them for each MIG instance, and sums come out too high.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tachoscope_core.metrics.dcgm import DCGM_BY_NAME, DCGM_XID
from tachoscope_core.metrics.gpu import GPU_INFO, GPU_UP, GPU_WORKLOAD, GPU_XID_ERRORS, GPU_XID_LAST_SEEN
from tachoscope_node.gpu.dcgm.fields import FIELDS, Field
from tachoscope_node.gpu.xid.counter import about
from tachoscope_service.metrics.family import Family, Histogram, Labels, Point

_Values = Mapping[Labels, Mapping[Labels, float]]
"""By the labels of the GPU (index, UUID, MIG instance) and those after them."""
_OF_A_GPU = len(GPU_UP.labels)
_NOBODY = ("", "", "")


def families(ours: Iterable[Family], node: str, since: float) -> list[Family]:
    """Return the agent's GPU metrics under dcgm-exporter's names, in its units; nothing for a GPU that is down.

    Args:
        ours: all that the agent gives. node: its name.
        since: Unix time of the agent's start; the last Xid error is one since then, as a dcgm-exporter's is one since its own.
    """
    values = {family.metric.name: _values(family) for family in ours}
    labels = _labels(values, node)
    found = []
    for field in _given():
        points = [
            (labels[gpu], value)
            for gpu, series in values.get(field.metric, {}).items()
            if gpu in labels and (value := _value(field, series)) is not None
        ]
        if points:
            found.append(Family(DCGM_BY_NAME[field.field], points))
    xids = _xids(values, labels, since)
    return [*found, Family(DCGM_XID, xids)] if xids else found


def _given() -> Iterable[Field]:
    """Return the fields to give: of those that are the same series of ours, the first."""
    first: dict[tuple[str, tuple[Labels, ...]], Field] = {}
    for field in FIELDS:
        first.setdefault((field.metric, field.series), field)
    return first.values()


def _values(family: Family) -> dict[Labels, dict[Labels, float]]:
    found: dict[Labels, dict[Labels, float]] = defaultdict(dict)
    for labels, value in family.points:
        if not isinstance(value, Histogram):
            found[labels[:_OF_A_GPU]][labels[_OF_A_GPU:]] = value
    return found


def _value(field: Field, series: Mapping[Labels, float]) -> float | None:
    parts = [series[labels] for labels in field.series if labels in series]
    if len(parts) < len(field.series):
        return None
    if field.bits:
        return float(sum(int(part) << bit for bit, part in enumerate(parts)))
    return field.to_dcgm(sum(parts))


def _labels(values: Mapping[str, _Values], node: str) -> dict[Labels, Labels]:
    """Return the values of DCGM_LABELS for each GPU and instance that is up."""
    whole = {index: uuid for index, uuid, mig in values.get(GPU_INFO.name, {}) if not mig}
    up = values.get(GPU_UP.name, {})
    workloads = values.get(GPU_WORKLOAD.name, {})
    found: dict[Labels, Labels] = {}
    for gpu, infos in values.get(GPU_INFO.name, {}).items():
        if not up.get(gpu, {}).get((), 0.0):
            continue
        index, uuid, mig = gpu
        model, bus, driver, profile = next(iter(infos))
        pods = {(pod, namespace, container) for namespace, pod, container, *_ in workloads.get(gpu, {}) if pod}
        pod = pods.pop() if len(pods) == 1 else _NOBODY  # of a shared GPU nobody can say whose the value is
        uuid = whole.get(index, uuid) if mig else uuid
        found[gpu] = (index, uuid, bus, f"nvidia{index}", model, profile, mig, node, node, driver, *pod)
    return found


def _xids(values: Mapping[str, _Values], labels: Mapping[Labels, Labels], since: float) -> list[Point]:
    """Return the last code of each whole GPU, where the agent looks for Xid errors."""
    if GPU_XID_ERRORS.name not in values:
        return []
    last: dict[str, tuple[float, int]] = {}
    for (_, uuid, xid), times in values.get(GPU_XID_LAST_SEEN.name, {}).items():
        if xid.isdecimal() and times[()] >= since:
            last[uuid] = max(last.get(uuid, (0.0, 0)), (times[()], int(xid)))
    points: list[Point] = []
    for (_, uuid, mig), all_labels in labels.items():
        if not mig:
            code = last.get(uuid, (0.0, 0))[1]
            points.append(((*all_labels, str(code), about(code).name if code else "No Error"), float(code)))
    return points
