"""How sure a benchmark's median is."""

from __future__ import annotations

RESAMPLES = 2000


def bootstrap(values: list[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the median; the seed is fixed: same data, same interval."""
    import numpy as np  # not before the measuring is over

    draws = np.random.default_rng(0).choice(values, size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return float(low), float(high)
