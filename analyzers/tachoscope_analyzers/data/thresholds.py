"""The classifier's thresholds, read from `thresholds.yaml`, where each stands beside its source; those of preflights
from `preflight.yaml`.
"""

from __future__ import annotations

from functools import cache

from tachoscope_analyzers.data.package_data import shipped


@cache
def sources(file: str = "thresholds") -> dict[str, tuple[float, str]]:
    """Return value and source of each threshold of a file by its name."""
    return {name: (float(entry["value"]), str(entry["source"])) for name, entry in shipped(f"data/{file}.yaml").items()}


def threshold(name: str) -> float:
    """Return the value of a threshold; KeyError for a name that the file lacks."""
    return sources()[name][0]


def preflight_threshold(name: str) -> float:
    """Return the value of a limit of preflights; KeyError for a name that the file lacks."""
    return sources("preflight")[name][0]
