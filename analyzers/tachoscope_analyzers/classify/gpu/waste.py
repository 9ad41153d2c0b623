"""What of a rank's computing a better use of its device could save: the form that `utilisation` and `memory` give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.gpu_by_rank import RankGpu
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.report.report import Evidence


@dataclass(frozen=True, slots=True)
class Waste:
    """What of a rank's computing a fix could save.

    Attributes:
        ratio: 0 to 1, of its computing; 0: looked at, and fine. Of each step, shape (K,), or the same of all.
        certainty, action: as in `Candidate`. alternative: the look-alike.
    """

    ratio: float | Matrix
    evidence: tuple[Evidence, ...] = ()
    certainty: float = 1.0
    alternative: str = ""
    action: str = ""


def most(gpu: RankGpu, share: float, metric: Metric, *labels: str) -> float:
    """Return the most that a unit can have been active while the rank computed, 0 to 1; NaN where too little is known.

    Args:
        share: of the steps' time that the rank computed.
    """
    spans = gpu.between(gpu.values(metric, *labels))
    if gpu.coverage(spans) < threshold("gpu_covered_ratio"):
        return float("nan")
    return float(np.clip(gpu.mean(spans) / share, 0.0, 1.0))


def row(signal: str, value: float, limit: str, comparison: Literal["<", ">="], source: str, unit: str = "ratio") -> Evidence:
    """Return a value compared with the threshold of the name `limit`."""
    return Evidence(signal=signal, value=value, threshold=threshold(limit), comparison=comparison, unit=unit, source=source)
