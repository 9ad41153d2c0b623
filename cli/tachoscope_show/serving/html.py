"""The part of a report that is about inference, on a page. Renders the report and computes nothing."""

from __future__ import annotations

from html import escape

from tachoscope_core.report.report import Report
from tachoscope_core.report.serving import Serving
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.units import percent


def headline(report: Report, serving: Serving) -> str:
    """Return the server, how much it served, and goodput."""
    goodput = "not known" if report.goodput is None else percent(report.goodput)
    summary = escape(serving_words.summary(report, serving))
    return f'<p>{summary}, goodput <b>{goodput}</b></p><p class="dim">{escape(serving_words.rates(serving))}</p>'


def body(serving: Serving) -> str:
    """Return the latencies, and what is known of queue and cache."""
    head = "".join(f'<th class="n">{name}</th>' if name else "<th></th>" for name in serving_words.LATENCY_HEAD)
    rows = "".join(_latency(serving_words.latency(row)) for row in serving.latencies)
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(words)}</td></tr>" for name, words in serving_words.facts(serving))
    latencies = f'<h2>Latencies</h2><div class="wide"><table><tr>{head}</tr>{rows}</table></div>' if rows else ""
    return f'{latencies}<p></p><table class="note">{facts}</table>' if facts else latencies


def _latency(cells: tuple[str, ...]) -> str:
    name, *values = cells
    numbers = "".join(f'<td class="n">{escape(value)}</td>' for value in values)
    return f"<tr><td>{escape(name)}</td>{numbers}</tr>"
