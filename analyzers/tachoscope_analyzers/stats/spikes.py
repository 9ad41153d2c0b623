"""Is a loss steady or in spikes, and do these come at a fixed period or at random?

A fixed period is something that the loop does every so many steps (checkpoint, evaluation, planned collection of garbage); at
random, and on each rank in other steps, is what nobody planned, and each time all ranks wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.arrays import median
from tachoscope_core.report.report import Evidence

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SpikePattern:
    """When a loss comes.

    Attributes:
        kind: `steady`: in most steps; `periodic`; `irregular`; `rare`: too few spikes to tell which.
        spikes: how many runs of neighbouring steps carry it. steps: ratio of the steps that do.
        period: steps from one spike to the next, the median. regular: ratio of the gaps that are whole periods.
    """

    kind: Literal["steady", "periodic", "irregular", "rare"]
    spikes: int
    steps: float
    period: float = 0.0
    regular: float = 0.0


def spiky(seconds: Matrix) -> npt.NDArray[np.bool_]:
    """Return in which steps a loss, shape (K,), has its spikes: those that lose at least a quarter of what a step loses in which a
    second of it is lost on average.
    """
    total = float(seconds.sum())
    if total <= 0:
        return np.zeros(len(seconds), dtype=bool)
    return np.asarray(seconds >= threshold("spike_share") * float(seconds @ seconds) / total)


def rhythm(seconds: Matrix, numbers: npt.NDArray[np.int64]) -> SpikePattern:
    """Return when a loss comes. `seconds` and the steps' `numbers` have shape (K,)."""
    high = spiky(seconds)
    ratio = float(high.mean()) if len(high) else 0.0
    begins = numbers[high & ~np.concatenate([[False], high[:-1]])] if len(high) else numbers
    if ratio > threshold("steady_steps"):
        return SpikePattern("steady", len(begins), ratio)
    gaps = np.diff(begins).astype(float)
    if len(gaps) < threshold("period_minimum_gaps"):
        return SpikePattern("rare", len(begins), ratio, float(median(gaps)) if len(gaps) else 0.0)
    period = float(median(gaps))
    # One spike may be missing (cut off by a failure, too short to count), then the gap is two periods.
    regular = float((np.abs(gaps - np.round(gaps / period) * period) <= 0.02 * gaps).mean()) if period > 1 else 0.0
    return SpikePattern("periodic" if regular >= threshold("period_gaps") else "irregular", len(begins), ratio, period, regular)


def evidence(found: SpikePattern) -> list[Evidence]:
    """Return in words and figures when a loss comes; nothing where it is steady or there is none."""
    if found.kind == "steady" or not found.spikes:
        return []
    source = f"step records: {found.spikes} spikes"
    if found.kind == "rare":
        return [Evidence(signal="part of the steps that lose by it", value=found.steps, unit="ratio", source=source)]
    periodic = found.kind == "periodic"
    return [
        Evidence(
            signal=f"it comes every {found.period:.0f} steps" if periodic else "it comes at random",
            value=found.regular,
            threshold=threshold("period_gaps"),
            comparison=">=" if periodic else "<",
            unit="ratio",
            source=f"{source}; the share of the gaps between them that are whole periods",
        )
    ]


def single_rank_ratio(seconds: Matrix) -> float:
    """Return the ratio of the steps with a spike on any rank in which only one rank has it; `seconds` has shape (K, R)."""
    high = np.stack([spiky(column) for column in seconds.T], axis=1)
    spikes = high.sum(axis=1)
    return float((spikes[spikes > 0] == 1).mean()) if (spikes > 0).any() else 0.0
