"""Where objectives stand, as one self-contained page. Renders the report and computes nothing."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

from tachoscope_alerts.report.schema import Budget, Objective, SloReport
from tachoscope_show.slo import words as slo_words
from tachoscope_show.text.chart import Area, Chart, Label
from tachoscope_show.text.pages import rendered

_COLORS = {"ok": "#1a7f37", "burning": "#bf8700", "exhausted": "#cf222e", "not_measured": "#59636e"}
_LOWEST = -1.0
"""A budget that is overdrawn by more is drawn at the lower edge, with its value at its end."""


def page(report: SloReport, runbooks: str = "runbooks") -> str:
    """Return the page: a table of what was measured, the worst first, a card for each with its burn-down, tiers and offenders, and
    a list of what was not measured.

    Args:
        runbooks: the folder or URL that they lie below; a folder is taken from where the page lies.
    """
    measured = [(objective, budget, _burn_down(objective, budget)) for objective, budget in slo_words.measured(report)]
    return str(rendered("objectives.html", report=report, measured=measured, runbooks=runbooks, words=slo_words, colors=_COLORS))


def _burn_down(objective: Objective, budget: Budget) -> Chart | None:
    """Return what was left of the budget over the period, grey where nothing was measured."""
    points = budget.burn_down
    if len(points) < 2:
        return None
    lowest = max(min(0.0, *(point.left for point in points)), _LOWEST)
    start, end = points[0].time, points[-1].time
    drawn = Chart(f"budget of {objective.name} over the period", _COLORS[budget.state], height=190)

    def share_left(left: float) -> float:
        return (max(left, lowest) - lowest) / (1 - lowest)

    def x(time: float) -> float:
        return drawn.x((time - start) / (end - start))

    for before, point in itertools.pairwise(points):
        if not point.measured:
            drawn.areas.append(Area(x(before.time), x(point.time) - x(before.time), "#eef1f4", "not measured"))
    for left, color in ((1.0, "#d1d9e0"), (0.0, "#cf222e"), *([(lowest, "#d1d9e0")] if lowest < 0 else [])):
        drawn.level(share_left(left), color)
        drawn.labels.append(Label(drawn.left - 6, drawn.y(share_left(left)) + 4, f"{left * 100:.0f} %", "end"))
    for point in points:
        told = f"{_date(point.time)}: {point.left * 100:.0f} % left"
        drawn.points.append((x(point.time), drawn.y(share_left(point.left)), told))
    if points[-1].left < lowest:
        told = f"ends at {slo_words.budget_left(budget)} ▼"
        drawn.labels.append(Label(drawn.right - 8, drawn.bottom - 8, told, "end", _COLORS["exhausted"]))
    drawn.labels.append(Label(drawn.left, drawn.height - 6, _date(start)))
    drawn.labels.append(Label(drawn.right, drawn.height - 6, _date(end), "end"))
    return drawn


def _date(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
