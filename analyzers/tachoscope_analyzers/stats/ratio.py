"""Parts of a whole."""

from __future__ import annotations


def percent(part: float, whole: float) -> float:
    """Return 100 part / whole, NaN where there is no whole."""
    return 100.0 * float(part) / float(whole) if whole else float("nan")
