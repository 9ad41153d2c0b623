"""What is logged to an experiment tracker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Results:
    """What a tracker gets.

    Attributes:
        metrics: by name, in the units that the names say. tags: by name.
        folder: holds the reports, on the last attempt and on the whole life, as JSON and HTML.
    """

    metrics: dict[str, float]
    tags: dict[str, str]
    folder: Path
