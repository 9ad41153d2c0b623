"""The step as a sum, as recorded operations were replayed: rows for the terminal and for the page."""

from __future__ import annotations

from html import escape

from rich.table import Table

from tachoscope_core.report.report import Report
from tachoscope_show.text.units import percent

TITLE = "the step as a sum"
_HEADS = ("part", "of the step", "of the gap to the ideal", "saved if only this is fixed")


def rows(report: Report) -> list[tuple[str, str, str, str]]:
    """Return name, seconds, share of the gap and what mending it alone saves; the last row is the step."""
    found = [
        (
            part.name,
            _milliseconds(part.seconds),
            "" if part.share is None else percent(part.share),
            "" if part.saved_seconds is None else _milliseconds(part.saved_seconds),
        )
        for part in report.step_sum
    ]
    return [*found, ("step as recorded", _milliseconds(report.step_seconds.mean), "", "")]


def table(report: Report) -> Table:
    """Return the sum for the terminal."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), title=TITLE, title_justify="left", title_style="bold")
    for index, head in enumerate(_HEADS):
        drawn.add_column(head, justify="right" if index else "left", header_style="dim")
    *parts, whole = rows(report)
    for row in parts:
        drawn.add_row(*row)
    drawn.add_section()
    drawn.add_row(*whole, style="bold")
    return drawn


def html(report: Report) -> str:
    """Return the sum for the page, nothing without one."""
    if not report.step_sum:
        return ""
    heads = "".join(
        f'<th class="n">{escape(head)}</th>' if index else f"<th>{escape(head)}</th>" for index, head in enumerate(_HEADS)
    )
    *parts, whole = rows(report)
    lines = "".join(_line(escape(name), cells) for name, *cells in parts) + _line(f"<b>{escape(whole[0])}</b>", [*whole[1:]])
    return f'<h2>{TITLE.capitalize()}</h2><div class="wide"><table><tr>{heads}</tr>{lines}</table></div>'


def _line(name: str, cells: list[str]) -> str:
    """Return a row; `name` is HTML."""
    numbers = "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
    return f"<tr><td>{name}</td>{numbers}</tr>"


def _milliseconds(seconds: float) -> str:
    """Return all rows in one unit, so that they can be added."""
    return f"{seconds * 1e3:,.2f} ms"
