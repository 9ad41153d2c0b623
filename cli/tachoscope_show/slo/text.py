"""Where objectives stand, for the terminal. Renders the report and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tachoscope_alerts.report.schema import Budget, Objective, SloReport
from tachoscope_show.slo import words as slo_words

_STYLES = {"ok": "green", "burning": "bold yellow", "exhausted": "bold red", "not_measured": "dim"}
_BAR = 8
_WIDE = 10_000


def text(report: SloReport, console: Console) -> None:
    """Print the report: a row for each budget with a bar of what is left of it, the worst first, below who spends those that burn,
    and at last what was not measured.
    """
    console.print(Text(slo_words.headline(report), style="bold"), soft_wrap=True)
    console.print()
    pairs = slo_words.measured(report)
    table = _table(pairs)
    if pairs and console.measure(table, options=console.options.update(width=_WIDE)).maximum <= console.width:
        console.print(table)
    else:
        for objective, budget in pairs:
            for line in _lines(objective, budget):
                console.print(line, soft_wrap=True)
    blocks = [list(_spent(*pair)) for pair in pairs if pair[1].state in {"burning", "exhausted"}]
    unmeasured = [Text(f"  {names}: {why}") for names, why in slo_words.unmeasured(report)]
    blocks.append([Text("not measured", style="bold"), *unmeasured] if unmeasured else [])
    blocks.append([Text(note, style="yellow") for note in slo_words.notes(report)])
    for number, block in enumerate(filter(None, blocks)):
        if pairs or number:
            console.print()
        for line in block:
            console.print(line, soft_wrap=True)


def _table(pairs: Sequence[tuple[Objective, Budget]]) -> Table:
    table = Table("state", "objective", *slo_words.TITLES, box=None, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.no_wrap = True
        column.justify = "left" if column.header in {"state", "objective", "budget left"} else "right"
    for objective, budget in pairs:
        table.add_row(*_row(objective, budget))
    return table


def _lines(objective: Objective, budget: Budget) -> Iterator[Text]:
    """Yield a budget for a terminal that is too narrow for the table."""
    state, name, *cells = _row(objective, budget)
    yield Text.assemble(name, "  ", state)
    told = (Text.assemble((f"{title} ", "dim"), cell) for title, cell in zip(slo_words.TITLES, cells, strict=True))
    yield Text("  ").append_text(Text("  ").join(told))


def bar(left: float) -> str:
    """Return what is left of a budget as a bar; an overdrawn one is empty."""
    full = round(min(max(left, 0.0), 1.0) * _BAR)
    full = max(full, 1) if left > 0 else full
    return "█" * full + "░" * (_BAR - full)


def _row(objective: Objective, budget: Budget) -> list[Text]:
    style = _STYLES[budget.state]
    target, period, day, left, burns, measured = slo_words.cells(objective, budget)
    drawn = Text(left) if budget.left is None else Text.assemble((bar(budget.left), style), f" {left:>6}")
    return [
        Text(slo_words.state(budget), style=style),
        Text(slo_words.name(objective, budget)),
        *(Text(cell) for cell in (target, period, day)),
        drawn,
        Text(burns),
        Text(measured, style="yellow" if slo_words.has_few_events(budget) else ""),
    ]


def _spent(objective: Objective, budget: Budget) -> Iterator[Text]:
    """Yield what is to be known of a budget that burns or is gone: how much, which tiers fire, whose it is, and who spends it."""
    name = slo_words.name(objective, budget)
    yield Text.assemble((name, "bold"), f": {slo_words.spent(objective, budget)}; {objective.owner}, runbooks/{objective.alert}.md")
    for burn in budget.burns:
        if burn.fires or burn.held:
            yield Text(f"  {slo_words.fires(burn, objective)}", style="" if burn.fires else "dim")
    if budget.offenders:
        yield Text(f"  {slo_words.offenders_title(objective, budget)}", style="dim")
    for one in budget.offenders:
        yield Text(f"    {slo_words.offender(one, objective)}")
