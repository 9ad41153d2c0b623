"""The part of a report that is about a job's whole life, for the terminal. Renders the report and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tachoscope_core.report.job_life import Advice, Attempt, Life
from tachoscope_core.report.report import Report
from tachoscope_show.life import words as life_words
from tachoscope_show.text.state_bar import filled
from tachoscope_show.text.units import duration, percent

_PICTURE_WIDTH = 44
_SHOWN_ATTEMPTS = 40
_LOOKS = {"steps": "compute"}
"""New steps look like computing, which most of them should be."""


def headline(report: Report, life: Life) -> Text:
    """Return job, attempts, goodput, and what goodput is compared with."""
    text = Text()
    text.append(f"job {report.job}", style="bold")
    text.append(f"   the whole life: {life_words.summary(report, life)}   ")
    text.append(f"goodput {'not known' if report.goodput is None else percent(report.goodput)}\n", style="bold")
    text.append(life_words.allocated(life), style="dim")
    if life.cost is not None and life_words.tells_cost(life):
        text.append(f"\n{life_words.cost(life.cost)}", style="dim")
    return text


def states(report: Report, life: Life, console: Console) -> RenderableType:
    """Return the rows of the waterfall: share, hours, money."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    for state, seconds in report.ledgers[0].states.items():
        table.add_row(filled(state, 1, console), state, *life_words.state_row(state, seconds, report, life))
    if life.queued_seconds:
        return Group(table, Text("shares are of allocated time and queue together; goodput is of allocated time", style="dim"))
    return table


def parts(report: Report, life: Life, console: Console) -> Iterator[RenderableType]:
    """Yield attempts, recoveries, notices, checkpoints with advice, and suspects, as far as there are any."""
    if life.attempts:
        yield _attempts(report, life, console)
    if life.recoveries:
        yield _recoveries(life)
    if life.notices:
        yield _section("notices", [life_words.notice_outcome(one) for one in life.notices])
    if life.checkpoints is not None:
        yield _section("checkpoints", life_words.checkpoints(life.checkpoints))
    if life.advice:
        yield _advice(life.advice)
    if life.suspects:
        yield _section("failed more than others?", [life_words.suspect(one) for one in life.suspects])


def _section(title: str, lines: list[str]) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def _attempts(report: Report, life: Life, console: Console) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    length = report.window.end - report.window.start
    scale = "0" + duration(length).rjust(_PICTURE_WIDTH - 1)
    table.add_row(Text("attempt", style="dim"), Text(scale, style="dim"), "")
    for one in life.attempts[:_SHOWN_ATTEMPTS]:
        table.add_row(str(one.attempt), _picture(one, report, console), life_words.attempt(one))
    if len(life.attempts) > _SHOWN_ATTEMPTS:
        table.add_row("", Text(f"and {len(life.attempts) - _SHOWN_ATTEMPTS} more (--format json)", style="dim"), "")
    return Group(Text("attempts", style="bold"), table)


def _picture(one: Attempt, report: Report, console: Console) -> Text:
    """Return an attempt as a line over the life's time; each character is what was at its middle."""
    start, length = report.window.start, max(report.window.end - report.window.start, 1e-9)
    text = Text()
    for cell in range(_PICTURE_WIDTH):
        time = start + (cell + 0.5) / _PICTURE_WIDTH * length
        state = next((span.state for span in one.spans if span.start <= time < span.end), "")
        text.append_text(filled(_LOOKS.get(state, state), 1, console) if state else Text("·", style="dim"))
    return text


def _recoveries(life: Life) -> RenderableType:
    table = Table(
        *life_words.RECOVERY_TITLES, box=None, padding=(0, 1, 0, 0), title="recoveries", title_justify="left", title_style="bold"
    )
    for column in table.columns[4:]:
        column.justify = "right"
    for one in life.recoveries:
        table.add_row(*life_words.recovery(one))
    return table


def _advice(advice: list[Advice]) -> RenderableType:
    table = Table(
        *life_words.ADVICE_TITLES,
        box=None,
        padding=(0, 2, 0, 0),
        title="how often to save",
        title_justify="left",
        title_style="bold",
    )
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for one in advice:
        table.add_row(*life_words.advice(one))
    return Group(table, Padding(Text("formulas and inputs: --format html, or json", style="dim"), (0, 0, 0, 2)))
