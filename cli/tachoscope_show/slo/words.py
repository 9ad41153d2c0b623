"""Where objectives stand, in words and cells: what the terminal and the page say alike. Renders the report and computes nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10

from tachoscope_alerts.report.schema import Budget, Burn, Objective, Offender, SloReport
from tachoscope_show.text.units import duration

TITLES = ("target", "period", "last day", "budget left", "burns", "measured")
STATES = {"exhausted": "exhausted", "burning": "burning", "ok": "ok", "not_measured": "not measured"}
_WORST_FIRST = ("exhausted", "burning", "ok", "not_measured")
_ALERTS = ("", "ticket", "page")
_LITTLE = 0.9
"""Less than so much of the period measured is pointed out."""
_TOO_LITTLE = 0.01
"""Of less than so much a budget is not a judgement of the period."""


def headline(report: SloReport) -> str:
    """Return how many objectives are in each state, the worst first, how many tell somebody now, and when that was."""
    counts = {words: sum(one.state == state for one in report.objectives) for state, words in STATES.items()}
    told = [f"{count} {words}" for words, count in counts.items() if count]
    at = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if not told:
        return f"no objectives at {at}, from {report.source}"
    due = [max((alerts(budget) for budget in one.budgets), key=_ALERTS.index) for one in report.objectives]
    firing = [f"{due.count(words)} {words}" for words in reversed(_ALERTS) if words and words in due]
    return f"{', '.join(told)}; {', '.join(firing) or 'no alert'} now, at {at}, from {report.source}"


def alerts(budget: Budget) -> str:
    """Return the gravest alert that fires of a budget, in whatever state that is: `page`, `ticket` or nothing."""
    return max((burn.severity for burn in budget.burns if burn.fires), key=_ALERTS.index, default="")


def state(budget: Budget) -> str:
    """Return the state of a budget, with the alert that fires."""
    return f"{STATES[budget.state]}{f', {alerts(budget)}' if alerts(budget) else ''}"


def judged(budget: Budget) -> str:
    """Return whether the objective was met in the period: met, missed, too little data to say, or not measured."""
    if budget.left is None:
        return STATES["not_measured"]
    if budget.coverage < _TOO_LITTLE:
        return f"too little data ({'missed' if budget.left < 0 else 'met'} in it)"
    return "missed" if budget.left < 0 else "met"


def measured(report: SloReport) -> list[tuple[Objective, Budget]]:
    """Return the budgets that were measured, the worst first."""
    pairs = [(objective, budget) for objective in report.objectives for budget in objective.budgets if budget.left is not None]
    return sorted(pairs, key=lambda pair: _badness(pair[1]))


def _badness(budget: Budget) -> tuple[int, int, float]:
    return _WORST_FIRST.index(budget.state), -_ALERTS.index(alerts(budget)), budget.left or 0.0


def unmeasured(report: SloReport) -> list[tuple[str, str]]:
    """Return the names of budgets that were not measured, with why; those of one reason together."""
    names: dict[str, list[str]] = {}
    for objective in report.objectives:
        for budget in objective.budgets:
            if budget.left is None:
                names.setdefault(budget.why, []).append(name(objective, budget))
    return [(", ".join(some), why) for why, some in names.items()]


def notes(report: SloReport) -> list[str]:
    """Return what is to be known of the report: also how short a time it judges, where that is hardly any of its period."""
    short = [
        (budget.coverage * objective.period_days * 86400, duration(objective.period_days * 86400), name(objective, budget))
        for objective, budget in measured(report)
        if budget.coverage < _TOO_LITTLE
    ]
    if not short:
        return report.notes
    seconds, period, _ = max(short)
    which = ", ".join(one for *_, one in short)
    return [f"only {duration(seconds)} of {period} are measured: not yet meaningful are the budgets of {which}", *report.notes]


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
        budget_left(budget),
        fastest(objective, budget),
        coverage(budget),
    )


def ratio(value: float | None, objective: Objective) -> str:
    """Return a ratio of good events with as many digits as the budget needs, cut and not rounded: 100 % means all."""
    if value is None:
        return "-"
    digits = min(max(2 - floor(log10((1 - objective.target) * 100) + 1e-9), 1), 6)
    size = 10**digits
    return f"{floor(value * 100 * size + 1e-6) / size:.{digits}f} %"


def budget_left(budget: Budget) -> str:
    """Return what is left of the error budget."""
    if budget.left is None:
        return "-"
    return f"{budget.left * 100:.0f} %" if budget.left > -10 else f"{budget.left:.0f}x"


def fastest(objective: Objective, budget: Budget) -> str:
    """Return the burn of the tier that fires, or else of the shortest window in which there were events, within the report."""
    within = [burn for burn in budget.burns if not is_longer(burn, objective)]
    shown = next((burn for burn in within if burn.fires), None)
    shown = shown or next((burn for burn in within if burn.long is not None), None)
    return "-" if shown is None or shown.long is None else f"{factor(shown.long)} in {duration(shown.long_seconds)}"


def factor(value: float | None) -> str:
    """Return how many times faster than allowed a budget is spent."""
    return "-" if value is None else f"{value:.1f}x" if value < 100 else f"{value:.0f}x"


def is_longer(burn: Burn, objective: Objective) -> bool:
    """Return whether a tier looks back further than the report: alerts keep their windows, whatever is reported on."""
    return burn.long_seconds > objective.period_days * 86400 * 1.001


def fires(burn: Burn, objective: Objective) -> str:
    """Return a tier that fires, or would if it were not held back, with the numbers."""
    told = (
        f"{burn.severity}: {factor(burn.long)} in {duration(burn.long_seconds)} and {factor(burn.short)} in "
        f"{duration(burn.short_seconds)}, above {factor(burn.threshold)}"
    )
    told += f"; does not fire: {burn.held}" if burn.held else ""
    return f"{told} (looks back further than this report)" if is_longer(burn, objective) else told


def coverage(budget: Budget) -> str:
    """Return how much of the period was measured, and whether it still is."""
    text = "< 1 %" if 0 < budget.coverage < 0.01 else f"{floor(budget.coverage * 100 + 1e-6)} %"
    return text if budget.recent or not budget.coverage else f"{text}, not in the last hour"


def has_few_events(budget: Budget) -> bool:
    """Return whether so little was measured that it should be pointed out."""
    return budget.coverage < _LITTLE or not budget.recent


def amount(value: float, objective: Objective) -> str:
    """Return bad or all events. They are made of rates, whose extrapolation leaves parts of events."""
    if objective.unit == "seconds":
        return duration(value)
    return "< 1" if 0 < value < 0.5 else f"{value:,.0f}"


def spent(objective: Objective, budget: Budget) -> str:
    """Return the bad events of all events."""
    told = f"{amount(budget.bad, objective)} of {amount(budget.total, objective)}"
    if objective.unit == "seconds":
        over = f", summed over {objective.summed_over}" if objective.summed_over else ""
        return f"{told} were bad{over}"
    parts = any(value < 1000 and abs(value - round(value)) > 0.01 for value in (budget.bad, budget.total))
    return f"{'about ' if parts and budget.bad >= 0.5 else ''}{told} events were bad"


def offenders_title(objective: Objective, budget: Budget) -> str:
    """Return the title of the offenders: of which time, and of which series where these are others than the budget's."""
    days = objective.period_days
    last = "the last day" if days >= 1 else f"the last {duration(days * 86400)}"
    return f"worst of {last}{', counted from raw series' if budget.raw_offenders else ''}"


def offender(one: Offender, objective: Objective) -> str:
    """Return one of the worst, with its share of what was bad."""
    return f"{one.kind} {one.value}: {amount(one.bad, objective)} of {amount(one.of, objective)} bad, {one.share * 100:.0f} %"
