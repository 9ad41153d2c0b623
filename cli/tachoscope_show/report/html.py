"""A report as one self-contained HTML page."""

from __future__ import annotations

import re
from html import escape

from tachoscope_core.report.report import Evidence, Finding, Ledger, Report, speedup_text
from tachoscope_show.life import html as life_html
from tachoscope_show.report import comparison_html, verdict_words
from tachoscope_show.report import trend_html as course_html
from tachoscope_show.report.change_rows import ChangeRow, rows
from tachoscope_show.report.finding_words import (
    culprits_text,
    goodput,
    loss_text,
    nothing_found,
    quantity,
    share_text,
    stands,
    tells_speedup,
    unit_of,
    unit_seconds,
    verdict_text,
)
from tachoscope_show.serving import html as serving_html
from tachoscope_show.text.runbook_pages import text_of
from tachoscope_show.text.safe_text import in_lines
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import counted, percent, seconds

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin:0 0 .3rem} body>h2{margin-top:1.4rem} .dim{color:#59636e;font-size:.9rem}
.bar{display:flex;height:2rem;border-radius:4px;overflow:hidden;margin:1rem 0 .5rem} table{border-collapse:collapse}
th{white-space:nowrap} td,th{padding:.15rem 1rem .15rem 0;text-align:left;vertical-align:top} td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px} .card{border:1px solid #d1d9e0;border-left-width:6px;
border-radius:6px;padding:.8rem 1rem;margin:1rem 0} .critical{border-left-color:#cf222e} .warning{border-left-color:#bf8700}
.info{border-left-color:#0969da} .tag{font-size:.8rem;font-weight:600;text-transform:uppercase}
.wide{overflow-x:auto;background:linear-gradient(90deg,#fff 30%,#fff0) left/3rem 100% local no-repeat,linear-gradient(270deg,#fff 30%,#fff0) right/3rem 100% local no-repeat,
linear-gradient(90deg,#59636e66,#59636e00) left/1rem 100% scroll no-repeat,linear-gradient(270deg,#59636e66,#59636e00) right/1rem 100% scroll no-repeat} td.name{overflow-wrap:anywhere;min-width:14rem} .thin{height:1.1rem;margin:.1rem 0 .6rem}
.first{margin:.6rem 0 1rem} .first p{margin:.2rem 0} .verdict{font-size:1.25rem;font-weight:600} .first .condition{margin-top:.5rem;padding-left:.6rem;border-left:4px solid #bf8700}
.late{border-left:4px solid #cf222e;padding-left:.6rem;margin-left:calc(-.6rem - 4px)} .card td,.note{overflow-wrap:anywhere}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.85rem} summary{cursor:pointer}
@media(max-width:40rem){body{margin:1rem auto} .card{padding:.6rem} .card tr,.card th,.card td,.note tr,.note th,.note td{display:block;padding:0}
.card td,.note td{margin-bottom:.5rem}}
"""
_RANK_STATES = 3
"""Of a rank's states so many are named beside its bar, the longest."""


def render(report: Report) -> str:
    """Return the page."""
    report = in_lines(report)
    ledger = report.ledgers[0]
    cards = "".join(_card(finding, report) for finding in report.findings)
    verdict = "" if not nothing_found(report) else f"<p><b>{verdict_text(report)}</b></p>"
    missing = "".join(f"<tr><td>{escape(r.class_)}</td><td>{escape(r.missing)}</td></tr>" for r in report.not_measured)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{escape(report.job)}: tachoscope</title><style>{_STYLE}{life_html.STYLE if report.life else ""}{course_html.STYLE if report.course else ""}</style></head><body>
<h1>{escape(report.job)}</h1>
{_first_lines(report)}
{_head(report)}
{_quality(report)}{_review(report)}{"" if stands(report) else _bar(ledger, _label(report))}
{_body(report)}{_against(report)}{course_html.body(report)}{verdict}{cards}
{_changes(report)}{_by_rank(report)}{_lineage(report)}
<details><summary>Not measured: neither found nor ruled out</summary><table class="note">{missing}</table></details>
<p class="dim">{"<br>".join(escape(f"{s.records:,} {s.unit} from {s.path}") for s in report.sources)}</p></body></html>
"""


def _first_lines(report: Report) -> str:
    lines = verdict_words.first_lines(report)
    rows = [escape(lines.size), f"Do: {_coded(lines.action)}" if lines.action else ""]
    conditions = "".join(f'<p class="condition">{escape(line)}</p>' for line in lines.conditions)
    body = "".join(f"<div>{row}</div>" for row in rows if row)
    return f'<div class="first"><p class="verdict">{escape(lines.verdict)}</p>{body}{conditions}</div>'


def _head(report: Report) -> str:
    if report.life:
        return life_html.headline(report, report.life)
    return serving_html.headline(report, report.serving) if report.serving else _headline(report)


def _label(report: Report) -> str:
    if report.serving:
        return "time of requests"
    return "all ranks" if report.ranks != 1 else "ledger"


def _body(report: Report) -> str:
    if report.life:
        return life_html.body(report, report.life)
    if stands(report):
        return ""
    states = _states(report)
    if not report.serving:
        return states
    engines = [
        f'<p class="dim">time of engines</p>{_strip(one, "engines", "bar thin")}{_legend(one)}'
        for one in report.ledgers
        if one.unit == "engine"
    ]
    return f"{states}{''.join(engines)}{serving_html.body(report.serving)}"


def _against(report: Report) -> str:
    return comparison_html.body(report.comparison) if report.comparison else ""


def _legend(ledger: Ledger) -> str:
    states = ", ".join(f"{escape(state)} {percent(value / ledger.wall_seconds)}" for state, value in ledger.states.items())
    return f'<p class="dim">{states}</p>'


def _headline(report: Report) -> str:
    step = report.step_seconds
    if stands(report):
        return f"<p>{counted(report.ranks, 'rank')}, no steps: what their flight recorders held</p>"
    return f"""<p>{counted(report.window.steps, "step")}, {counted(report.ranks, "rank")}, step {seconds(step.mean)} (p50 {seconds(step.p50)},
p95 {seconds(step.p95)}, p99 {seconds(step.p99)}), goodput <b>{goodput(report)}</b></p>"""


def _review(report: Report) -> str:
    rows = "".join(f"<li>{escape(reason)}</li>" for reason in report.review)
    return f'<h2>To be reviewed</h2><ul class="note">{rows}</ul>' if rows else ""


def _lineage(report: Report) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in report.lineage.items())
    return f'<details><summary>What it was made of</summary><table class="note">{rows}</table></details>' if rows else ""


def _by_rank(report: Report) -> str:
    """Return a bar for each rank, as long as its step is against the longest, those that a finding names marked."""
    ledgers = [ledger for ledger in report.ledgers[1:] if ledger.unit == "rank"]
    longest = max((ledger.wall_seconds for ledger in ledgers), default=0.0)
    named: dict[int | None, list[str]] = {}
    for finding in report.findings:
        for rank in finding.ranks if not isinstance(finding.ranks, str) else []:
            named.setdefault(rank, []).append(finding.class_)
    parts = []
    for ledger in ledgers:
        step = ledger.wall_seconds / max(report.window.steps, 1)
        largest = sorted(ledger.states.items(), key=lambda row: -row[1])[:_RANK_STATES]
        states = ", ".join(f"{state} {percent(value / ledger.wall_seconds)}" for state, value in largest)
        why = f" <b>&#9664; {escape(', '.join(named[ledger.rank]))}</b>" if ledger.rank in named else ""
        label = f'<div class="dim"><b>rank {ledger.rank}</b>, step {seconds(step)}: {escape(states)}{why}</div>'
        strip = _strip(ledger, f"rank {ledger.rank}", "bar thin", ledger.wall_seconds / longest)
        parts.append(f'<div class="{"late" if why else ""}">{label}{strip}</div>')
    return f"<h2>By rank</h2>{''.join(parts)}" if parts else ""


def _changes(report: Report) -> str:
    if not report.baseline:
        return ""
    title = f"<h2>Against {escape(report.baseline)}</h2>"
    found = rows(report.changes)
    if not found:
        return f"{title}<p>no difference</p>"
    titles = "".join(f'<th class="n">{title}</th>' for title in ("baseline", "now", "difference", "calls a step"))
    body = "".join(map(_change, found))
    return f'{title}<div class="wide"><table><tr><th></th><th>time a step</th>{titles}</tr>{body}</table></div>'


def _change(row: ChangeRow) -> str:
    was = f'<div class="dim">was {escape(row.was)}</div>' if row.was else ""
    cells = "".join(f'<td class="n">{escape(cell)}</td>' for cell in (row.baseline, row.now, row.difference, row.calls))
    return (
        f'<tr><td>{escape(row.kind)}</td><td class="name" title="{escape(row.full_name)}">{escape(row.name)}{was}</td>{cells}</tr>'
    )


def _quality(report: Report) -> str:
    notes = "".join(
        f"<tr><th>{escape(note.severity)}</th><td>{escape(note.what)}: {escape(note.means)}</td></tr>" for note in report.quality
    )
    return f'<h2>Data quality</h2><table class="note">{notes}</table>' if notes else ""


def _bar(ledger: Ledger, label: str) -> str:
    return f'<h2>Where the time went</h2><div class="dim">{escape(label)}</div>{_strip(ledger, label, "bar")}'


def _strip(ledger: Ledger, label: str, classes: str, width: float = 1.0) -> str:
    parts = "".join(
        f'<div style="width:{value / ledger.wall_seconds * 100:.2f}%;background:{color(state)}" title="{escape(state)} {percent(value / ledger.wall_seconds)}"></div>'
        for state, value in ledger.states.items()
    )
    return (
        f'<div class="{classes}" style="width:{width * 100:.2f}%" role="img" aria-label="ledger of {escape(label)}">{parts}</div>'
    )


def _states(report: Report) -> str:
    ledger, mean, unit = report.ledgers[0], unit_seconds(report), unit_of(report)
    rows = "".join(
        f'<tr><td><span class="key" style="background:{color(state)}"></span> {escape(state)}</td><td class="n">{percent(value / ledger.wall_seconds)}</td>'
        f'<td class="n">{seconds(value / ledger.wall_seconds * mean)} a {unit}</td></tr>'
        for state, value in ledger.states.items()
    )
    return f"<table>{rows}</table>"


def _card(finding: Finding, report: Report) -> str:
    title = verdict_words.title(finding, report)
    runner_up = (
        f"<tr><th>Runner-up</th><td>{escape(finding.runner_up.class_)}, {percent(finding.runner_up.margin)} smaller</td></tr>"
        if finding.runner_up
        else ""
    )
    fixed = f"<tr><th>If fixed</th><td><b>{speedup_text(finding)}</b></td></tr>" if tells_speedup(finding, report) else ""
    evidence = "<br>".join(_evidence(row) for row in finding.evidence[1:] or finding.evidence)
    return f"""<div class="card {finding.severity}"><span class="tag">{verdict_words.level(finding)}</span>
<h2>{escape(finding.class_)}{culprits_text(finding, report)}: {escape(loss_text(finding, report))}</h2>
<p>{escape(title)}</p><table>
<tr><th>Share</th><td>{escape(share_text(finding, report))}</td></tr>
<tr><th>Evidence</th><td>{evidence}</td></tr>{runner_up}{fixed}
<tr><th>Do</th><td>{_coded(finding.action)}</td></tr><tr><th>Runbook</th><td>{_runbook(finding.runbook)}</td></tr></table></div>"""


def _coded(text: str) -> str:
    """Return text with what stands between backticks as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _runbook(name: str) -> str:
    """Return a runbook to unfold: the page goes where the files of this machine do not."""
    text = text_of(name)
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>" if text else escape(name)


def _evidence(row: Evidence) -> str:
    against = f" {escape(row.comparison)} {escape(quantity(row.threshold, row.unit))}" if row.threshold is not None else ""
    return f'{escape(row.signal)}: <b>{escape(quantity(row.value, row.unit))}</b>{against} <span class="dim">{escape(row.source)}</span>'
