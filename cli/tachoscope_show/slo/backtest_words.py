"""What an objective told and would have told, in words and cells: what the terminal and the page say alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tachoscope_alerts.report.alert_replay import FiredAlert, Replayed
from tachoscope_alerts.report.backtest import Backtest, Variant
from tachoscope_alerts.spec.slo import Severity
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text.units import counted, duration

TITLES = ("target", "threshold", "attained", "budget left", "pages", "tickets", "measured")
_LITTLE = 0.9


def target_of(text: str) -> float:
    """Return the ratio that `99.5%` or `0.995` says.

    Raises:
        TachoscopeError: it is neither.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    ratio = (float(match[1]) / 100 if match[2] else float(match[1])) if match else 0.0
    if not 0.0 < ratio < 1.0:
        raise TachoscopeError(f"{text!r} is not a target", fix="write 99.5% or 0.995")
    return round(ratio, 12)


def headline(found: Backtest) -> str:
    """Return what was replayed, and how much of it there is."""
    told = f"{found.objective} from {moment(found.start)} to {moment(found.end)}, from {found.source}"
    if found.recorded_since is None:
        return f"{told}: no samples in this time"
    if found.recorded_since > found.start + 60:
        return f"{told}; its events begin at {moment(found.recorded_since)}"
    return told


def is_changed(found: Backtest) -> bool:
    """Return whether anything was changed at all."""
    return (found.committed.target, found.committed.threshold) != (found.changed.target, found.changed.threshold)


def variants(found: Backtest) -> list[tuple[str, Variant]]:
    """Return what is shown, each with its name."""
    return [("committed", found.committed), *([("changed", found.changed)] if is_changed(found) else [])]


def cells(variant: Variant, budget: Replayed) -> tuple[str, ...]:
    """Return the cells below `TITLES`."""
    bound = "-" if variant.threshold is None else f"{variant.threshold:g}"
    return (
        f"{variant.target * 100:g} %",
        bound,
        "not measured" if budget.attainment is None else f"{_cut(budget.attainment)} %",
        "-" if budget.left is None else f"{budget.left * 100:.0f} %" if budget.left > -10 else f"{budget.left:.0f}x",
        times(budget, "page"),
        times(budget, "ticket"),
        f"{int(budget.coverage * 100 + 1e-6)} %" if budget.coverage >= 0.01 or not budget.coverage else "< 1 %",
    )


def _cut(ratio: float) -> str:
    return f"{int(ratio * 1e5 + 1e-6) / 1e3:.3f}".rstrip("0").rstrip(".")


def times(budget: Replayed, severity: Severity) -> str:
    """Return how often something would have been told, and how long in all."""
    told = budget.by_severity(severity)
    return f"{len(told)}, {duration(sum(one.end - one.start for one in told))}" if told else "none"


def name(budget: Replayed) -> str:
    """Return whose budget it is; empty: there is one for all."""
    return " ".join(value or "-" for value in budget.labels.values())


def one_told(one: FiredAlert) -> str:
    """Return a time during which people were told."""
    until = "still firing at the end" if one.still else f"for {duration(one.end - one.start)}"
    windows = f"{duration(one.long_seconds)} and {duration(one.short_seconds)}"
    return f"{one.severity} at {moment(one.start)}, {until}, by the windows of {windows}"


def verdict(found: Backtest) -> str:
    """Return what the change would do, in a sentence."""
    if found.recorded_since is None:
        return "Nothing was recorded, so nothing can be said of it."
    if not is_changed(found):
        return "Nothing is changed."
    before, after = (sum(len(one.by_severity("page")) for one in variant.budgets) for variant in (found.committed, found.changed))
    spent = [sum(one.left is not None and one.left <= 0 for one in variant.budgets) for variant in (found.committed, found.changed)]
    pages = f"{counted(after, 'page')} instead of {before}" if after != before else f"{counted(after, 'page')} as before"
    return f"With the change: {pages}; {counted(spent[1], 'budget')} spent, {spent[0]} as committed."


def moment(seconds: float) -> str:
    """Return a time as people read it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def render(found: Backtest, out: Console) -> None:
    """Print it: a row for each budget as committed and as changed, and below when people were and would have been told."""
    out.print(Text(headline(found), style="bold"), Text(verdict(found)), sep="\n", soft_wrap=True)
    out.print()
    table = Table("", "", *TITLES, box=None, padding=(0, 2, 0, 0))
    for what, variant in variants(found):
        for budget in variant.budgets:
            table.add_row(what, Text(name(budget)), *map(Text, cells(variant, budget)))
    if table.row_count:
        out.print(table)
    for line in _times(found):
        out.print(Text(line), soft_wrap=True)
    for note in found.notes:
        out.print(Text(note, style="yellow"), soft_wrap=True)


def _times(found: Backtest) -> Iterator[str]:
    for what, variant in variants(found):
        told = [(budget, one) for budget in variant.budgets for one in budget.told]
        if told:
            yield f"\n{what}"
        for budget, one in sorted(told, key=lambda pair: pair[1].start):
            yield f"  {one_told(one)} {name(budget)}".rstrip()
