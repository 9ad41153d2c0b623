"""Which other runs are most likely what a run should be compared with: those named alike and made of the same things.

Only sorts. Which run is a fair baseline is for a person to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from tachoscope_analyzers.compare.lineage import differences

_MOST = 64
"""Runs whose names are compared letter by letter; of more, those that begin alike for longest."""
_NUMBERS = re.compile(r"\d+")
_WORDS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class BaselineCandidate:
    """A run that may be the baseline.

    Attributes:
        job: its name. same_pattern: whether the names differ in numbers only, such as dates and counts.
        name_ratio: how much of the names is the same, 0 to 1.
        different: of how many things it is known that it was made of others; None: nothing is known.
    """

    job: str
    same_pattern: bool
    name_ratio: float
    different: int | None


def pattern(name: str) -> str:
    """Return a name with its numbers left out: runs of one script are mostly named so."""
    return _NUMBERS.sub("#", name)


def likely_baselines(
    job: str, others: Iterable[str], lineages: Mapping[str, Mapping[str, str]] | None = None
) -> list[BaselineCandidate]:
    """Return the other runs, the likeliest baseline first; the job itself is none.

    Args:
        lineages: what runs were made of, by name, of as many as are known.
    """
    known = lineages or {}
    names = [other for other in dict.fromkeys(others) if other != job]
    near = set(sorted(names, key=lambda other: (-_shared_words(job, other), other))[:_MOST])
    found = [
        BaselineCandidate(
            other,
            pattern(other) == pattern(job),
            SequenceMatcher(None, job, other, autojunk=False).ratio() if other in near else 0.0,
            _different(known.get(job), known.get(other)),
        )
        for other in names
    ]
    return sorted(found, key=_order)


def _order(one: BaselineCandidate) -> tuple[bool, bool, int, float, str]:
    return (not one.same_pattern, one.different is None, one.different or 0, -one.name_ratio, one.job)


def _shared_words(one: str, other: str) -> int:
    return len(set(_WORDS.split(one)) & set(_WORDS.split(other)))


def _different(now: Mapping[str, str] | None, before: Mapping[str, str] | None) -> int | None:
    return len(differences(now, before)) if now and before else None
