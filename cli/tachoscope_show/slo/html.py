"""Where objectives stand, as one self-contained page. Renders the report and computes nothing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from html import escape

from tachoscope_alerts.report.schema import Budget, BudgetPoint, Burn, Objective, SloReport
from tachoscope_show.slo import words as slo_words
from tachoscope_show.text.units import duration

_WIDTH, _HEIGHT = 860, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 12, 16, 28
_COLORS = {"ok": "#1a7f37", "burning": "#bf8700", "exhausted": "#cf222e", "not_measured": "#59636e"}
_LOWEST = -1.0
"""A budget that is overdrawn by more is drawn at the lower edge, with its value at its end."""
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin:0 0 .2rem;overflow-wrap:anywhere}
.dim{color:#59636e;font-size:.9rem} p{margin:.2rem 0} svg{display:block;width:100%;height:auto}
text{font:13px system-ui,sans-serif;fill:#59636e} .wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
td,th{padding:.2rem .9rem .2rem 0;text-align:right;white-space:nowrap} td.l,th.l{text-align:left}
.tag{font-size:.8rem;font-weight:600;text-transform:uppercase} .thin{color:#9a6700}
.card{border:1px solid #d1d9e0;border-left-width:6px;border-radius:6px;padding:.8rem 1rem;margin:1rem 0}
.left{display:inline-block;width:5rem;height:.7rem;background:#eef1f4;border-radius:2px;margin-right:.5rem;overflow:hidden}
.left i{display:block;height:100%} ul{margin:.3rem 0;padding-left:1.2rem;overflow-wrap:anywhere}
.n{display:inline-block;min-width:3rem}
.warn{border-left:6px solid #bf8700;padding:.4rem .8rem;background:#fff8e5;overflow-wrap:anywhere}
@media(max-width:48rem){body{margin:1rem auto} .card{padding:.6rem} table.all,.all tbody{display:block} .all thead{display:none}
.all tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(8rem,1fr));gap:.2rem .8rem}
.all tr{padding:.5rem 0;border-top:1px solid #d1d9e0}
.all td,.all td.l{padding:0;text-align:left;white-space:normal;overflow-wrap:anywhere} .all td.name{grid-column:1/-1}
.all td::before{content:attr(data-title);display:block;color:#59636e;font-size:.8rem} svg text{font-size:20px}}
"""


def page(report: SloReport, runbooks: str = "runbooks") -> str:
    """Return the page: a table of what was measured, the worst first, a card for each with its burn-down, tiers and offenders, and
    a list of what was not measured.

    Args:
        runbooks: the folder or URL that they lie below; a folder is taken from where the page lies.
    """
    pairs = slo_words.measured(report)
    rows = "".join(_row(*pair) for pair in pairs)
    cards = "".join(_card(*pair, runbooks) for pair in pairs)
    heads = "".join(f"<th>{name}</th>" for name in slo_words.TITLES)
    notes = "".join(f'<p class="warn">{escape(note)}</p>' for note in slo_words.notes(report))
    head = f'<thead><tr><th class="l">objective</th><th class="l">state</th>{heads}</tr></thead>'
    table = f'<div class="wide"><table class="all">{head}<tbody>{rows}</tbody></table></div>' if pairs else ""
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tachoscope objectives</title><style>{_STYLE}</style></head><body>
<h1>Objectives</h1><p>{escape(slo_words.headline(report))}</p>{notes}
{table}
{cards}{_unmeasured(report)}</body></html>
"""


def _unmeasured(report: SloReport) -> str:
    rows = "".join(f"<li>{escape(names)}: {escape(why)}</li>" for names, why in slo_words.unmeasured(report))
    return f"<h2>Not measured</h2><ul>{rows}</ul>" if rows else ""


def _row(objective: Objective, budget: Budget) -> str:
    cells = dict(zip(slo_words.TITLES, map(escape, slo_words.cells(objective, budget)), strict=True))
    cells["budget left"] = f'{_left(budget)}<span class="n">{cells["budget left"]}</span>'
    if slo_words.is_thin(budget):
        cells["measured"] = f'<span class="thin">{cells["measured"]}</span>'
    filled = "".join(f'<td data-title="{name}">{cell}</td>' for name, cell in cells.items())
    name = escape(slo_words.name(objective, budget))
    head = f'<td class="l name" data-title="objective">{name}</td><td class="l" data-title="state">{_tag(budget)}</td>'
    return f"<tr>{head}{filled}</tr>"


def _left(budget: Budget) -> str:
    if budget.left is None:
        return ""
    width = min(max(budget.left, 0.0), 1.0) * 100
    return f'<span class="left"><i style="width:{width:.1f}%;background:{_COLORS[budget.state]}"></i></span>'


def _tag(budget: Budget) -> str:
    return f'<span class="tag" style="color:{_COLORS[budget.state]}">{slo_words.state(budget)}</span>'


def _card(objective: Objective, budget: Budget, runbooks: str) -> str:
    head = f"<h2>{escape(slo_words.name(objective, budget))}</h2><p>{_tag(budget)} {escape(objective.title)}</p>"
    runbook = f'<a href="{escape(runbooks)}/{escape(objective.alert)}.md">runbook {escape(objective.alert)}</a>'
    body = f'<p class="dim">{escape(slo_words.spent(objective, budget))}; {escape(objective.owner)}, {runbook}</p>'
    body += _burn_down(objective, budget) + _tiers(objective, budget) + _offenders(objective, budget)
    return f'<div class="card" style="border-left-color:{_COLORS[budget.state]}">{head}{body}</div>'


def _tiers(objective: Objective, budget: Budget) -> str:
    heads = "".join(f"<th>{name}</th>" for name in ("long window", "burns", "short window", "burns", "fires above"))
    rows = "".join(map(_tier, budget.burns))
    told = (burn for burn in budget.burns if burn.held or (slo_words.is_longer(burn, objective) and burn.fires))
    below = "".join(f'<p class="dim">{escape(slo_words.fires(burn, objective))}</p>' for burn in told)
    return f'<div class="wide"><table><tr><th class="l">tier</th>{heads}</tr>{rows}</table></div>{below}' if rows else ""


def _tier(burn: Burn) -> str:
    cells = (
        duration(burn.long_seconds),
        slo_words.factor(burn.long),
        duration(burn.short_seconds),
        slo_words.factor(burn.short),
        slo_words.factor(burn.threshold),
    )
    filled = "".join(f"<td>{cell}</td>" for cell in cells)
    mark = f'<b style="color:{_COLORS["exhausted"]}">{burn.severity} fires</b>' if burn.fires else burn.severity
    return f'<tr><td class="l">{mark}</td>{filled}</tr>'


def _offenders(objective: Objective, budget: Budget) -> str:
    rows = "".join(f"<li>{escape(slo_words.offender(one, objective))}</li>" for one in budget.offenders)
    return f'<p class="dim">{escape(slo_words.worst(objective, budget))}</p><ul>{rows}</ul>' if rows else ""


# --- the burn-down ------------------------------------------------------------------------------------------------------------


def _burn_down(objective: Objective, budget: Budget) -> str:
    """Return what was left of the budget over the period, grey where nothing was measured."""
    points = budget.burn_down
    if len(points) < 2:
        return ""
    lowest = max(min(0.0, *(point.left for point in points)), _LOWEST)
    start, end = points[0].time, points[-1].time

    def x(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (time - start) / (end - start)

    def y(left: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - max(left, lowest)) / (1 - lowest)

    line = " ".join(f"{x(point.time):.1f},{y(point.left):.1f}" for point in points)
    blanks = "".join(
        f'<rect x="{x(before.time):.1f}" width="{x(point.time) - x(before.time):.1f}" y="{_TOP}" height="{y(lowest) - _TOP:.1f}" '
        f'fill="#eef1f4"><title>not measured</title></rect>'
        for before, point in itertools.pairwise(points)
        if not point.measured
    )
    rules = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(left):.1f}" y2="{y(left):.1f}" stroke="{color}"/>'
        f'<text x="{_LEFT - 6}" y="{y(left) + 4:.1f}" text-anchor="end">{left * 100:.0f} %</text>'
        for left, color in ((1.0, "#d1d9e0"), (0.0, "#cf222e"), *([(lowest, "#d1d9e0")] if lowest < 0 else []))
    )
    dots = "".join(_dot(point, x(point.time), y(point.left), budget) for point in points)
    below = _below(budget, y(lowest)) if points[-1].left < lowest else ""
    return f"""<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="budget of {escape(objective.name)} over the period">
{blanks}{rules}<polyline points="{line}" fill="none" stroke="{_COLORS[budget.state]}" stroke-width="2.5"/>{dots}{below}
<text x="{_LEFT}" y="{_HEIGHT - 6}">{_date(start)}</text>
<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{_date(end)}</text></svg>"""


def _below(budget: Budget, lowest: float) -> str:
    """Return the mark of a line that goes on below the picture, with where it ends."""
    told = f"ends at {slo_words.left(budget)} ▼"
    return (
        f'<text class="below" x="{_WIDTH - _RIGHT - 8}" y="{lowest - 8:.1f}" text-anchor="end" '
        f'style="fill:{_COLORS["exhausted"]};font-weight:600">{told}</text>'
    )


def _dot(point: BudgetPoint, x: float, y: float, budget: Budget) -> str:
    told = f"{_date(point.time)}: {point.left * 100:.0f} % left"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLORS[budget.state]}"><title>{told}</title></circle>'


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
