"""A run against its baseline, as HTML."""

from __future__ import annotations

from html import escape

from tachoscope_core.report.comparison import Comparison
from tachoscope_show.report import comparison_words


def body(one: Comparison) -> str:
    """Return verdict, rows, what differs in what the runs are made of, and notes."""
    heads = "".join(f'<th class="n">{escape(name)}</th>' for name in comparison_words.TITLES[1:])
    look = one.severity or "info"
    return (
        f"<h2>A{escape(comparison_words.title(one)[1:])}</h2>"
        f'<div class="card {look}"><b>{escape(comparison_words.verdict(one))}</b></div>'
        f'<div class="wide"><table><tr><th>time a step</th>{heads}</tr>{_rows(one)}</table></div>'
        f"{_made_of(one)}{_notes(one)}"
    )


def _rows(one: Comparison) -> str:
    lines = []
    for row in comparison_words.rows(one):
        cells = "".join(f'<td class="n">{escape(cell)}</td>' for cell in (row.baseline, row.now, row.difference, row.interval))
        name = f"<b>{escape(row.name)}</b>" if row.certain else escape(row.name)
        lines.append(f"<tr><td>{name}</td>{cells}</tr>")
    return "".join(lines)


def _made_of(one: Comparison) -> str:
    found = comparison_words.made_of(one)
    if not found:
        return ""
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in found)
    heads = "<tr><th>made of</th><th>baseline</th><th>now</th></tr>"
    return f'<div class="wide"><table>{heads}{lines}</table></div>'


def _notes(one: Comparison) -> str:
    lines = "".join(f"<li>{escape(note)}</li>" for note in one.notes)
    return f'<ul class="note">{lines}</ul>' if lines else ""
