"""A report as one self-contained HTML page."""

from __future__ import annotations

from html import escape

from tachoscope_cli.render_text import (
    HEALTHY,
    STATE_COLORS,
    WARNING_SHARE_TEXT,
    change_cells,
    counted,
    nothing_found,
    percent,
    quantity,
    ranks_text,
    seconds,
    share_text,
)
from tachoscope_core.report import Evidence, Finding, Ledger, Report
from tachoscope_core.taxonomy import BY_SLUG

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin:0 0 .3rem} .dim{color:#59636e;font-size:.9rem}
.bar{display:flex;height:2rem;border-radius:4px;overflow:hidden;margin:1rem 0 .5rem} table{border-collapse:collapse}
th{white-space:nowrap} td,th{padding:.15rem 1rem .15rem 0;text-align:left;vertical-align:top} td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px} .card{border:1px solid #d1d9e0;border-left-width:6px;
border-radius:6px;padding:.8rem 1rem;margin:1rem 0} .critical{border-left-color:#cf222e} .warning{border-left-color:#bf8700}
.info{border-left-color:#0969da} .tag{font-size:.8rem;font-weight:600;text-transform:uppercase}
"""


def render(report: Report) -> str:
    """Return the page."""
    ledger, step = report.ledgers[0], report.step_seconds
    cards = "".join(_card(finding, report) for finding in report.findings)
    verdict = "" if not nothing_found(report) else f"<p><b>no bottleneck above {WARNING_SHARE_TEXT}</b></p>"
    ranks = "".join(_bar(row, f"rank {row.rank}") for row in report.ledgers[1:])
    ranks = f"<h2>By rank</h2>{ranks}" if ranks else ""
    missing = "".join(f"<tr><td>{escape(r.class_)}</td><td>{escape(r.missing)}</td></tr>" for r in report.not_measured)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{escape(report.job)}: tachoscope</title><style>{_STYLE}</style></head><body>
<h1>{escape(report.job)}</h1>
<p>{counted(report.window.steps, "step")}, {counted(report.ranks, "rank")}, step {seconds(step.mean)} (p50 {seconds(step.p50)}, p95 {seconds(step.p95)},
p99 {seconds(step.p99)}), goodput <b>{percent(report.goodput or 0.0)}</b></p>
{_quality(report)}{_bar(ledger, "all ranks" if report.ranks != 1 else "ledger")}{_states(ledger, step.mean)}{verdict}{cards}
{_changes(report)}{ranks}
<details><summary>Not measured: neither found nor ruled out</summary><table>{missing}</table></details>
<p class="dim">{"<br>".join(escape(f"{s.records:,} {s.unit} from {s.path}") for s in report.sources)}</p></body></html>
"""


def _changes(report: Report) -> str:
    rows = ""
    for change in report.changes:
        name, *numbers = change_cells(change)
        cells = "".join(f'<td class="n">{escape(cell)}</td>' for cell in numbers)
        rows += f"<tr><td>{escape(change.kind)}</td><td>{escape(name)}</td>{cells}</tr>"
    titles = "".join(f'<th class="n">{title}</th>' for title in ("baseline", "now", "difference", "calls a step"))
    head = f"<tr><th></th><th></th>{titles}</tr>"
    return f"<h2>Against {escape(report.baseline)}</h2><table>{head}{rows}</table>" if report.baseline else ""


def _quality(report: Report) -> str:
    rows = "".join(
        f"<tr><th>{escape(note.severity)}</th><td>{escape(note.what)}: {escape(note.means)}</td></tr>" for note in report.quality
    )
    return f"<h2>Data quality</h2><table>{rows}</table>" if rows else ""


def _color(state: str) -> str:
    return STATE_COLORS.get(state, "#666666")


def _bar(ledger: Ledger, label: str) -> str:
    parts = "".join(
        f'<div style="width:{value / ledger.wall_seconds * 100:.2f}%;background:{_color(state)}" title="{state} {percent(value / ledger.wall_seconds)}"></div>'
        for state, value in ledger.states.items()
    )
    return f'<div class="dim">{escape(label)}</div><div class="bar" role="img" aria-label="ledger of {escape(label)}">{parts}</div>'


def _states(ledger: Ledger, mean_step: float) -> str:
    rows = "".join(
        f'<tr><td><span class="key" style="background:{_color(state)}"></span> {state}</td><td class="n">{percent(value / ledger.wall_seconds)}</td>'
        f'<td class="n">{seconds(value / ledger.wall_seconds * mean_step)} a step</td></tr>'
        for state, value in ledger.states.items()
    )
    return f"<table>{rows}</table>"


def _card(finding: Finding, report: Report) -> str:
    title = BY_SLUG[finding.class_].title if finding.class_ in BY_SLUG else ""
    runner_up = (
        f"<tr><th>Runner-up</th><td>{escape(finding.runner_up.class_)}, {percent(finding.runner_up.margin)} behind</td></tr>"
        if finding.runner_up
        else ""
    )
    fixed = (
        f"<tr><th>If fixed</th><td><b>{finding.speedup_if_fixed:.2f}x as fast</b></td></tr>"
        if finding.class_ not in HEALTHY
        else ""
    )
    evidence = "<br>".join(_evidence(row) for row in finding.evidence)
    return f"""<div class="card {finding.severity}"><span class="tag">{finding.severity}</span>
<h2>{escape(finding.class_)}, {ranks_text(finding.ranks)}: {seconds(finding.seconds_per_step)} of {seconds(report.step_seconds.mean)}</h2>
<p>{escape(title)}</p><table>
<tr><th>Share</th><td>{share_text(finding, report)}</td></tr>
<tr><th>Evidence</th><td>{evidence}</td></tr>{runner_up}{fixed}
<tr><th>Do</th><td>{escape(finding.action)}</td></tr><tr><th>Runbook</th><td>{escape(finding.runbook)}</td></tr></table></div>"""


def _evidence(row: Evidence) -> str:
    against = f" {escape(row.comparison)} {quantity(row.threshold, row.unit)}" if row.threshold is not None else ""
    return f'{escape(row.signal)}: <b>{quantity(row.value, row.unit)}</b>{against} <span class="dim">{escape(row.source)}</span>'
