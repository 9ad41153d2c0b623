"""The classifier's thresholds, read from `thresholds.yaml`, where each stands beside its source."""

from __future__ import annotations

from functools import cache

from tachoscope_analyzers.data.package_data import shipped


@cache
def sources() -> dict[str, tuple[float, str]]:
    """Return value and source of each threshold by its name."""
    return {name: (float(entry["value"]), str(entry["source"])) for name, entry in shipped("data/thresholds.yaml").items()}


def threshold(name: str) -> float:
    """Return the value of a threshold; KeyError for a name that the file lacks."""
    return sources()[name][0]
