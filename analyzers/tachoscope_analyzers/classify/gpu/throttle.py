"""How much of a rank's computing was lost to clocks that were held down, from the samples of its GPU.

Computing takes 1/ratio times as long at `ratio` of the highest clock, so 1 - ratio of it is lost, for as much of each span between
two samples as the driver says that it held the clocks down; the ratio is the lower of the two samples. Kernels that wait for memory
lose less: an upper bound. Clocks that are low for another reason (idle, application clocks) are no loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.gpu_by_rank import RankGpu
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.gpu import GPU_CLOCK, GPU_THROTTLED, GPU_THROTTLED_SECONDS, GPU_UTILIZATION

POWER, HEAT, BRAKE, BOARD, SLOWDOWN = "power cap", "heat", "power brake", "board limit", "hardware slowdown"

# What the driver counts and what it flags, by cause. `thermal` counts what the other two of its line count apart on newer drivers.
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html (nvmlPerfPolicyType_t),
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
_COUNTED = {
    POWER: ("power_cap",),
    HEAT: ("thermal", "software_thermal", "hardware_thermal"),
    BRAKE: ("power_brake",),
    BOARD: ("board_limit",),
}
_FLAGGED = {POWER: ("power_cap",), HEAT: ("thermal", "hardware_thermal"), BRAKE: ("power_brake",)}


@dataclass(frozen=True, slots=True)
class Throttled:
    """What low clocks did to a rank.

    Attributes:
        slow: share of the computing of each step that was lost, shape (K,), 0 where nothing is known.
        held_seconds: within the steps in which the driver held the clocks down, by cause, the longest first.
        held_ratio: share of the steps' time in which it did so for any cause.
        clock_ratio: mean SM clock over its maximum while busy. flagged: causes whose time is not counted by the driver but
            estimated from its flags.
    """

    slow: Matrix
    held_seconds: dict[str, float]
    held_ratio: float
    clock_ratio: float
    flagged: frozenset[str]


def throttled(gpu: RankGpu) -> Throttled | str:
    """Return how a rank was throttled, or the signal that is missing."""
    clocks = clock_ratios(gpu)
    if np.isnan(clocks).all():
        return "SM clocks of its GPU, current and highest"
    held, flagged = _held(gpu)
    if not held:
        return "throttle reasons or throttled time of its GPU"
    told = ~np.isnan(list(held.values())).all(axis=0)
    any_cause = np.where(told, np.clip(np.nansum(list(held.values()), axis=0), 0.0, 1.0), np.nan)
    lost = any_cause * (1.0 - gpu.lowest(clocks))
    if gpu.coverage(lost) < threshold("gpu_covered_ratio"):
        return f"samples of its GPU for {threshold('gpu_covered_ratio'):.0%} of the steps (there are for {gpu.coverage(lost):.0%})"
    seconds = {cause: gpu.seconds(ratio) for cause, ratio in held.items()}
    return Throttled(
        slow=np.nan_to_num(gpu.by_step(lost)),
        held_seconds=dict(sorted(seconds.items(), key=lambda item: -item[1])),
        held_ratio=gpu.mean(any_cause),
        clock_ratio=gpu.mean(gpu.between(clocks)),
        flagged=flagged,
    )


def clock_ratios(gpu: RankGpu) -> Matrix:
    """Return the SM clock over its maximum, shape (N,); 1 while the GPU is idle, whose clock is low for want of work."""
    highest = gpu.values(GPU_CLOCK, "sm", "max")
    ratios = np.divide(gpu.values(GPU_CLOCK, "sm", "current"), highest, out=np.full(len(highest), np.nan), where=highest > 0)
    idle = (gpu.values(GPU_THROTTLED, "idle") == 1.0) | (gpu.values(GPU_UTILIZATION) <= threshold("gpu_idle_ratio"))
    return np.where(idle & ~np.isnan(ratios), 1.0, np.clip(ratios, 0.0, 1.0))


def _held(gpu: RankGpu) -> tuple[dict[str, Matrix], frozenset[str]]:
    """Return the share of each span in which clocks were held down, by cause, and the causes for which that is an estimate.

    A cause whose time the driver does not count is taken from its flag at both ends of the span.
    """
    held: dict[str, Matrix] = {}
    flagged = set()
    for cause in (POWER, HEAT, BRAKE, BOARD, SLOWDOWN):
        counters = _measured(gpu.rate(gpu.values(GPU_THROTTLED_SECONDS, reason)) for reason in _COUNTED.get(cause, ()))
        flags = _measured(gpu.between(flag) for flag in _flags(gpu, cause))
        if counters or flags:
            held[cause] = np.clip(np.fmax.reduce(counters or flags), 0.0, 1.0)
            flagged |= set() if counters else {cause}
    return held, frozenset(flagged)


def _flags(gpu: RankGpu, cause: str) -> list[Matrix]:
    """Return the flags of a cause at each sample. A hardware slowdown with a more precise reason counts as that."""
    if cause != SLOWDOWN:
        return [gpu.values(GPU_THROTTLED, reason) for reason in _FLAGGED.get(cause, ())]
    explained = np.nan_to_num(np.fmax(gpu.values(GPU_THROTTLED, "hardware_thermal"), gpu.values(GPU_THROTTLED, "power_brake")))
    return [gpu.values(GPU_THROTTLED, "hardware_slowdown") * (1.0 - explained)]


def _measured(spans: Iterable[Matrix]) -> list[Matrix]:
    return [ratio for ratio in spans if not np.isnan(ratio).all()]
