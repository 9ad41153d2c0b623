"""`--from`, `--to` and `--last`: which part of a job to judge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.units import moment_of, seconds_of

FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="MOMENT", help="Start of the part to judge: 2026-03-01T14:30 (local time) or ...T14:30Z."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="MOMENT", help="End of the part to judge. Can be combined with --from or --last."),
]
LastOption = Annotated[
    str | None,
    typer.Option("--last", metavar="TIME", help="Judge this long before --to, by default the job's last step: 90s, 30m, 2h, 1d."),
]


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Part of a job to judge: `start` and `end` in Unix seconds, or the `last` seconds before `end`; None: no limit."""

    start: float | None = None
    end: float | None = None
    last: float | None = None


def window_of(from_: str | None, to: str | None, last: str | None) -> TimeWindow:
    """Return the window that options name.

    Raises:
        TachoscopeError: they contradict each other, or one is not a moment or a length of time.
    """
    if from_ and last:
        raise TachoscopeError("--from and --last cannot be combined", fix="leave one out")
    start, end = (moment_of(text) if text else None for text in (from_, to))
    if start is not None and end is not None and start >= end:
        raise TachoscopeError(f"--from {from_} is not before --to {to}")
    return TimeWindow(start=start, end=end, last=seconds_of(last) if last else None)
