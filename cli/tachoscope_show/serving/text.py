"""The part of a report that is about inference, for the terminal. Renders the report and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tachoscope_core.report.report import Report
from tachoscope_core.report.serving import Serving
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.state_bar import bar
from tachoscope_show.text.units import percent


def headline(report: Report, serving: Serving) -> Text:
    """Return the server, how much it served, and the productive share."""
    text = Text()
    text.append(report.job, style="bold")
    text.append(f"   {serving_words.summary(report, serving)}   ")
    text.append(f"productive share {'not known' if report.goodput is None else percent(report.goodput)}\n", style="bold")
    text.append(serving_words.rates(serving), style="dim")
    return text


def parts(report: Report, serving: Serving, console: Console) -> Iterator[RenderableType]:
    """Yield the engines' ledger, the latencies, and what is known of queue and cache."""
    for ledger in report.ledgers:
        if ledger.unit == "engine":
            states = ", ".join(f"{state} {percent(value / ledger.wall_seconds)}" for state, value in ledger.states.items())
            yield Text.assemble(bar(ledger, console), "\n", (f"engines: {states}", "dim"))
    if serving.latencies:
        yield _latencies(serving)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, words in serving_words.facts(serving):
        table.add_row(name, words)
    if table.row_count:
        yield table


def _latencies(serving: Serving) -> RenderableType:
    table = Table(*serving_words.LATENCY_HEAD, box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for row in serving.latencies:
        table.add_row(*serving_words.latency(row))
    return table
