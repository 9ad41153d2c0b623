"""The classes that step records alone cannot show, and the signal that each of them lacks: `missing_signals.yaml`."""

from __future__ import annotations

from functools import cache

from tachoscope_analyzers.data.package_data import shipped


@cache
def missing_signals() -> dict[str, str]:
    """Return, for each class that the step records alone cannot show, the signal that is missing."""
    loaded: dict[str, str] = shipped("findings/missing_signals.yaml")
    return loaded
