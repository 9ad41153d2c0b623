"""The ledger of each rank as a bar."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.report.report import Ledger, Report
from tachoscope_show.report import finding_words
from tachoscope_show.text.units import percent

_RANK_STATES = 3
"""Number of a rank's states that stand beside its bar, the longest."""


@dataclass(frozen=True, slots=True)
class RankBar:
    """A rank's ledger: `width` is its step's part of the longest, `named` the classes of findings that name the rank."""

    ledger: Ledger
    width: float
    step_seconds: float
    states: str
    named: list[str]


def bars(report: Report) -> list[RankBar]:
    """Return the bars of all ranks."""
    ledgers = [ledger for ledger in report.ledgers[1:] if ledger.unit == "rank"]
    longest = max((ledger.wall_seconds for ledger in ledgers), default=0.0)
    named: dict[int | None, list[str]] = {}
    for finding in finding_words.large(report):
        for rank in finding.ranks if not isinstance(finding.ranks, str) else []:
            named.setdefault(rank, []).append(finding.class_)
    return [
        RankBar(
            ledger,
            ledger.wall_seconds / longest,
            ledger.wall_seconds / max(report.window.steps, 1),
            ", ".join(f"{state} {percent(value / ledger.wall_seconds)}" for state, value in _largest(ledger)),
            named.get(ledger.rank, []),
        )
        for ledger in ledgers
    ]


def first(of_ranks: list[RankBar], most: int) -> list[RankBar]:
    """Return the bars to look at first: of ranks that findings name, then of those that wait least for others."""
    return sorted(of_ranks, key=lambda one: (not one.named, _waited(one.ledger), one.ledger.rank or 0))[:most]


def _waited(ledger: Ledger) -> float:
    return ledger.states.get("straggler_wait", 0.0) / ledger.wall_seconds


def _largest(ledger: Ledger) -> list[tuple[str, float]]:
    return sorted(ledger.states.items(), key=lambda row: -row[1])[:_RANK_STATES]
