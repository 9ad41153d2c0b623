"""Whether confidence is what it says: of the names told with 0.8, four of five have to be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.lab.rows_of_runs import UNKNOWN, Row
from benchmarks.lab.tally import Share, judged

BINS = 10


@dataclass(frozen=True, slots=True)
class Told:
    """A name that was told in some run, with its confidence, and whether it was right."""

    slug: str
    confidence: float
    score: float
    right: bool


@dataclass(frozen=True, slots=True)
class Bin:
    """Names of about the same confidence: its mean, and how many were right."""

    confidence: float
    right: Share


def told(rows: Sequence[Row]) -> list[Told]:
    """Return all names of all runs. Right is what was injected into the run, or is as acceptable; `unknown` is not a name."""
    return [
        Told(one.slug, one.confidence, one.score, one.slug in _right(row))
        for row in judged(rows)
        for one in row.named
        if one.slug != UNKNOWN
    ]


def suspected(rows: Sequence[Row]) -> list[Told]:
    """Return the same before calibration, with the names that were withheld: what a calibration is learned on."""
    return [
        Told(one.suspected, one.confidence, one.score, one.suspected in _right(row))
        for row in judged(rows)
        for one in row.named
        if one.suspected != UNKNOWN
    ]


def _right(row: Row) -> set[str]:
    return {fault.slug for fault in row.faults} | set(row.acceptable)


def bins(names: Sequence[Told]) -> list[Bin]:
    """Return the names in ten bins of equal width, without those that are empty."""
    found = []
    for number in range(BINS):
        inside = [one for one in names if min(int(one.confidence * BINS + 1e-9), BINS - 1) == number]
        if inside:
            found.append(Bin(fmean(one.confidence for one in inside), Share(sum(one.right for one in inside), len(inside))))
    return found


def brier(names: Sequence[Told]) -> float | None:
    """Return the mean squared distance of confidence from what was true (Brier 1950); None without names."""
    return fmean((one.confidence - one.right) ** 2 for one in names) if names else None


def expected_calibration_error(names: Sequence[Told]) -> float | None:
    """Return the mean distance of confidence from the share that is right, by bin, weighted by its names (Naeini et al. 2015)."""
    if not names:
        return None
    return sum(one.right.cases * abs(one.confidence - one.right.hits / one.right.cases) for one in bins(names)) / len(names)


@dataclass(frozen=True, slots=True)
class Gate:
    """What comes of naming only from some confidence on: the share of the names that are left, and how many of these are right."""

    least: float
    coverage: Share
    right: Share


def gates(names: Sequence[Told]) -> list[Gate]:
    """Return what each gate would leave, one for each confidence that occurs, ascending."""
    found = []
    for least in sorted({one.confidence for one in names}):
        left = [one for one in names if one.confidence >= least]
        found.append(Gate(least, Share(len(left), len(names)), Share(sum(one.right for one in left), len(left))))
    return found
