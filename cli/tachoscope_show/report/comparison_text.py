"""A run against its baseline, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tachoscope_core.report.comparison import Comparison
from tachoscope_show.report import comparison_words

_STYLES = {"slower": "bold red", "faster": "bold green", "alike": "bold green", "unclear": "yellow", "not_comparable": "yellow"}


def parts(one: Comparison) -> Iterator[RenderableType]:
    """Yield the verdict, the rows, and what else differs."""
    yield Text(comparison_words.title(one), style="bold")
    yield Text(comparison_words.verdict(one), style=_STYLES[one.verdict])
    table = Table(*comparison_words.TITLES, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for row in comparison_words.rows(one):
        style = "" if row.certain else "dim"
        table.add_row(row.name, row.baseline, row.now, row.difference, row.interval, style=style)
    yield table
    for name, before, now in comparison_words.made_of(one):
        yield Padding(Text(f"made of: {name} {before} → {now}"), (0, 0, 0, 1))
    for note in one.notes:
        yield Padding(Text(f"note: {note}"), (0, 0, 0, 1))
