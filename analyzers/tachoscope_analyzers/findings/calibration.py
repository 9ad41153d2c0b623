"""How probable it is that a finding names the right class, learned on runs with an injected fault (docs/develop/accuracy.md).

A finding's score is what can be told without them: the part of the resamples in which the loss is above the warning threshold,
times the candidate's certainty. `calibration.yaml` says of each class how often findings with such a score were right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from tachoscope_analyzers.data.package_data import shipped
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_core.report.report import Evidence

MOST = 0.99
"""Nothing is told with a higher confidence: a fault that was never injected can always be behind it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """How often a class was rightly named, by score: straight lines between points, neither of which ever falls.

    Attributes:
        scores, probabilities: of the points, 0 to 1. findings: with how many findings it was learned; right: how many were.
    """

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    findings: int = 0
    right: int = 0

    def __post_init__(self) -> None:
        ordered = all(list(row) == sorted(row) for row in (self.scores, self.probabilities))
        if not (0 < len(self.scores) == len(self.probabilities)) or not ordered:
            raise ValueError(f"a curve needs as many scores as probabilities, both ascending: {self.scores}, {self.probabilities}")

    def at(self, score: float) -> float:
        """Return the probability, 0 to 1, at a score, interpolated between those that were learned."""
        return float(np.interp(score, self.scores, self.probabilities))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The curves of the classes that were injected; `origin`: on what they were learned."""

    curves: Mapping[str, Curve]
    origin: str = ""

    def probability(self, slug: str, score: float) -> float | None:
        """Return how probable it is that a finding of that class and score is right; None of a class that was never injected."""
        curve = self.curves.get(slug)
        return None if curve is None else min(curve.at(score), MOST)

    def withheld(self, slug: str, score: float) -> Evidence | None:
        """Return why a class is not named, None where it is: it is more than the gate, or nothing is known of its confidence."""
        probability = self.probability(slug, score)
        if probability is None or probability >= threshold("name_confidence"):
            return None
        return Evidence(
            signal=f"confidence that it is {slug}",
            value=probability,
            threshold=threshold("name_confidence"),
            comparison="<",
            unit="ratio",
            source=self.origin,
        )


NOT_CALIBRATED = Calibration({})
"""Tells a finding's score as its confidence, and names every class."""


def from_document(document: Mapping[str, object]) -> Calibration:
    """Return what a document such as `calibration.yaml` holds; KeyError, TypeError or ValueError if it is none."""
    classes = document["classes"]
    assert isinstance(classes, Mapping)
    curves = {
        str(slug): Curve(tuple(row["scores"]), tuple(row["probabilities"]), int(row["findings"]), int(row["right"]))
        for slug, row in classes.items()
    }
    return Calibration(curves, str(document["origin"]))


@cache
def shipped_calibration() -> Calibration:
    """Return the calibration that comes with the package, for findings from step records: it is what the runs were judged by."""
    return from_document(shipped("findings/calibration.yaml"))
