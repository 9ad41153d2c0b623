"""Seconds and ratios as people read them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """Return seconds in the unit that people read best."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def percent(ratio: float) -> str:
    """Return a ratio as a percentage."""
    return f"{ratio * 100:.1f} %"
