"""Counts over the rows of runs: pure functions from rows to figures.

A run counts for the class that was injected. `unknown` for a loss whose cause was injected is an abstention: the fault was not
found by its name (recall), and nobody was sent after another cause (precision). A warning in a clean run counts against the class
that it names.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.lab.rows_of_runs import NOTHING, UNKNOWN, Row
from benchmarks.lab.wilson import wilson

SEVERE = 0.2
"""From this share of the clean step on a fault has to be found."""
SLIGHT = 0.1
"""A fault of this share of the clean step is one of 9.1 % of the step that it makes longer: a small loss, by design no warning."""
_CAME_OUT = 0.75
"""A fault that is aimed at so much costs at least this part of it, or it does not count as one of that size."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many cases."""

    hits: int
    cases: int

    @property
    def value(self) -> float | None:
        """The share, None without cases."""
        return self.hits / self.cases if self.cases else None

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval."""
        return wilson(self.hits, self.cases)


@dataclass(frozen=True, slots=True)
class OfClass:
    """How well a class is found. `abstained`: of its runs, those in which the loss was found and called unknown."""

    slug: str
    precision: Share
    recall: Share
    abstained: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if it was never rightly named."""
        wrong_or_missed = self.precision.cases + self.recall.cases
        return 2 * self.recall.hits / wrong_or_missed if wrong_or_missed else 0.0


def share(rows: Sequence[Row], hit: Callable[[Row], bool]) -> Share:
    """Return how many rows are hits."""
    return Share(sum(map(hit, rows)), len(rows))


def judged(rows: Sequence[Row]) -> list[Row]:
    """Return the runs that could be made. One that the analysis refused stays: nothing was found in it."""
    return [row for row in rows if not row.skipped]


def single(rows: Sequence[Row]) -> list[Row]:
    """Return the runs with one fault or none: those of a confusion matrix."""
    return [row for row in judged(rows) if len(row.faults) <= 1]


def severe(rows: Sequence[Row]) -> list[Row]:
    """Return the clean runs, and those with a fault that has to be found: large by its injector's clock, or without such one."""
    return [row for row in rows if not row.faults or row.severity == 0 or (row.severity >= SEVERE - 1e-9 and came_out(row))]


def came_out(row: Row) -> bool:
    """Return whether a run's only fault, if it has seconds, cost as much as it was aimed to: else it is a smaller one."""
    if len(row.faults) != 1 or not row.faults[0].seconds or not row.clean_step_seconds:
        return True
    return row.faults[0].seconds >= _CAME_OUT * SEVERE * row.clean_step_seconds


def confusion(rows: Sequence[Row]) -> dict[tuple[str, str], int]:
    """Return how many runs there are by injected and named class."""
    return dict(Counter((row.truth, row.predicted) for row in single(rows)))


def by_class(rows: Sequence[Row]) -> list[OfClass]:
    """Return each injected class with its precision and recall, in the order of their names."""
    of_one = single(rows)
    found = []
    for slug in sorted({row.truth for row in of_one} - {NOTHING}):
        mine = [row for row in of_one if row.truth == slug]
        named = [row for row in of_one if row.predicted == slug and not row.abstained]
        precision, recall = (share(some, lambda row: row.right) for some in (named, mine))
        found.append(OfClass(slug, precision, recall, sum(row.abstained for row in mine)))
    return found


def macro_f1(classes: Sequence[OfClass]) -> float | None:
    """Return the mean F1 over classes; None without any."""
    return statistics.fmean(one.f1 for one in classes) if classes else None


def ranks_right(rows: Sequence[Row]) -> Share:
    """Return how often the first finding names just the ranks into which the fault was injected, of the runs where these were some
    and not all. Whether the class is right is another matter; a run without a finding counts as wrong.
    """
    of_some = [row for row in single(rows) if row.faults and row.faults[0].ranks not in ("all", list(range(row.world_size)))]
    return share(of_some, lambda row: bool(row.named) and row.named[0].ranks == sorted(row.faults[0].ranks))


def wrongly_accused(rows: Sequence[Row]) -> Share:
    """Return how often single ranks are named where the fault was on all of them, or there was none."""
    of_all = [row for row in single(rows) if row.world_size > 1 and (not row.faults or row.faults[0].ranks == "all")]
    return share(of_all, lambda row: bool(row.named) and row.named[0].ranks not in ("all", list(range(row.world_size))))


def clean(rows: Sequence[Row]) -> list[Row]:
    """Return the clean runs that are no look-alikes of a fault."""
    return [row for row in judged(rows) if row.kind == "clean"]


def false_alarms(rows: Sequence[Row]) -> Share:
    """Return how many clean runs have a warning."""
    return share(clean(rows), lambda row: bool(row.named))


def slight_found(rows: Sequence[Row]) -> Share:
    """Return how often a slight fault is the first loss that is reported, as a warning or as a small loss."""
    return share([row for row in single(rows) if row.faults and row.severity == SLIGHT], lambda row: row.right_with_small)


def with_small_losses(rows: Sequence[Row]) -> Share:
    """Return how many clean runs have a small loss."""
    return share(clean(rows), lambda row: bool(row.small))


def alarms_per_1000_steps(rows: Sequence[Row]) -> float | None:
    """Return the warnings in clean runs per 1,000 steps of them; None without steps."""
    steps = sum(row.steps for row in clean(rows))
    return 1000 * sum(len(row.named) for row in clean(rows)) / steps if steps else None


def seconds_errors(rows: Sequence[Row]) -> list[float]:
    """Return for each rightly named fault |attributed - injected| / injected seconds, ascending."""
    known = [row for row in single(rows) if row.faults and row.right and row.faults[0].seconds > 0]
    return sorted(abs(row.named[0].seconds / row.faults[0].seconds - 1) for row in known)


def lookalikes(rows: Sequence[Row]) -> dict[str, Share]:
    """Return by pair of look-alikes how often the right one of the two was named."""
    pairs = sorted({row.lookalike for row in judged(rows)} - {""})
    return {pair: share([row for row in single(rows) if row.lookalike == pair], lambda row: row.right) for pair in pairs}


def both_found(rows: Sequence[Row]) -> tuple[Share, Share]:
    """Return in how many runs with two faults both were named, and in how many the first finding is one of them."""
    pairs = [row for row in judged(rows) if len(row.faults) == 2]

    def slugs(row: Row) -> set[str]:
        return {fault.slug for fault in row.faults}

    both = share(pairs, lambda row: slugs(row) <= {one.slug for one in row.named})
    return both, share(pairs, lambda row: bool(row.named) and row.named[0].slug in slugs(row) | set(row.acceptable))


def abstentions(rows: Sequence[Row]) -> Share:
    """Return how many of the runs with a fault that has a name were called unknown."""
    return share([row for row in single(rows) if row.truth not in (NOTHING, UNKNOWN)], lambda row: row.abstained)


def wrong_names(rows: Sequence[Row]) -> Share:
    """Return how many of the names that were given, in clean runs too, are wrong."""
    named = [row for row in single(rows) if row.predicted not in (NOTHING, UNKNOWN)]
    return share(named, lambda row: not row.right)


def detected_after(rows: Sequence[Row]) -> list[int]:
    """Return after how many steps rightly named faults were found, ascending."""
    return sorted(row.steps_to_detect for row in single(rows) if row.steps_to_detect is not None)
