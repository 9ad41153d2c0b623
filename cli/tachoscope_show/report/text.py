"""A report for the terminal. Renders the report and computes nothing that an analyzer should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tachoscope_core.report.comparison import Comparison
from tachoscope_core.report.report import QualityNote, Report, Source
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_show.life import text as life_text
from tachoscope_show.report import (
    comparison_words,
    earlier_words,
    failure_words,
    lineage_words,
    memory_words,
    stack_words,
    trend_words,
    verdict_words,
)
from tachoscope_show.report.change_rows import rows
from tachoscope_show.report.finding_card import EvidenceRow, FindingCard, cards
from tachoscope_show.report.finding_words import (
    SMALL_LOSSES,
    is_hang_report,
    nothing_found,
    productive,
    productive_name,
    unit_of,
    unit_seconds,
    verdict_text,
)
from tachoscope_show.serving import text as serving_text
from tachoscope_show.text.runbook_pages import path_of
from tachoscope_show.text.safe_text import in_lines
from tachoscope_show.text.state_bar import bar, filled
from tachoscope_show.text.units import counted, percent, seconds

_SEVERITY_STYLE = {"critical": "bold white on red", "warning": "bold black on yellow", "info": "bold black on green"}
_EARLIER_STYLE = {"critical": "red", "warning": "yellow"}
_VERDICT_STYLE = {
    "slower": "bold red",
    "faster": "bold green",
    "alike": "bold green",
    "unclear": "yellow",
    "not_comparable": "yellow",
}
_QUALITY_STYLE = {"bad": "bold red", "limited": "yellow", "note": "dim"}


def render(report: Report, console: Console, *, then: Sequence[str] = ()) -> None:
    """Print the report, then the given lines; where nothing is wrong that is the last line."""
    report = in_lines(report)
    for sentence in _first_lines(report):
        console.print(sentence, soft_wrap=True)
    console.print()
    console.print(_head(report), soft_wrap=True)
    for note in report.quality:
        console.print(_quality(note), soft_wrap=True)
    for reason in report.review:
        console.print(Text.assemble(("review  ", "bold red"), reason), soft_wrap=True)
    if not is_hang_report(report):
        console.print()
        console.print(bar(report.ledgers[0], console))
        console.print(life_text.states(report, report.life, console) if report.life else _states(report, console))
    for part in _parts(report, console):
        console.print(Padding(part, (1, 0, 0, 0)))
    for part in _findings(cards(report)):
        console.print(Padding(part, (1, 0, 0, 0)))
    for part in _tables(report):
        console.print(Padding(part, (1, 0, 0, 0)))
    console.print()
    for line in [*lineage_words.lines(report.lineage), *map(source_text, report.sources), _not_measured(report)]:
        if line:
            console.print(Text(line, style="dim"), soft_wrap=True)
    for line in then:
        console.print(line, soft_wrap=True)
    if nothing_found(report):
        console.print(Text(verdict_text(report), style="bold green"))


def _first_lines(report: Report) -> Iterator[Text]:
    if failure_words.ends_failed(report):
        root, *rest = failure_words.lines(report.failures[-1])
        yield Text(root, style="bold red")
        yield from (Text(f"  {line}") for line in rest)
    found = verdict_words.first_lines(report)
    yield Text(found.verdict, style="bold")
    yield from (Text(f"  {line}") for line in (found.size, f"do: {found.action}" if found.action else "") if line)
    yield from (Text(line, style="yellow") for line in found.conditions)


def _head(report: Report) -> Text:
    if report.life:
        return life_text.headline(report, report.life)
    return serving_text.headline(report, report.serving) if report.serving else _headline(report)


def _parts(report: Report, console: Console) -> Iterator[RenderableType]:
    if report.life:
        yield from life_text.parts(report, report.life, console)
    if len(report.failures) > 1 or (report.failures and not failure_words.ends_failed(report)):
        yield _failures(report)
    if report.serving:
        yield from serving_text.parts(report, report.serving, console)
    if report.comparison:
        yield Group(*comparison_parts(report.comparison))
    if report.earlier:
        yield _earlier(report)
    if said := memory_words.lines(report.memory):
        yield _listed(memory_words.TITLE, said)
    if over_run := trend_words.lines(report):
        yield _listed("over the run", over_run)


def _listed(title: str, lines: Sequence[str]) -> RenderableType:
    return Group(Text(title, style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def _failures(report: Report) -> RenderableType:
    table = Table(*failure_words.COLUMNS, box=None, padding=(0, 2, 0, 0))
    for row in failure_words.cells(report.failures):
        table.add_row(*row)
    return Group(Text(failure_words.TITLE, style="bold"), table)


def _earlier(report: Report) -> RenderableType:
    table = Table(*earlier_words.COLUMNS, box=None, padding=(0, 2, 0, 0))
    for row in earlier_words.rows(report.earlier):
        table.add_row(*row.words, style=_EARLIER_STYLE.get(row.severity, ""))
    more = earlier_words.left_out(report.earlier)
    return Group(Text(earlier_words.TITLE, style="bold"), table, *([Text(more)] if more else []))


def _headline(report: Report) -> Text:
    step = report.step_seconds
    text = Text()
    text.append(f"job {report.job}", style="bold")
    if is_hang_report(report):
        text.append(f"   {counted(report.ranks, 'rank')}, no steps: {stack_words.held(report)}")
        return text
    text.append(
        f"   {counted(report.window.steps, 'step')}, {counted(report.ranks, 'rank')}   "
        f"step {seconds(step.mean)} (p95 {seconds(step.p95)})   "
    )
    text.append(f"{productive_name(report)} {productive(report)}", style="bold")
    return text


def _quality(note: QualityNote) -> Text:
    text = Text("data  ", style=_QUALITY_STYLE[note.severity])
    text.append(f"{note.what}: {note.means}", style="default")
    return text


def _states(report: Report, console: Console) -> RenderableType:
    ledger = report.ledgers[0]
    mean = unit_seconds(report)
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for state, value in ledger.states.items():
        share = value / ledger.wall_seconds
        table.add_row(filled(state, 1, console), state, percent(share), f"{seconds(share * mean)} a {unit_of(report)}")
    return table


def _findings(found: Sequence[FindingCard]) -> Iterator[RenderableType]:
    yield from (_finding(card) for card in found if not card.small)
    if rest := [card for card in found if card.small]:
        yield _small_losses(rest)


def _small_losses(found: Sequence[FindingCard]) -> RenderableType:
    """Return small losses in two lines each; their evidence is on the page and in the document."""
    rows: list[RenderableType] = [Text(SMALL_LOSSES, style="bold")]
    for card in found:
        line = f"{card.class_}{card.whose}: {card.loss}, {card.share}"
        rows += [Padding(Text(line), (0, 0, 0, 2)), Padding(Text(f"do  {card.action}", style="dim"), (0, 0, 0, 4))]
    return Group(*rows)


def _finding(card: FindingCard) -> RenderableType:
    title = Text()
    title.append(f" {card.tag.word.upper()} ", style=_SEVERITY_STYLE[card.severity])
    title.append(f" {card.class_}", style="bold")
    title.append(f"{card.whose}: {card.loss}")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("share", f"{card.share}, confidence {card.confidence:.2f}")
    for index, row in enumerate(card.evidence):
        facts.add_row("evidence" if index == 0 else "", _evidence(row))
    if card.runner_up is not None:
        facts.add_row("runner-up", f"{card.runner_up.class_}, {card.runner_up.margin} smaller")
    if card.speedup:
        facts.add_row("if fixed", Text(card.speedup, style="bold"))
    facts.add_row("do", card.action)
    facts.add_row("runbook", path_of(card.runbook))
    return Group(
        title,
        Text(f"  {card.title}"),
        Padding(facts, (0, 0, 0, 2)),
    )


def _tables(report: Report) -> Iterator[RenderableType]:
    if report.stacks:
        yield _stacks(report)
    if report.baseline:
        yield _changes(report)


def _stacks(report: Report) -> RenderableType:
    rows: list[RenderableType] = [Text(stack_words.TITLE, style="bold")]
    for card in stack_words.cards(report):
        more = [f"... {card.more_frames} more frames"] if card.more_frames else []
        rows.append(Padding(Text(card.heading, style="bold"), (0, 0, 0, 2)))
        rows += [Padding(Text(line, style="dim"), (0, 0, 0, 4)) for line in (card.processes, *card.frames, *more)]
    if more_groups := stack_words.left_out(report):
        rows.append(Padding(Text(more_groups), (0, 0, 0, 2)))
    return Group(*rows)


def _changes(report: Report) -> RenderableType:
    found = rows(report.changes)
    if not found:
        return Text(f"no difference from {report.baseline}", style="bold green")
    table = Table(
        "",
        "baseline",
        "now",
        "difference",
        "calls a step",
        title=f"time a step against {report.baseline}",
        title_justify="left",
        box=None,
    )
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    kind = ""
    for row in found:
        if row.kind != kind:
            kind = row.kind
            if kind != row.name:
                table.add_row(Text(kind, style="bold"))
        table.add_row(row.name, row.baseline, row.now, row.difference, row.calls)
        if row.was:
            table.add_row(Text(f"  was {row.was}", style="dim"))
    return table


def _evidence(row: EvidenceRow) -> Text:
    text = Text(" ".join(filter(None, (f"{row.signal}: {row.value}", row.against))))
    if row.source:
        text.append(f"  ({row.source})", style="dim")
    return text


def source_text(source: Source) -> str:
    """Return what was read, and what of it could not be."""
    faults = [
        (source.dropped, "records dropped by the job's processes"),
        (source.cut_lines, "cut lines"),
        (source.garbage_lines, "lines that are not records"),
        (source.implausible, "steps with impossible numbers"),
        (source.broken_objects, "objects of the store that cannot be read"),
        (source.unknown_kinds, "records of kinds from another version"),
        (source.duplicates, "duplicates left out"),
    ]
    extra = "; ".join(f"{count} {what}" for count, what in faults if count)
    return f"read {source.records:,} {source.unit} from {source.path}" + (f"; {extra}" if extra else "")


def _not_measured(report: Report) -> str:
    if not report.not_measured:
        return ""
    slugs = {row.class_ for row in report.not_measured}
    families = {entry.family for entry in BY_SLUG.values()}
    whole = {family for family in families if {s for s, entry in BY_SLUG.items() if entry.family == family} <= slugs}
    names = [slug for slug in BY_SLUG if slug in slugs and BY_SLUG[slug].family not in whole]
    names += [f"all of {family}" for family in sorted(whole)]
    return f"not measured, so neither found nor ruled out: {', '.join(names)} (--format json says what is missing)"


def comparison_parts(one: Comparison) -> Iterator[RenderableType]:
    """Yield the verdict of a comparison, its rows, and what else differs."""
    yield Text(comparison_words.title(one), style="bold")
    yield Text(comparison_words.verdict(one), style=_VERDICT_STYLE[one.verdict])
    table = Table(*comparison_words.TITLES, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for row in comparison_words.rows(one):
        style = "" if row.certain else "dim"
        table.add_row(row.name, row.baseline, row.now, row.difference, row.interval, style=style)
    yield table
    for name, before, now in comparison_words.made_of(one):
        yield Padding(Text(f"made of: {name} {before} → {now}"), (0, 0, 0, 1))
    for note in one.notes:
        yield Padding(Text(f"note: {note}"), (0, 0, 0, 1))
