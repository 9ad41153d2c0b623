"""What is wrong with objectives and alerts that can be read: alerts that cannot fire, names that do not exist, nobody to tell.

A check returns problems and prints nothing. What rules read is checked in `rule_expressions`.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tachoscope_alerts.compile import sli_expressions
from tachoscope_alerts.compile.recordings import Recording, needed
from tachoscope_alerts.compile.shipped import NOTHING_SHIPPED, ShippedObjectives, is_whole, left_out
from tachoscope_alerts.compile.sli_expressions import number
from tachoscope_alerts.lint import rule_expressions
from tachoscope_alerts.lint.catalogue import Catalogue, KnownSeries, Type
from tachoscope_alerts.lint.label_flow import LabelFault, faults, impossible_values, unknown_label, unknown_metric
from tachoscope_alerts.promql import Matcher
from tachoscope_alerts.spec.burn_rate_windows import AIMS, DAY, FEASIBLE, LEAST_PAGING_BURN_RATE, Timing, duration, tiers
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slices, Slo
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_alerts.compile.event_alerts import EventAlert

SLOW_PAGE_SECONDS = 1800.0
"""When all fails and the first page comes later than this, something faster has to page."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem; `line` is that of the objective or alert, or of its wrong part. An error must be fixed, a note may stay."""

    path: str
    line: int
    severity: Literal["error", "note"]
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.what} ({self.fix})"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What objectives and alerts are compared with.

    Attributes:
        known: the catalogue, with the series that the objectives record. owners: teams of the policy.
        runbooks: the folder; None: not looked for. retention_seconds: how long the server keeps samples.
        shipped: what comes with tachoscope, given or not: its names are taken, and its pages are beside objectives of one's own.
    """

    known: Catalogue
    owners: Collection[str]
    runbooks: Path | None
    retention_seconds: float
    shipped: ShippedObjectives = NOTHING_SHIPPED


def check(slos: Sequence[Slo], events: Sequence[EventAlert], around: Surroundings) -> list[Problem]:
    """Return the problems of objectives and of alerts beside them, in the order of files and lines."""
    companions = {event.slo for event in (*events, *around.shipped.events) if event.slo and event.severity == "page"}
    found = [*_names(slos, events, around.shipped), *_replaced(slos, around.shipped)]
    for slo in slos:
        found += _of_slo(slo, around, companion=slo.name in companions)
    for event in events:
        found += _of_event(event, around, {slo.name for slo in slos})
    return sorted(set(found))


def check_recordings(recordings: Sequence[Recording], known: Catalogue, events: Sequence[EventAlert] = ()) -> list[Problem]:
    """Return the problems of what is recorded for boards and alerts; `events`: the alerts that may read it."""
    faults_of = ((one, fault) for one in recordings for fault in rule_expressions.faults_of(one.expr, known))
    found = {Problem(one.path, one.line, "error", f"{one.name}: {fault.what}", fault.fix) for one, fault in faults_of}
    read = needed([event.expr for event in events], recordings)
    found |= {
        Problem(one.path, one.line, "error", f"{one.name}: an alert reads it", "remove boards_only")
        for one in read
        if one.boards_only
    }
    return sorted(found)


def check_rules(folder: Path, known: Catalogue) -> list[Problem]:
    """Return the problems of the rules below a folder, such as those that were generated.

    Raises:
        TachoscopeError: a file cannot be read.
    """
    found = rule_expressions.check(folder, known)
    return sorted({Problem(one.path, one.line, "error", f"{one.rule}: {one.fault.what}", one.fault.fix) for one in found})


# --- both ---------------------------------------------------------------------------------------------------------------------


def _error(of: Slo | EventAlert, what: str, fix: str, at: str = "") -> Problem:
    """Return an error at the line of a part of an objective, such as its owner, or at the objective's line."""
    return Problem(of.path, _line(of, at), "error", what, fix)


def _line(of: Slo | EventAlert, at: str) -> int:
    return of.lines.get(at, of.line) if isinstance(of, Slo) else of.line


def _names(slos: Sequence[Slo], events: Sequence[EventAlert], shipped: ShippedObjectives) -> Iterator[Problem]:
    """Yield duplicate names of objectives and alerts, which name the runbook. Shipped ones come first, so that the error is on the
    user's.
    """
    others = left_out(slos, events, shipped)
    of_ours = shipped.paths()
    given: list[Slo | EventAlert] = sorted([*slos, *events], key=lambda one: Path(one.path).resolve() not in of_ours)
    objectives: dict[str, list[Slo | EventAlert]] = defaultdict(list)
    alerts: dict[str, list[Slo | EventAlert]] = defaultdict(list)
    for one in (*others.slos, *others.events, *given):
        alerts[one.alert].append(one)
        if isinstance(one, Slo):
            objectives[one.name].append(one)
    for what, places in (("objective", objectives), ("alert", alerts)):
        fix = "give it another name"
        for name, (first, *more) in places.items():
            for other in more:
                yield _error(other, f"{what} {name} is there already, at {first.path}:{_line(first, what)}", fix, what)


def _replaced(slos: Sequence[Slo], shipped: ShippedObjectives) -> Iterator[Problem]:
    """Yield objectives with the name of a shipped one: in one Prometheus their series would mix."""
    if is_whole(slos, shipped):  # the shipped ones, changed maybe: there is no other beside them
        return
    ours, of_ours = {slo.name: slo for slo in shipped.slos}, shipped.paths()
    for slo in slos:
        if slo.name in ours and Path(slo.path).resolve() not in of_ours:
            place = f"{ours[slo.name].path}:{ours[slo.name].line}"
            what = f"objective {slo.name} takes the place of the one that comes with tachoscope, at {place}"
            yield Problem(slo.path, slo.line, "note", what, "do not load the rules of both; to keep both, give it another name")


def _people(of: Slo | EventAlert, around: Surroundings) -> Iterator[Problem]:
    if of.owner not in around.owners:
        there = f"there are {', '.join(around.owners)}"
        if not of.owner:
            yield _error(of, f"{of.alert} has no owner", f"add labels: {{owner: TEAM}}, a team of the policy: {there}")
        else:
            yield _error(of, f"{of.alert} has the owner {of.owner!r}, who is not in the policy", there, "owner")
    if around.runbooks is None:
        return
    page = around.runbooks / f"{of.alert}.md"
    if not page.is_file():
        yield _error(of, f"{of.alert} has no runbook", f"write {page}: see docs/guides/slos.md", "alert")
    elif of.alert not in re.findall(r"\w+", page.read_text(errors="replace").partition("\n")[0]):
        what = f"the first line of {page} does not name {of.alert}"
        yield _error(of, what, f"begin it with `# {of.alert}`, and see whether it is that alert's page", "alert")
    elif unfinished := sum("TODO" in line for line in page.read_text(errors="replace").splitlines()):
        yield _error(of, f"the runbook of {of.alert} has {unfinished} lines with TODO", f"finish {page}", "alert")


def _faulty(of: Slo | EventAlert, found: Iterable[LabelFault], where: str, at: str = "") -> list[Problem]:
    return [_error(of, f"{where}: {fault.what}", fault.fix, at) for fault in found]


# --- alerts -------------------------------------------------------------------------------------------------------------------


def _of_event(event: EventAlert, around: Surroundings, objectives: Collection[str]) -> list[Problem]:
    found = list(_people(event, around))
    if event.slo and event.slo not in {*objectives, *(slo.name for slo in around.shipped.slos)}:
        found.append(_error(event, f"{event.alert} is of the objective {event.slo!r}, which does not exist", "name one, or none"))
    try:
        return found + _faulty(event, rule_expressions.faults_of(event.expr, around.known), event.alert)
    except TachoscopeError as error:
        return [*found, _error(event, f"{event.alert}: {error}", "correct its expression")]


# --- objectives ---------------------------------------------------------------------------------------------------------------


def _of_slo(slo: Slo, around: Surroundings, *, companion: bool) -> list[Problem]:
    people = _people(slo, around) if slo.pages or slo.tickets else ()
    found = [*people, *_feasibility(slo, companion=companion), *_lengths(slo, around.retention_seconds)]
    if not slo.target_source.startswith(("http://", "https://", "judgement")):
        found.append(
            _error(slo, f"{slo.name}: target-source is {slo.target_source!r}", "write a URL, or judgement: why", "target-source")
        )
    found += _not_honoured(slo)
    foreign = [] if slo.of_catalogue else [part.selector.metric for part in _parts(slo) if part.selector.metric not in around.known]
    if foreign:
        what = f"{slo.name}: labels of {' and '.join(dict.fromkeys(foreign))} are not checked: the metric is of another program"
        return [*found, Problem(slo.path, slo.line, "note", what, "--prometheus URL checks whether there are series")]
    wrong = [problem for at, fault in _indicator(slo, around.known) for problem in _faulty(slo, [fault], slo.name, at)]
    if not wrong:
        timing = Timing()
        made = (sli_expressions.total_events(slo, timing), sli_expressions.bad_events(slo, timing))
        wrong = [problem for one in made for problem in _faulty(slo, faults(one, around.known), f"{slo.name} becomes {one}")]
    return found + wrong


def _not_honoured(slo: Slo) -> Iterator[Problem]:
    for key, line in slo.not_honoured.items():
        fix = "the target, the window and the policy define alerts and who is told"
        yield Problem(slo.path, line, "note", f"{slo.name}: {key} has no effect", fix)


def _feasibility(slo: Slo, *, companion: bool) -> Iterator[Problem]:
    """Yield alerts that cannot fire or that come late: what the target and the period do not allow."""
    found = tiers(slo)
    pages = [tier for tier in found if tier.severity == "page"]
    fix = f"raise the target, or add a page with slo: {slo.name} to alerts/events that fires when all is down"
    if not (slo.pages or slo.tickets):
        yield Problem(
            slo.path, slo.line, "note", f"{slo.name} has no alerts: its document disables them", "enable one, or accept that"
        )
    elif not found:
        what = (
            f"no alert of {slo.name} can fire: its budget is {_percent(slo.budget)} of all, and no more than {_percent(FEASIBLE)}"
        )
        yield _error(slo, f"{what} is bad when everything fails", "raise the target", "target")
    elif slo.pages and not pages and not companion:
        what = f"{slo.name} pages, and no page of it can fire: {LEAST_PAGING_BURN_RATE:g} times its budget"
        yield _error(slo, f"{what} is {_percent(LEAST_PAGING_BURN_RATE * slo.budget)} of all events", fix, "target")
    soonest = min((tier.long_seconds * tier.threshold(slo) for tier in pages), default=0.0)
    if soonest > SLOW_PAGE_SECONDS and not companion:
        what = f"when all of {slo.name} fails, its first page comes after {soonest / 60:.0f} minutes"
        yield Problem(slo.path, _line(slo, "target"), "note", what, fix)
    yield from _short_period(slo)


def _short_period(slo: Slo) -> Iterator[Problem]:
    """Yield the note that the first alert of a short period comes after more of its budget is spent."""
    first = min(tiers(slo), key=lambda tier: tier.long_seconds, default=None)
    if first is None:
        return
    aimed = min(aim.part for aim in AIMS if aim.severity == first.severity)
    spent = first.budget_part(slo.period_days * DAY)
    if spent > 1.5 * aimed:
        what = f"{_percent(spent)} of the budget of {slo.name} is spent before its first {first.severity}, not {_percent(aimed)}"
        period = "a day" if slo.period_days == 1 else f"{slo.period_days:g} days"
        why = f"a period of {period} would need a window shorter than {duration(first.long_seconds)}"
        yield Problem(slo.path, _line(slo, "duration"), "note", f"{what}: {why}", "write a longer period, or accept that")


def _percent(ratio: float) -> str:
    return f"{number(float(f'{100 * ratio:.3g}'))} %"


def _lengths(slo: Slo, retention_seconds: float) -> Iterator[Problem]:
    longest = max((tier.long_seconds for tier in tiers(slo)), default=0.0)
    needed = slo.period_days * DAY + longest
    if retention_seconds < needed:
        what = f"{slo.name} needs {needed / DAY:g} days of samples, and the server keeps {retention_seconds / DAY:g}"
        yield _error(
            slo, what, f"start Prometheus with --storage.tsdb.retention.time={math.ceil(needed / DAY)}d or more", "duration"
        )


def _indicator(slo: Slo, known: Catalogue) -> Iterator[tuple[str, LabelFault]]:
    """Yield faults of an indicator, each with its key."""
    indicator = slo.indicator
    found: list[tuple[str, LabelFault]] = []
    for part in _parts(slo):
        of = known.get(part.selector.metric)
        if of is None:
            found.append((f"{part.at}.metric", unknown_metric(part.selector.metric, known)))
        else:
            found += _of_part(part, of)
    if isinstance(indicator, AtMost | MoreThan) and not found:
        bounds = known[indicator.histogram.metric].buckets
        if not any(math.isclose(indicator.bound, bound) for bound in bounds):
            there, bound = ", ".join(map(number, bounds)), number(indicator.bound)
            what = f"no bucket of {indicator.histogram.metric} ends at {bound}"
            found.append(("value", LabelFault(what, f"its boundaries are {there}")))
    yield from found
    if isinstance(indicator, Ratio):
        at = f"ratioMetric.{'bad' if indicator.bad else 'good'}.metricSource.spec"
        yield from ((at, fault) for fault in _wider(indicator))


def _of_part(part: _Part, of: KnownSeries) -> Iterator[tuple[str, LabelFault]]:
    """Yield faults of a selector whose metric exists."""
    if of.type != part.type:
        fix = f"name a {part.type}, or count another way (docs/guides/slos.md)"
        yield f"{part.at}.metric", LabelFault(f"{of.name} is a {of.type}, not a {part.type}", fix)
    yield from ((part.kept_at, unknown_label(label, of)) for label in part.kept if not of.may_have_label(label))
    chosen_patterns = {**part.selector.patterns, **part.selector.excluded_patterns}
    yield from ((part.at, unknown_label(label, of)) for label in chosen_patterns if not of.may_have_label(label))
    for key, chosen in (("labels", part.selector.labels), ("excluding", part.selector.excluding)):
        for label, values in chosen.items():
            at = f"{part.at}.{key}.{label}"
            if not of.may_have_label(label):
                yield at, unknown_label(label, of)
            yield from ((at, fault) for value in values for fault in impossible_values(Matcher(label, "=", value), of))


@dataclass(frozen=True, slots=True)
class _Part:
    """A selector of an indicator, with the required type of its metric and the labels to keep; `at`: their keys."""

    selector: Selector
    type: Type
    kept: tuple[str, ...]
    at: str
    kept_at: str = "by"


def _parts(slo: Slo) -> list[_Part]:
    indicator, at = slo.indicator, "thresholdMetric.metricSource.spec"
    if isinstance(indicator, AtMost | MoreThan):
        return [_Part(indicator.histogram, "histogram", slo.by, at)]
    if isinstance(indicator, Slices):
        gate = indicator.gate
        gates = [_Part(gate.selector, "gauge", gate.on, f"{at}.while", f"{at}.while.on")] if gate else []
        return [_Part(indicator.value, "gauge", indicator.by, at, f"{at}.by"), *gates]
    named = (("total", indicator.total), ("bad", indicator.bad), ("good", indicator.good))
    return [_Part(one, "counter", slo.by, f"ratioMetric.{key}.metricSource.spec") for key, one in named if one is not None]


def _wider(ratio: Ratio) -> Iterator[LabelFault]:
    """Yield labels that select more bad or good events than are counted in total."""
    total, part = ratio.total, ratio.bad or ratio.good
    if part is None or part.metric != total.metric:
        return
    word = "bad" if ratio.bad else "good"
    for label, values in total.labels.items():
        if not set(part.labels.get(label, ())) or not set(part.labels[label]) <= set(values):
            yield LabelFault(
                f"{word} is not limited to the {label} of total: {', '.join(values)}", f"give {word} {label} within these"
            )
    for label, pattern in total.patterns.items():
        values = part.labels.get(label, ())
        if part.patterns.get(label) != pattern and not (values and all(re.fullmatch(pattern, value) for value in values)):
            yield LabelFault(f"{word} is not limited to the {label} of total: {pattern}", f"give {word} the same condition")
    for label, values in total.excluding.items():
        chosen = set(part.labels.get(label, ()))
        both = sorted(chosen & set(values)) if chosen else sorted(set(values) - set(part.excluding.get(label, ())))
        if both:
            yield LabelFault(f"{word} counts {label}={both[0]!r}, which total excludes", "exclude the same of both")
