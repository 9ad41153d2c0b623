"""Where objectives stand, in words and cells: what the terminal and the page say alike. Renders the report and computes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10

from tachoscope_alerts.slo_report import Budget, Burn, Objective, Offender, SloReport
from tachoscope_cli.units import duration

TITLES = ("target", "period", "last day", "budget left", "burns", "measured")
STATES = {"exhausted": "exhausted", "burning": "burning", "not_measured": "not measured", "ok": "ok"}
_LITTLE = 0.9
"""Less than so much of the period measured is pointed out."""


def headline(report: SloReport) -> str:
    """Return how many objectives are in each state, the worst first, and when that was."""
    counts = {words: sum(one.state == state for one in report.objectives) for state, words in STATES.items()}
    told = [f"{count} {words}" for words, count in counts.items() if count]
    at = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{', '.join(told) or 'no objectives'} at {at}, from {report.source}"


def name(objective: Objective, budget: Budget) -> str:
    """Return the objective with the labels of one of its budgets."""
    labels = " ".join(value or "-" for value in budget.labels.values())
    return f"{objective.name} {labels}".rstrip()


def cells(objective: Objective, budget: Budget) -> tuple[str, ...]:
    """Return the cells below `TITLES`."""
    return (
        f"{objective.target * 100:g} %",
        ratio(budget.attainment, objective),
        ratio(budget.attainment_day, objective),
        left(budget),
        fastest(budget),
        coverage(budget),
    )


def ratio(value: float | None, objective: Objective) -> str:
    """Return a ratio of good events with as many digits as the budget needs, cut and not rounded: 100 % means all."""
    if value is None:
        return "-"
    digits = min(max(2 - floor(log10((1 - objective.target) * 100) + 1e-9), 1), 6)
    size = 10**digits
    return f"{floor(value * 100 * size + 1e-6) / size:.{digits}f} %"


def left(budget: Budget) -> str:
    """Return what is left of the error budget."""
    if budget.left is None:
        return "-"
    return f"{budget.left * 100:.0f} %" if budget.left > -10 else f"{budget.left:.0f}x"


def fastest(budget: Budget) -> str:
    """Return the burn of the tier that fires, or else of the shortest window in which there were events."""
    shown = next((burn for burn in budget.burns if burn.fires), None)
    shown = shown or next((burn for burn in budget.burns if burn.long is not None), None)
    return "-" if shown is None or shown.long is None else f"{factor(shown.long)} in {duration(shown.long_seconds)}"


def factor(value: float | None) -> str:
    """Return how many times faster than allowed a budget is spent."""
    return "-" if value is None else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def fires(burn: Burn) -> str:
    """Return a tier that fires, with the numbers."""
    return (
        f"{burn.severity}: {factor(burn.long)} in {duration(burn.long_seconds)} and {factor(burn.short)} in "
        f"{duration(burn.short_seconds)}, above {factor(burn.threshold)}"
    )


def coverage(budget: Budget) -> str:
    """Return how much of the period was measured, and whether it still is."""
    text = "< 1 %" if 0 < budget.coverage < 0.01 else f"{floor(budget.coverage * 100 + 1e-6)} %"
    return text if budget.recent or not budget.coverage else f"{text}, not in the last hour"


def is_thin(budget: Budget) -> bool:
    """Say whether so little was measured that it should be pointed out."""
    return budget.coverage < _LITTLE or not budget.recent


def amount(value: float, objective: Objective) -> str:
    """Return bad or all events."""
    if objective.unit == "seconds":
        return duration(value)
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def spent(objective: Objective, budget: Budget) -> str:
    """Return the bad events of all events."""
    what = "" if objective.unit == "seconds" else " events"
    return f"{amount(budget.bad, objective)} of {amount(budget.total, objective)}{what} were bad"


def offender(one: Offender, objective: Objective) -> str:
    """Return one of the worst of the last day."""
    return f"{one.kind} {one.value}: {amount(one.bad, objective)} bad, {one.share * 100:.0f} %"
