"""Evidence of findings: a measured value, alone or compared with a threshold."""

from __future__ import annotations

from typing import SupportsFloat

from tachoscope_core.report.report import Evidence


def measured(signal: str, value: SupportsFloat, unit: str, source: str) -> Evidence:
    """Return a value as evidence; `source` is where it was measured."""
    return Evidence(signal=signal, value=float(value), unit=unit, source=source)


def compared(signal: str, value: SupportsFloat, least: float, unit: str, source: str) -> Evidence:
    """Return a value beside the least that counts: `>=` or `<`, whichever holds."""
    number = float(value)
    return Evidence(
        signal=signal,
        value=number,
        threshold=least,
        comparison=">=" if number >= least else "<",
        unit=unit,
        source=source,
    )
