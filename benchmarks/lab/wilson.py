"""How sure a share is of which few cases were counted."""

from __future__ import annotations

import math

_Z = 1.959964
"""Of a standard normal: 95 % lie within."""


def wilson(hits: int, cases: int) -> tuple[float, float]:
    """Return the 95 % score interval of a share, 0 to 1 without cases (Wilson 1927, https://doi.org/10.1080/01621459.1927.10502953).

    Raises:
        ValueError: there are more hits than cases, or fewer than none.
    """
    if not 0 <= hits <= cases:
        raise ValueError(f"{hits} hits of {cases} cases")
    if cases == 0:
        return 0.0, 1.0
    share, square = hits / cases, _Z**2
    middle = (share + square / (2 * cases)) / (1 + square / cases)
    half = _Z / (1 + square / cases) * math.sqrt(share * (1 - share) / cases + square / (4 * cases**2))
    return (middle - half if hits else 0.0), (middle + half if hits < cases else 1.0)
