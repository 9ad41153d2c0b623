"""What a rate is compared with: the distribution of the same rate on other hosts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tachoscope_analyzers.data.thresholds import preflight_threshold as threshold

_DEVIATION = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""
_TENTH = 1.2816
"""Standard deviations below the mean, under which a tenth of normal noise is."""


@dataclass(frozen=True, slots=True)
class Reference:
    """`usual`: the median over hosts of their medians. `least`: a lower rate is unfit."""

    usual: float
    least: float
    hosts: int

    @property
    def tells(self) -> bool:
        """Whether a rate that is not below `least` means anything: where hosts differ too much, nothing ever is."""
        return self.least >= threshold("least_told") * self.usual


def reference(rates_by_host: Mapping[str, Sequence[float]], share: str = "share") -> Reference | None:
    """Return what the rates of other hosts, the newest of each, make usual; None: the hosts are too few.

    Deviations are of logarithms, as rates of computers differ by ratios: a limit is never negative. They are those of all results
    around the median, so that they hold how hosts differ and how one differs from time to time; of the median deviation and that of
    the lowest tenth the larger, as rates have a long tail below. Of few hosts the deviation is not well known: it is taken as
    larger by the standard error of its estimate, about one in the root of their number.

    Args:
        share: name of the threshold below which a difference counts for nothing.
    """
    by_host = {host: [rate for rate in rates if rate > 0] for host, rates in rates_by_host.items()}
    by_host = {host: rates for host, rates in by_host.items() if rates}
    if len(by_host) < threshold("hosts"):
        return None
    usual = statistics.median(statistics.median(rates) for rates in by_host.values())
    distances = sorted(math.log(rate / usual) for rates in by_host.values() for rate in rates)
    tail = -distances[len(distances) // 10] / _TENTH
    deviation = max(_DEVIATION * statistics.median(map(abs, distances)), tail)
    deviation *= 1 + 1 / math.sqrt(len(by_host))
    lower = math.exp(-threshold("deviations") * deviation)
    return Reference(usual, usual * min(lower, 1 - threshold(share)), len(by_host))
