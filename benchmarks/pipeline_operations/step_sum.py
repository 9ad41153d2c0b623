"""The step as a sum of its causes: the ideal step first, then the Shapley value of each cause, and what no cause is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from benchmarks.pipeline_operations.attribution import Attribution
from benchmarks.pipeline_operations.causes import TITLES
from rich.table import Table

from tachoscope_show.text.units import percent

TITLE = "the step as a sum"
_HEADS = ("part", "of the step", "of the gap to the ideal", "saved if only this is fixed")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A summand of the mean step.

    Attributes:
        seconds: per step; below zero it makes the step shorter. share: of the gap to the ideal step; None: no part of the gap.
        saved_seconds: per step, if only this is fixed and all else stays; None: nothing to fix.
    """

    name: str
    seconds: float
    share: float | None = None
    saved_seconds: float | None = None


def parts(found: Attribution) -> list[Part]:
    """Return the summands of the mean step; none where its replay cannot be trusted."""
    if found.refusal:
        return []
    causes = [
        Part(name=TITLES[cause], seconds=float(values.mean()), share=found.shares[cause], saved_seconds=found.saved(cause))
        for cause, values in found.causes.values.items()
    ]
    rest = {"launch and host delay": found.delay, "unexplained": found.unexplained, "error of the replay": found.error}
    return [
        Part(name="ideal step", seconds=float(found.ideal.mean())),
        *sorted(causes, key=lambda part: -part.seconds),
        *(Part(name=name, seconds=float(seconds.mean()) + 0.0) for name, seconds in rest.items()),
    ]


def rows(summands: Sequence[Part], step_seconds: float) -> list[tuple[str, str, str, str]]:
    """Return name, seconds, share of the gap and what fixing it alone saves; the last row is the step."""
    found = [
        (
            part.name,
            _milliseconds(part.seconds),
            "" if part.share is None else percent(part.share),
            "" if part.saved_seconds is None else _milliseconds(part.saved_seconds),
        )
        for part in summands
    ]
    return [*found, ("step as recorded", _milliseconds(step_seconds), "", "")]


def table(summands: Sequence[Part], step_seconds: float) -> Table:
    """Return the sum for the terminal."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), title=TITLE, title_justify="left", title_style="bold")
    for index, head in enumerate(_HEADS):
        drawn.add_column(head, justify="right" if index else "left", header_style="dim")
    *some, whole = rows(summands, step_seconds)
    for row in some:
        drawn.add_row(*row)
    drawn.add_section()
    drawn.add_row(*whole, style="bold")
    return drawn


def _milliseconds(seconds: float) -> str:
    """Return all rows in one unit, so that they can be added."""
    return f"{seconds * 1e3:,.2f} ms"
