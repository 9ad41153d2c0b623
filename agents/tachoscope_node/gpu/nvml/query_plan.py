"""Which sources one GPU answers: learnt once and looked at again rarely, so that what it cannot tell costs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tachoscope_core.metrics.gpu import GPU_MEMORY_BYTES
from tachoscope_node.gpu.nvml import gpm, mig
from tachoscope_node.gpu.nvml.batched_query import BatchedQuery, batch, query_gpu
from tachoscope_node.gpu.nvml.driver import UNSUPPORTED, raise_if_down
from tachoscope_node.gpu.nvml.sources import FIELDS_AND_CALLS, first_of_each

KEEP_SECONDS = 600.0
"""How long a plan holds: a driver or a mode may change."""
UNSURE_SECONDS = 15.0
"""How long it holds if a source failed in a way that may pass."""
_THRESHOLDS = {"gpu": 1, "memory": 2}
"""By sensor: NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_MEM_MAX."""
_MEMORY = GPU_MEMORY_BYTES.name
_OF_MEMORY = tuple(source for source in FIELDS_AND_CALLS if source.metric == _MEMORY)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to ask a GPU for.

    Attributes:
        fast, slow: each time, and every 15 seconds. instance: of its MIG instances. links: NVLinks that it has.
        limits: by sensor the temperature in °C from which it slows down.
        until: monotonic seconds.
    """

    fast: BatchedQuery
    slow: BatchedQuery
    instance: BatchedQuery
    mig: bool
    gpm: bool
    links: int
    limits: Mapping[str, float]
    until: float


def make_plan(nvml: Any, handle: Any, now: float) -> Plan:
    """Ask a GPU for everything, and return what it answers. Raises NVMLError if it is lost or answers nothing at all."""
    mig_on = mig.is_on(nvml, handle)
    sources = [source for source in FIELDS_AND_CALLS if not (mig_on and source.whole)]
    answers = query_gpu(nvml, handle, batch(sources))
    passing = {source: code for source, code in answers.refused.items() if code not in UNSUPPORTED}
    if passing and not answers.values:
        raise nvml.NVMLError(next(iter(passing.values())))
    answered = {source for source, _ in answers.values}
    usable = first_of_each(sorted((s for s in sources if s in answered or s in passing), key=lambda source: source in passing))
    return Plan(
        fast=batch(source for source in usable if not source.slow),
        slow=batch(source for source in usable if source.slow),
        instance=batch([source for source in usable if source.metric == _MEMORY] or first_of_each(_OF_MEMORY)),
        mig=mig_on,
        gpm=gpm.supported(nvml, handle),
        links=len(link_activity(nvml, handle, nvml.NVML_NVLINK_MAX_LINKS)),
        limits=_limits(nvml, handle),
        until=now + (UNSURE_SECONDS if passing else KEEP_SECONDS),
    )


def _limits(nvml: Any, handle: Any) -> dict[str, float]:
    limits = {}
    for sensor, threshold in _THRESHOLDS.items():
        try:
            limit = nvml.nvmlDeviceGetTemperatureThreshold(handle, threshold)
        except nvml.NVMLError as error:
            raise_if_down(error)
            continue
        if limit > 0:  # 0 is that of a GPU that has none
            limits[sensor] = float(limit)
    return limits


def link_activity(nvml: Any, handle: Any, most: int) -> Sequence[bool]:
    """Return for each NVLink of a GPU whether it is active. Raises NVMLError for a GPU or driver that does not work."""
    active: list[bool] = []
    for link in range(most):
        try:
            active.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except nvml.NVMLError as error:
            raise_if_down(error)
            break
    return active
