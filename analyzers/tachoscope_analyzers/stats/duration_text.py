"""Lengths of time in words."""

from __future__ import annotations

import math

_UNITS = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def in_words(seconds: float) -> str:
    """Return a time with two to three digits in the unit that suits it, such as `38 min`, `2.5 h`, `0.25 s`."""
    if math.isinf(seconds):
        return "ever"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 1.5 * size), (1.0, "s"))
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 9.95 else f"{value:.2g} {unit}"
