"""A report for the terminal. Renders the report and computes nothing that an analyzer should."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tachoscope_cli.runbooks import path_of
from tachoscope_core.report import Change, Evidence, Finding, Ledger, QualityNote, Report, Source
from tachoscope_core.taxonomy import BY_SLUG

STATE_COLORS = {
    # Okabe and Ito's palette, told apart with any colour vision: https://jfly.uni-koeln.de/color/
    "compute": "#009E73",
    "communication": "#0072B2",
    "straggler_wait": "#CC79A7",
    "data_wait": "#E69F00",
    "host_to_device": "#56B4E9",
    "host_wait": "#D55E00",
    "checkpoint": "#F0E442",
    "evaluation": "#7F7FBF",
    "unexplained": "#999999",
}
_FALLBACK_COLOR = "#666666"
_SEVERITY_STYLE = {"critical": "bold white on red", "warning": "bold black on yellow", "info": "bold black on green"}
_MATCHED = {
    "exact": "",
    "normalised": "renamed",
    "base_name": "renamed",
    "operator": "by its operator",
    "baseline_only": "baseline only",
    "other_only": "now only",
}
HEALTHY = ("compute_bound", "decode_bandwidth")
_QUALITY_STYLE = {"bad": "bold red", "limited": "yellow", "note": "dim"}
_BAR_WIDTH = 72
_CHANGES_SHOWN = 40
_NAME_LENGTH = 56
WARNING_SHARE_TEXT = "10 %"


def render(report: Report, console: Console, *, then: Sequence[str] = ()) -> None:
    """Print the report, then the given lines; where nothing is wrong that is the last line."""
    console.print(_headline(report), soft_wrap=True)
    for note in report.quality:
        console.print(_quality(note), soft_wrap=True)
    console.print()
    console.print(_bar(report.ledgers[0]))
    console.print(_states(report))
    for finding in report.findings:
        console.print(Padding(_finding(finding, report), (1, 0, 0, 0)))
    if report.baseline:
        console.print(Padding(_changes(report), (1, 0, 0, 0)))
    console.print()
    for line in [*map(_source, report.sources), _not_measured(report)]:
        if line:
            console.print(Text(line, style="dim"), soft_wrap=True)
    for line in then:
        console.print(line, soft_wrap=True)
    if nothing_found(report):
        console.print(Text(f"no bottleneck above {WARNING_SHARE_TEXT}", style="bold green"))


def nothing_found(report: Report) -> bool:
    """Say whether there is no finding but that the step is as it should be."""
    return all(finding.class_ in HEALTHY for finding in report.findings)


def seconds(value: float) -> str:
    """Return seconds in the unit that people read best."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def percent(ratio: float) -> str:
    """Return a ratio as a percentage."""
    return f"{ratio * 100:.1f} %"


def quantity(value: float, unit: str) -> str:
    """Return an evidence value with its unit."""
    if unit.startswith("seconds"):
        return seconds(value)
    if unit == "ratio":
        return percent(value)
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    return f"{value:.3g} {unit.split(';')[0]}".strip()


def share_text(finding: Finding, report: Report) -> str:
    """Return how large a finding is, and how certain that is."""
    low, high = finding.share_ci
    interval = f"95 % interval {low * 100:.1f} to {high * 100:.1f} %" if report.window.steps > 1 else "of one step, so no interval"
    return f"{percent(finding.share)} of the step ({interval}), confidence {finding.confidence:.2f}"


def counted(number: int, thing: str) -> str:
    """Return `1 step`, `2 steps`, `20,000 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def ranks_text(ranks: list[int] | str) -> str:
    """Return the culprits of a finding in words."""
    if isinstance(ranks, str):
        return "all ranks"
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _headline(report: Report) -> Text:
    step = report.step_seconds
    text = Text()
    text.append(f"job {report.job}", style="bold")
    text.append(
        f"   {counted(report.window.steps, 'step')}, {counted(report.ranks, 'rank')}   "
        f"step {seconds(step.mean)} (p95 {seconds(step.p95)})   "
    )
    text.append(f"goodput {percent(report.goodput or 0.0)}", style="bold")
    return text


def _quality(note: QualityNote) -> Text:
    text = Text("data  ", style=_QUALITY_STYLE[note.severity])
    text.append(f"{note.what}: {note.means}", style="default")
    return text


def _bar(ledger: Ledger) -> Text:
    text = Text()
    used = 0.0
    for state, value in ledger.states.items():
        begin, used = used, used + value / ledger.wall_seconds * _BAR_WIDTH
        text.append("█" * (round(used) - round(begin)), style=STATE_COLORS.get(state, _FALLBACK_COLOR))
    return text


def _states(report: Report) -> RenderableType:
    ledger = report.ledgers[0]
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for state, value in ledger.states.items():
        share = value / ledger.wall_seconds
        table.add_row(
            Text("█", style=STATE_COLORS.get(state, _FALLBACK_COLOR)),
            state,
            percent(share),
            f"{seconds(share * report.step_seconds.mean)} a step",
        )
    return table


def _finding(finding: Finding, report: Report) -> RenderableType:
    title = Text()
    title.append(f" {finding.severity.upper()} ", style=_SEVERITY_STYLE[finding.severity])
    title.append(f" {finding.class_}", style="bold")
    title.append(f", {ranks_text(finding.ranks)}: {seconds(finding.seconds_per_step)} of {seconds(report.step_seconds.mean)}")
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("share", share_text(finding, report))
    for index, row in enumerate(finding.evidence[1:] or finding.evidence):
        facts.add_row("evidence" if index == 0 else "", _evidence(row))
    if finding.runner_up is not None:
        facts.add_row("runner-up", f"{finding.runner_up.class_}, {percent(finding.runner_up.margin)} behind")
    if finding.class_ not in HEALTHY:
        facts.add_row("if fixed", Text(f"{finding.speedup_if_fixed:.2f}x as fast", style="bold"))
    facts.add_row("do", finding.action)
    facts.add_row("runbook", path_of(finding.runbook))
    return Group(
        title,
        Text(f"  {BY_SLUG[finding.class_].title}" if finding.class_ in BY_SLUG else ""),
        Padding(facts, (0, 0, 0, 2)),
    )


def _changes(report: Report) -> RenderableType:
    table = Table(
        "",
        "baseline",
        "now",
        "difference",
        "calls",
        title=f"seconds a step against {report.baseline}",
        title_justify="left",
        box=None,
    )
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    kind = ""
    for change in report.changes[:_CHANGES_SHOWN]:
        if change.kind != kind:
            kind = change.kind
            table.add_row(Text(kind, style="bold"))
        table.add_row(*change_cells(change))
    return table


def change_cells(change: Change) -> list[str]:
    """Return a change's name, seconds before and now, their difference, and how often it ran in a step."""
    short = change.name if len(change.name) <= _NAME_LENGTH else change.name[: _NAME_LENGTH - 1] + "…"
    how = _MATCHED.get(change.matched, change.matched)
    name = f"{short} ({how})" if how else short
    counts = f"{change.baseline_count:.3g} → {change.count:.3g}" if change.kind in ("operator", "kernel") else ""
    difference = change.seconds - change.baseline_seconds
    return [
        name,
        seconds(change.baseline_seconds),
        seconds(change.seconds),
        f"{'+' if difference > 0 else '-'}{seconds(abs(difference))}",
        counts,
    ]


def _evidence(row: Evidence) -> Text:
    text = Text(f"{row.signal}: {quantity(row.value, row.unit)}")
    if row.threshold is not None:
        text.append(f" {row.comparison} {quantity(row.threshold, row.unit)}")
    if row.source:
        text.append(f"  ({row.source})", style="dim")
    return text


def _source(source: Source) -> str:
    faults = [
        (source.dropped, "records dropped by the job's processes"),
        (source.cut_lines, "cut lines"),
        (source.garbage_lines, "lines that are no records"),
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
