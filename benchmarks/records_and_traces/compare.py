"""Compares two reports on one job with each other and with the truth of the run. Knows nothing of how they came about."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.loops.judge import MACHINE, SEVERE
from benchmarks.loops.truth import Marks
from benchmarks.records_and_traces.cases import Case

NEAR_RATIO = 0.10


@dataclass(frozen=True)
class Told:
    """What one report says of the planted fault.

    Attributes:
        first: class of its first warning that is not of the machine. named: class of the finding that is of the fault, "" for none.
        seconds, interval, true_seconds: per step; the truth is that of the report's own window. steps: in that window.
    """

    first: str
    named: str
    ranks: Any
    seconds: float
    interval: tuple[float, float]
    true_seconds: float
    steps: int

    @property
    def ratio(self) -> float:
        """Seconds found by those that are true."""
        return self.seconds / self.true_seconds if self.true_seconds else 0.0

    @property
    def holds(self) -> bool:
        """Whether the interval holds the truth."""
        return self.interval[0] <= self.true_seconds <= self.interval[1]


def told(case: Case, report: Mapping[str, Any], marks: Marks) -> Told:
    """Return what a report says of a case."""
    window, step = report["window"], report["step_seconds"]["mean"]
    warnings = [one for one in report["findings"] if one["severity"] in SEVERE and one["class"] != MACHINE]
    found = next((one for one in report["findings"] if one["class"] in case.classes), None)
    low, high = found["share_ci"] if found else (0.0, 0.0)
    return Told(
        first=warnings[0]["class"] if warnings else "",
        named=found["class"] if found else "",
        ranks=found["ranks"] if found else None,
        seconds=found["seconds_per_step"] if found else 0.0,
        interval=(low * step, high * step),
        true_seconds=true_seconds(case, marks, window["start"], window["end"]),
        steps=window["steps"],
    )


def true_seconds(case: Case, marks: Marks, start: float, end: float) -> float:
    """Return the seconds of the fault per step, of the ranks that have it; of a transfer, on the rank that came last.

    A short window has more or fewer of what comes every few steps than its length says: they are counted.
    """
    faults = [own for all_marks in marks.values() if (own := [mark for mark in all_marks if mark.kind == "fault"])]
    each = [(one[0].began, [mark.seconds for mark in one]) for one in zip(*faults, strict=True)]
    transfer = case.classes == ("comm_exposed",)
    within = [min(seconds) if transfer else statistics.mean(seconds) for began, seconds in each if start <= began <= end]
    if not within:
        return 0.0
    if case.every == 1:
        return statistics.mean(within)
    own = next(all_marks for all_marks in marks.values() if any(mark.kind == "fault" for mark in all_marks))
    ends = [mark.began for mark in own if mark.kind == "step"]  # a step is marked when it is over
    half = statistics.median(after - before for before, after in pairwise(ends)) / 2
    return sum(within) / sum(start + half <= at <= end + half for at in ends)


@dataclass(frozen=True)
class Row:
    """Both reports on one run."""

    case: Case
    records: Told
    trace: Told

    @property
    def same_class(self) -> bool:
        """Whether both name one class, and that is right; of a clean run, that neither warns."""
        if not self.case.classes:
            return not self.records.first and not self.trace.first
        return self.records.named == self.trace.named and self.trace.named != ""

    @property
    def same_ranks(self) -> bool:
        """Whether both name the right ranks."""
        return not self.case.classes or self.records.ranks == self.trace.ranks == self.case.ranks

    @property
    def same_seconds(self) -> bool:
        """Whether their seconds, each by the truth of its own steps, differ by no more than a tenth."""
        if not self.case.classes:
            return True
        return self.records.ratio > 0 and abs(self.trace.ratio / self.records.ratio - 1) <= NEAR_RATIO


def compared(case: Case, records: Mapping[str, Any], trace: Mapping[str, Any], marks: Marks) -> Row:
    """Return the row of one run."""
    return Row(case, told(case, records, marks), told(case, trace, marks))


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    head = "| fault | records: class, ranks, ms a step (true) | trace: class, ranks, ms a step (true), interval | same |"
    return "\n".join([head, "|---|---|---|---|", *map(_line, rows)])


def _line(row: Row) -> str:
    agreed = {"class": row.same_class, "ranks": row.same_ranks, "seconds": row.same_seconds}
    same = ", ".join(f"{name} {'yes' if value else 'NO'}" for name, value in agreed.items())
    low, high = (1e3 * one for one in row.trace.interval)
    interval = f", {low:.1f} to {high:.1f} {'holds it' if row.trace.holds else 'does NOT hold it'}" if row.case.classes else ""
    return f"| {row.case.name} | {_side(row.case, row.records)} | {_side(row.case, row.trace)}{interval} | {same} |"


def _side(case: Case, one: Told) -> str:
    if not case.classes:
        return f"{one.first or 'no warning'} ({one.steps} steps)"
    ranks = one.ranks if isinstance(one.ranks, str) else ", ".join(map(str, one.ranks or ()))
    first = f" (first: {one.first or 'no warning'})" if one.first != one.named else ""
    named = f"{one.named or 'not found'}{first}, {ranks}"
    return f"{named}, {1e3 * one.seconds:.1f} ({1e3 * one.true_seconds:.1f}; {one.steps} steps)"


def summary(rows: Sequence[Row]) -> str:
    """Return in how many of the runs both agree."""
    planted = [row for row in rows if row.case.classes]
    near = [row for row in planted if abs(row.trace.ratio - 1) <= NEAR_RATIO]
    return "\n".join(
        [
            f"class the same and right: {sum(row.same_class for row in rows)} of {len(rows)}",
            f"ranks the same and right: {sum(row.same_ranks for row in rows)} of {len(rows)}",
            f"seconds of both within {NEAR_RATIO:.0%} of each other: {sum(row.same_seconds for row in planted)} of {len(planted)}",
            f"seconds of the trace within {NEAR_RATIO:.0%} of the truth: {len(near)} of {len(planted)}",
            f"interval of the trace holds the truth: {sum(row.trace.holds for row in planted)} of {len(planted)}",
        ]
    )
