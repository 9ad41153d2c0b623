"""What is wrong with objectives and alerts that can be read: alerts that cannot fire, names that do not exist, nobody to tell.

A check returns problems and prints nothing. What rules read is checked in `rule_lint`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tachoscope_alerts import expressions, rule_lint
from tachoscope_alerts.catalogue import Catalogue, Type
from tachoscope_alerts.label_flow import Fault, faults, impossible_values, unknown_label, unknown_metric
from tachoscope_alerts.promql import Matcher
from tachoscope_alerts.slo import AtMost, Ratio, Selector, Slices, Slo
from tachoscope_alerts.windows import DAY, FEASIBLE, TIERS, Tier, Timing, duration, tiers
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_alerts.events import EventAlert

SLOW_PAGE_SECONDS = 1800.0
"""When all fails and the first page comes later than this, something faster has to page."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem; `line` is that of the objective or alert. An error must be mended, a note may stay."""

    path: str
    line: int
    severity: Literal["error", "note"]
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.what} ({self.fix})"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What objectives and alerts are held against.

    Attributes:
        known: the catalogue, with the series that the objectives record. owners: teams of the policy.
        runbooks: the folder; None: not looked for. retention_seconds: how long the server keeps samples.
    """

    known: Catalogue
    owners: Collection[str]
    runbooks: Path | None
    retention_seconds: float


def check(slos: Sequence[Slo], events: Sequence[EventAlert], around: Surroundings) -> list[Problem]:
    """Return the problems of objectives and of alerts beside them, in the order of files and lines."""
    companions = {event.slo for event in events if event.slo and event.severity == "page"}
    found = [*_names(slos, events)]
    for slo in slos:
        found += _of_slo(slo, around, companion=slo.name in companions)
    for event in events:
        found += _of_event(event, around, {slo.name for slo in slos})
    return sorted(set(found))


def check_rules(folder: Path, known: Catalogue) -> list[Problem]:
    """Return the problems of the rules below a folder, such as those that were generated.

    Raises:
        TachoscopeError: a file cannot be read.
    """
    found = rule_lint.check(folder, known)
    return sorted({Problem(one.path, one.line, "error", f"{one.rule}: {one.fault.what}", one.fault.fix) for one in found})


# --- both ---------------------------------------------------------------------------------------------------------------------


def _error(of: Slo | EventAlert, what: str, fix: str) -> Problem:
    return Problem(of.path, of.line, "error", what, fix)


def _names(slos: Sequence[Slo], events: Sequence[EventAlert]) -> Iterator[Problem]:
    """Yield names that are given twice: of objectives, and of alerts, which name the runbook."""
    objectives: dict[str, list[Slo | EventAlert]] = defaultdict(list)
    alerts: dict[str, list[Slo | EventAlert]] = defaultdict(list)
    for slo in slos:
        objectives[slo.name].append(slo)
    named: list[Slo | EventAlert] = [*slos, *events]
    for one in named:
        alerts[one.alert].append(one)
    for what, places in (("objective", objectives), ("alert", alerts)):
        for name, (first, *others) in places.items():
            for other in others:
                yield _error(other, f"{what} {name} is there already, at {first.path}:{first.line}", "give it a name of its own")


def _people(of: Slo | EventAlert, around: Surroundings) -> Iterator[Problem]:
    if of.owner not in around.owners:
        yield _error(
            of, f"{of.alert} has the owner {of.owner!r}, who is not in the policy", f"there are {', '.join(around.owners)}"
        )
    if around.runbooks is not None and not (around.runbooks / f"{of.alert}.md").is_file():
        yield _error(of, f"{of.alert} has no runbook", f"write {around.runbooks / of.alert}.md: see runbooks/ for the headings")


def _faulty(of: Slo | EventAlert, found: Iterable[Fault], where: str) -> list[Problem]:
    return [_error(of, f"{where}: {fault.what}", fault.fix) for fault in found]


# --- alerts -------------------------------------------------------------------------------------------------------------------


def _of_event(event: EventAlert, around: Surroundings, objectives: Collection[str]) -> list[Problem]:
    found = list(_people(event, around))
    if event.slo and event.slo not in objectives:
        found.append(_error(event, f"{event.alert} is of the objective {event.slo!r}, which does not exist", "name one, or none"))
    try:
        return found + _faulty(event, rule_lint.faults_of(event.expr, around.known), event.alert)
    except TachoscopeError as error:
        return [*found, _error(event, f"{event.alert}: {error}", "correct its expression")]


# --- objectives ---------------------------------------------------------------------------------------------------------------


def _of_slo(slo: Slo, around: Surroundings, *, companion: bool) -> list[Problem]:
    found = [*_people(slo, around), *_feasibility(slo, companion=companion), *_lengths(slo, around.retention_seconds)]
    if not slo.target_source.startswith(("http://", "https://", "judgement")):
        found.append(_error(slo, f"{slo.name}: target-source is {slo.target_source!r}", "write a URL, or judgement: why"))
    wrong = _faulty(slo, _indicator(slo, around.known), slo.name)
    if not wrong:
        timing = Timing()
        made = (expressions.total_events(slo, timing), expressions.bad_events(slo, timing))
        wrong = [problem for one in made for problem in _faulty(slo, faults(one, around.known), f"{slo.name} becomes {one}")]
    return found + wrong


def _feasibility(slo: Slo, *, companion: bool) -> Iterator[Problem]:
    """Yield tiers that cannot fire: their threshold is a factor times the budget, and may be more than all."""
    possible = tiers(slo)
    wanted = [tier for tier in TIERS if slo.pages or tier.severity == "ticket"]
    pages = [tier for tier in possible if tier.severity == "page"]
    impossible = ", ".join(_tier(tier, slo) for tier in wanted if tier not in possible)
    fix = f"raise the target, or add a page with slo: {slo.name} to alerts/events that fires when all is down"
    if not possible:
        yield _error(slo, f"no alert of {slo.name} can fire: {impossible}", "raise the target")
    elif slo.pages and not pages and not companion:
        yield _error(slo, f"{slo.name} pages, and no page of it can fire: {impossible}", fix)
    elif impossible and not companion:
        yield Problem(slo.path, slo.line, "note", f"some alerts of {slo.name} cannot fire: {impossible}", fix)
    soonest = min((tier.long_seconds * tier.threshold(slo) for tier in pages), default=0.0)
    if soonest > SLOW_PAGE_SECONDS and not companion:
        what = f"when all of {slo.name} fails, its first page comes after {soonest / 60:.0f} minutes"
        yield Problem(slo.path, slo.line, "note", what, fix)


def _tier(tier: Tier, slo: Slo) -> str:
    windows = f"{duration(tier.long_seconds)}/{duration(tier.short_seconds)}"
    return f"{windows} needs {tier.threshold(slo):.3g} of all to be bad, and above {FEASIBLE:g} it hardly fires even when all is"


def _lengths(slo: Slo, retention_seconds: float) -> Iterator[Problem]:
    longest = max(tier.long_seconds for tier in TIERS)
    needed = slo.period_days * DAY + longest
    if slo.period_days * DAY < longest:
        what = f"the period of {slo.name}, {slo.period_days:g} days, is shorter than the window {duration(longest)} of its alerts"
        yield _error(slo, what, "write a longer one, such as 28d")
    if retention_seconds < needed:
        what = f"{slo.name} needs {needed / DAY:g} days of samples, and the server keeps {retention_seconds / DAY:g}"
        yield _error(slo, what, f"start Prometheus with --storage.tsdb.retention.time={math.ceil(needed / DAY)}d or more")


def _indicator(slo: Slo, known: Catalogue) -> list[Fault]:
    """Return what in an indicator does not exist, or cannot be."""
    indicator = slo.indicator
    found: list[Fault] = []
    for selector, kind, kept in _selectors(slo):
        of = known.get(selector.metric)
        if of is None:
            found.append(unknown_metric(selector.metric, known))
            continue
        if of.type != kind:
            found.append(Fault(f"{of.name} is a {of.type}, not a {kind}", f"name a {kind}, or count another way (docs/slos.md)"))
        found += [unknown_label(label, of) for label in (*selector.labels, *selector.excluding, *kept) if not of.has(label)]
        for label, values in (*selector.labels.items(), *selector.excluding.items()):
            found += [fault for value in values for fault in impossible_values(Matcher(label, "=", value), of)]
    if isinstance(indicator, AtMost) and not found:
        bounds = known[indicator.histogram.metric].buckets
        if not any(math.isclose(indicator.bound, bound) for bound in bounds):
            there = ", ".join(f"{bound:g}" for bound in bounds)
            found.append(
                Fault(f"no bucket of {indicator.histogram.metric} ends at {indicator.bound:g}", f"its boundaries are {there}")
            )
    if isinstance(indicator, Ratio):
        found += _wider(indicator)
    return found


def _selectors(slo: Slo) -> list[tuple[Selector, Type, tuple[str, ...]]]:
    """Return the selectors of an indicator, each with the type its metric needs and the labels that are kept of it."""
    indicator = slo.indicator
    if isinstance(indicator, AtMost):
        return [(indicator.histogram, "histogram", slo.by)]
    if isinstance(indicator, Slices):
        gate = indicator.gate
        gates: list[tuple[Selector, Type, tuple[str, ...]]] = [(gate.selector, "gauge", gate.on)] if gate else []
        return [(indicator.value, "gauge", indicator.by), *gates]
    return [(one, "counter", slo.by) for one in (indicator.total, indicator.bad, indicator.good) if one is not None]


def _wider(ratio: Ratio) -> Iterator[Fault]:
    """Yield labels by which more events are bad or good than are counted at all."""
    total, part = ratio.total, ratio.bad or ratio.good
    if part is None or part.metric != total.metric:
        return
    word = "bad" if ratio.bad else "good"
    for label, values in total.labels.items():
        if not set(part.labels.get(label, ())) or not set(part.labels[label]) <= set(values):
            yield Fault(f"{word} is not limited to the {label} of total: {', '.join(values)}", f"give {word} {label} within these")
    for label, values in total.excluding.items():
        chosen = set(part.labels.get(label, ()))
        both = sorted(chosen & set(values)) if chosen else sorted(set(values) - set(part.excluding.get(label, ())))
        if both:
            yield Fault(f"{word} counts {label}={both[0]!r}, which total excludes", "exclude the same of both")
