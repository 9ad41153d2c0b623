"""The budgets of a fleet, and which of them a run exceeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tachoscope_core import yaml_text

BUDGETS = Path(__file__).parent / "budgets.yaml"


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a figure may be.

    Attributes:
        figure: its name in the figures of a run. what: for people. source: where the number is from.
        nodes: from how many nodes on it is judged: memory of a small fleet is mostly that of an empty server.
        samples: from how many samples a series on it is judged: what a few take is mostly the frame around them.
    """

    figure: str
    most: float
    what: str
    source: str
    nodes: int = 1
    samples: int = 0


def load() -> list[Budget]:
    return [Budget(**one) for one in yaml_text.load(BUDGETS.read_text())]


def exceeded(budgets: Sequence[Budget], figures: Mapping[str, float], nodes: int) -> list[str]:
    """Return a line for each budget that is exceeded. What was not measured is not judged."""
    return [
        f"{one.what}: {figures[one.figure]:.4g}, budget {one.most:g} ({one.source})"
        for one in budgets
        if nodes >= one.nodes and figures.get("samples_series", 0.0) >= one.samples and figures.get(one.figure, 0.0) > one.most
    ]
