"""The part of a report that is about a job's whole life, as HTML. Renders the report and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tachoscope_core.report.job_life import Attempt, Life
from tachoscope_core.report.report import Report
from tachoscope_show.life import words as life_words
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import duration, percent

STYLE = """
.life svg{display:block;width:100%;height:1.1rem;background:#eef1f4;border-radius:3px;margin:.1rem 0 .7rem}
.life p{margin:0;overflow-wrap:anywhere} .axis{display:flex;justify-content:space-between}
.legend>span{display:inline-block;margin-right:1rem} body{max-width:66rem}
.states{white-space:nowrap} .stack{font-size:.875rem} .stack td,.stack th{padding-right:.6rem}
.stack td.n{white-space:normal} .stack td:nth-child(4){white-space:nowrap}
@media(max-width:64rem){.stack,.stack tbody{display:block} .stack thead{display:none}
.stack tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(7.5rem,1fr));gap:.3rem .8rem}
.stack tr{padding:.5rem 0;border-top:1px solid #d1d9e0} .stack td,.stack td.n{padding:0;text-align:left}
.stack td{min-width:0;overflow-wrap:anywhere} .stack td::before{content:attr(data-title);display:block}
.stack td::before{color:#59636e;font-size:.8rem}}
@media(max-width:40rem){.states,.plain{font-size:.8rem} .plain th{white-space:normal}
.states td,.states th,.plain td,.plain th{padding-right:.4rem}}
"""
_STEPS_COLOR = "#7BC8A4"
"""Not that of the ledger's compute, which is only a part of the new steps."""
LEGEND = {"steps": "new steps (compute, communication and waits together)", "lost_work": "lost_work (steps done again)"}
"""What spans of an attempt are called where their state alone would mislead."""
_TICKS = 4


def headline(report: Report, life: Life) -> str:
    """Return attempts, goodput, and what goodput is compared with."""
    goodput = "not known" if report.goodput is None else percent(report.goodput)
    # Without a price, rank-hours say no more than the allocated time.
    told = life.cost is not None and (life.cost.money is not None or life.cost.unit == "GPU")
    cost = f"<br>{escape(life_words.cost(life.cost))}" if life.cost is not None and told else ""
    return (
        f"<p>The whole life: {escape(life_words.summary(report, life))}; goodput <b>{goodput}</b></p>"
        f'<p class="dim">{escape(life_words.allocated(life))}{cost}</p>'
    )


def body(report: Report, life: Life) -> str:
    """Return the waterfall's rows, the picture of the attempts, and what is known of recoveries, checkpoints and suspects."""
    checkpoints = life_words.checkpoints(life.checkpoints) if life.checkpoints is not None else []
    basis = "".join(f"<li>{escape(one.what)}: {escape(one.basis)}</li>" for one in life.advice)
    return "".join(
        [
            _states(report, life),
            _attempts(report, life),
            _recoveries(life),
            _list("Notices", [life_words.notice(one) for one in life.notices]),
            _list("Checkpoints", checkpoints),
            _table("How often to save", life_words.ADVICE_TITLES, [life_words.advice(one) for one in life.advice], left=1),
            f'<details><summary>What this follows from</summary><ul class="note">{basis}</ul></details>' if basis else "",
            _list("Failed more than others?", [life_words.suspect(one) for one in life.suspects]),
        ]
    )


def _states(report: Report, life: Life) -> str:
    found = [(state, life_words.state_row(state, seconds, report, life)) for state, seconds in report.ledgers[0].states.items()]
    priced = any(cells[-1] for _, cells in found)
    heads = ("share", "rank time", "cost") if priced else ("share", "rank time")
    rows = []
    for state, texts in found:
        cells = "".join(f'<td class="n">{escape(text or "-")}</td>' for text in texts[: len(heads)])
        rows.append(f'<tr><td><span class="key" style="background:{color(state)}"></span> {escape(state)}</td>{cells}</tr>')
    head = "".join(f'<th class="n">{name}</th>' for name in heads)
    of = "shares are of allocated time and queue together; goodput is of allocated time" if life.queued_seconds else ""
    note = f'<p class="dim">{of}</p>' if of else ""
    return f'<div class="wide"><table class="states"><tr><th>state</th>{head}</tr>{"".join(rows)}</table></div>{note}'


def _attempts(report: Report, life: Life) -> str:
    """Return a strip for each attempt, all over the time of the life."""
    if not life.attempts:
        return ""
    length = report.window.end - report.window.start
    ticks = "".join(f"<span>{duration(length * tick / _TICKS)}</span>" for tick in range(_TICKS + 1))
    seen = dict.fromkeys(span.state for one in life.attempts for span in one.spans)
    keys = ((state, f'<span class="key" style="background:{span_color(state)}"></span>') for state in seen)
    legend = "".join(f"<span>{key} {escape(LEGEND.get(state, state))}</span>" for state, key in keys)
    strips = "".join(_strip(one, report.window.start, length) for one in life.attempts)
    return f'<h2>Attempts</h2><p class="dim legend">{legend}</p><div class="life">{strips}<div class="axis dim">{ticks}</div></div>'


def _strip(one: Attempt, start: float, length: float) -> str:
    scale = 1000 / length if length > 0 else 0.0
    parts = "".join(
        f'<rect x="{(span.start - start) * scale:.2f}" width="{max((span.end - span.start) * scale, 0.5):.2f}" height="10" '
        f'fill="{span_color(span.state)}"><title>{escape(span.state)} {duration(span.end - span.start)}</title></rect>'
        for span in one.spans
    )
    words = escape(life_words.attempt(one))
    return (
        f'<p class="dim"><b>attempt {one.attempt}</b> {words}</p>'
        f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="attempt {one.attempt}">{parts}</svg>'
    )


def span_color(state: str) -> str:
    """Return the colour of a span of an attempt: that of its state, or of new steps in all their states."""
    return _STEPS_COLOR if state == "steps" else color(state)


def _recoveries(life: Life) -> str:
    """Return a table of many columns, whose rows become blocks of named cells where the window is too narrow for it."""
    rows = [life_words.recovery(one) for one in life.recoveries]
    return _table("Recoveries", life_words.RECOVERY_TITLES, rows, left=4, look="stack")


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int, look: str = "plain") -> str:
    """Return a table; its first `left` columns are words, the others numbers."""
    if not rows:
        return ""
    css = ["" if index < left else ' class="n"' for index in range(len(heads))]
    head = "".join(f"<th{side}>{escape(name)}</th>" for side, name in zip(css, heads, strict=True))
    lines = []
    for row in rows:
        cells = zip(css, heads, row, strict=True)
        lines.append("".join(f'<td{side} data-title="{escape(name)}">{escape(cell)}</td>' for side, name, cell in cells))
    filled = "".join(f"<tr>{line}</tr>" for line in lines)
    table = f'<table class="{look}"><thead><tr>{head}</tr></thead><tbody>{filled}</tbody></table>'
    return f'<h2>{title}</h2><div class="wide">{table}</div>'


def _list(title: str, lines: Sequence[str]) -> str:
    rows = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<h2>{title}</h2><ul class="note">{rows}</ul>' if rows else ""
