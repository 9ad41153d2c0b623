"""Where objectives stand, as one self-contained page. Renders the report and computes nothing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from html import escape

from tachoscope_alerts.slo_report import Budget, BudgetPoint, Burn, Objective, SloReport
from tachoscope_cli import slo_words
from tachoscope_cli.units import duration

_WIDTH, _HEIGHT = 860, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 28
_COLORS = {"ok": "#1a7f37", "burning": "#bf8700", "exhausted": "#cf222e", "not_measured": "#59636e"}
_LOWEST = -1.0
"""A budget that is overdrawn by more is drawn at the lower edge."""
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


def page(report: SloReport) -> str:
    """Return the page: a table of all budgets, then a card for each with its burn-down, tiers and offenders."""
    rows = "".join(_row(objective, budget) for objective in report.objectives for budget in objective.budgets)
    cards = "".join(_card(objective, budget) for objective in report.objectives for budget in objective.budgets)
    heads = "".join(f"<th>{name}</th>" for name in slo_words.TITLES)
    notes = "".join(f'<p class="warn">{escape(note)}</p>' for note in report.notes)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>tachoscope objectives</title><style>{_STYLE}</style></head><body>
<h1>Objectives</h1><p>{escape(slo_words.headline(report))}</p>{notes}
<div class="wide"><table class="all"><thead><tr><th class="l">objective</th><th class="l">state</th>{heads}</tr></thead>
<tbody>{rows}</tbody></table></div>
{cards}</body></html>
"""


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
    return f'<span class="tag" style="color:{_COLORS[budget.state]}">{slo_words.STATES[budget.state]}</span>'


def _card(objective: Objective, budget: Budget) -> str:
    head = f"<h2>{escape(slo_words.name(objective, budget))}</h2><p>{_tag(budget)} {escape(objective.title)}</p>"
    if budget.state == "not_measured":
        body = f'<p class="dim">{escape(budget.why)}</p>'
    else:
        duty = f"{escape(objective.owner)}, runbooks/{escape(objective.alert)}.md"
        body = f'<p class="dim">{escape(slo_words.spent(objective, budget))}; {duty}</p>'
        body += _burn_down(objective, budget) + _tiers(budget) + _offenders(objective, budget)
    return f'<div class="card" style="border-left-color:{_COLORS[budget.state]}">{head}{body}</div>'


def _tiers(budget: Budget) -> str:
    heads = "".join(f"<th>{name}</th>" for name in ("long window", "burns", "short window", "burns", "fires above"))
    rows = "".join(map(_tier, budget.burns))
    return f'<div class="wide"><table><tr><th class="l">tier</th>{heads}</tr>{rows}</table></div>' if rows else ""


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
    return f'<p class="dim">Worst of the last day</p><ul>{rows}</ul>' if rows else ""


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
    return f"""<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="budget of {escape(objective.name)} over the period">
{blanks}{rules}<polyline points="{line}" fill="none" stroke="{_COLORS[budget.state]}" stroke-width="2.5"/>{dots}
<text x="{_LEFT}" y="{_HEIGHT - 6}">{_date(start)}</text>
<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{_date(end)}</text></svg>"""


def _dot(point: BudgetPoint, x: float, y: float, budget: Budget) -> str:
    told = f"{_date(point.time)}: {point.left * 100:.0f} % left"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_COLORS[budget.state]}"><title>{told}</title></circle>'


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
