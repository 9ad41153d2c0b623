"""Runbooks of alerts: what of a page follows from the alert and the policy is generated, the rest is written by people.

Generated are the head (whose the page is, and which test shows that its alert fires), the urgency and the escalation. They stand
between markers, so that they can be renewed without touching a word that somebody wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tachoscope_alerts.compile.detection_time import fires, in_words
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.sli_expressions import number
from tachoscope_alerts.spec.burn_rate_windows import DAY, Tier, Timing, duration, seconds_of, tiers
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Ratio, Severity, Slices, Slo
from tachoscope_core.errors import TachoscopeError

HEADINGS = (
    "0 Urgency",
    "1 Is it real?",
    "2 Impact",
    "3 Stop it",
    "4 Diagnose",
    "5 Verify",
    "6 Escalate",
    "7 False positives and known gaps",
    "8 Related",
)
"""Of every page, in the order in which somebody who was woken needs them."""
HEAD = re.compile(
    r"# (?P<alert>\w+) \| (?P<severity>[^|]+) \| (?P<owner>[^|]+) \| (?P<area>[^|]+) "
    r"\| last tested (?P<tested>\d{4}-\d\d-\d\d) by (?P<test>.+)"
)
"""The first line of a page. The date is kept when the rest is renewed: only who has run the test knows it."""

_END = "<!-- end -->"
_TOLD = "The notification follows its rule after one [wait of Alertmanager](../docs/guides/alerting.md#routing)."
_RANGE, _OFFSET = re.compile(r"\[(\w+)(?::\w*)?\]"), re.compile(r"\boffset (\w+)")
_PROMPTS = {
    "1 Is it real?": "a query that shows it, with a healthy value; what looks the same and is not",
    "2 Impact": "who notices what, and how to put a number on it",
    "3 Stop it": "a reversible action within 90 s, with what to expect and how to undo it",
    "4 Diagnose": "a table: symptom, query, cause, step",
    "5 Verify": "what to watch, and for how long",
    "7 False positives and known gaps": "what else fires it; what it does not see",
    "8 Related": "other alerts and pages",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about.

    Attributes:
        severity: as people read it, such as `page and ticket`. escalates_as: whose steps the policy has.
        urgency: the generated block of section 0. budgeted: whether an error budget is spent.
        test: file of its tests for promtool, below `alerts/generated/prometheus`.
    """

    alert: str
    severity: str
    escalates_as: tuple[Severity, ...]
    owner: str
    area: str
    title: str
    urgency: str
    budgeted: bool
    test: str


def of_objectives(slos: Sequence[Slo]) -> Subject:
    """Return the subject of a burn alert, from the objectives that share its name: mostly one.

    Raises:
        TachoscopeError: they differ in owner or area, so that nobody could say whose the page is.
    """
    first = slos[0]
    if {(slo.owner, slo.area) for slo in slos} != {(first.owner, first.area)}:
        raise TachoscopeError(
            f"{first.path}:{first.line}: the objectives of {first.alert} differ in owner or area",
            fix="give each an alert of its own",
        )
    found = {tier.severity for slo in slos for tier in tiers(slo)}
    severities = tuple(severity for severity in get_args(Severity) if severity in found)
    return Subject(
        alert=first.alert,
        severity=" and ".join(severities),
        escalates_as=severities,
        owner=first.owner,
        area=first.area,
        title=first.title or first.name,
        urgency="\n\n".join(_burn_urgency(slo) for slo in slos),
        budgeted=True,
        test=f"{Path(first.path).stem or first.name}{'' if 'page' in severities else '_tickets'}_test.yaml",
    )


def of_event(event: EventAlert) -> Subject:
    """Return the subject of an alert that is not an objective's burn."""
    # The one that always fires tells nobody. Its end is what somebody is paged for, by whoever waits for it.
    escalates_as: Severity = "page" if event.severity == "none" else event.severity
    return Subject(
        alert=event.alert,
        severity=event.severity,
        escalates_as=(escalates_as,),
        owner=event.owner,
        area=event.area,
        title=event.description,
        urgency=_event_urgency(event),
        budgeted=False,
        test=f"events-{event.group}_test.yaml",
    )


def subjects(slos: Sequence[Slo], events: Sequence[EventAlert]) -> dict[str, Subject]:
    """Return what there is to write a page about, by the name of the alert, which is that of the file."""
    named: dict[str, list[Slo]] = {}
    for slo in slos:
        named.setdefault(slo.alert, []).append(slo)
    return {alert: of_objectives(found) for alert, found in named.items()} | {event.alert: of_event(event) for event in events}


def skeleton(subject: Subject, policy: Policy) -> str:
    """Return a page with its generated parts; `TODO` marks the rest, which must not be shipped."""
    parts = [f"# {subject.alert} | | | | last tested 2000-01-01 by nothing", "", f"**TL;DR** TODO: {subject.title}"]
    for heading in HEADINGS:
        parts += ["", f"## {heading}"]
        if heading in _PROMPTS:
            parts.append(f"TODO: {_PROMPTS[heading]}")
        else:
            parts += [_marker("urgency" if heading == "0 Urgency" else "escalation"), _END]
    return refresh("\n".join(parts) + "\n", subject, policy)


def refresh(page: str, subject: Subject, policy: Policy) -> str:
    """Return a page with its generated parts renewed and every other word as it was.

    Raises:
        TachoscopeError: the page lacks the place of one of them.
    """
    head, _, rest = page.partition("\n")
    tested = re.search(r"\| last tested (\d{4}-\d\d-\d\d) by ", head)
    if not head.startswith(f"# {subject.alert} |") or tested is None:
        raise TachoscopeError(
            f"runbooks/{subject.alert}.md:1: the first line is {head!r}",
            fix=f"begin with: # {subject.alert} | | | | last tested YYYY-MM-DD by TEST",
        )
    named = f"# {subject.alert} | {subject.severity} | {subject.owner} | {subject.area} | last tested {tested[1]} by {subject.test}"
    rest = _with_block(rest, "urgency", subject.urgency, subject.alert)
    return f"{named}\n" + _with_block(rest, "escalation", _escalation(subject, policy), subject.alert)


def stale(folder: Path, about: Iterable[Subject], policy: Policy) -> dict[Path, str]:
    """Return what pages in a folder should be and are not: with their generated parts renewed, and skeletons of missing ones.

    Raises:
        TachoscopeError: a page lacks the place of a generated part.
    """
    found = {}
    for subject in about:
        path = folder / f"{subject.alert}.md"
        page = path.read_text() if path.exists() else ""
        current = refresh(page, subject, policy) if page else skeleton(subject, policy)
        if current != page:
            found[path] = current
    return found


def in_two_units(seconds: float) -> str:
    """Return a time as people say it, by its two largest units: `40 min`, `2 d 2 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    parts = [(minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "min")]
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


# --- generated blocks ---------------------------------------------------------------------------------------------------------


def _marker(name: str) -> str:
    return f"<!-- generated: {name} -->"


def _with_block(page: str, name: str, block: str, alert: str) -> str:
    before, found, after = page.partition(_marker(name))
    if not found or _END not in after:
        raise TachoscopeError(
            f"runbooks/{alert}.md has no place for its {name}", fix=f"add the lines {_marker(name)} and {_END} below its heading"
        )
    return f"{before}{found}\n{block}\n{_END}{after.partition(_END)[2]}"


def _burn_urgency(slo: Slo) -> str:
    """Return the meaning of the tiers, which the reader looks up by the alert's labels `long` and `short`."""
    period = slo.period_days * DAY
    rows = [_tier_row(tier, slo, period) for tier in tiers(slo)]
    return "\n".join(
        [
            "| long / short | severity | bad, above | budget's rate x | whole budget gone in | all bad: rule fires after |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"{_objective(slo)} {_TOLD}",
        ]
    )


def _tier_row(tier: Tier, slo: Slo, period_seconds: float) -> str:
    burn_rate, threshold = tier.burn_rate, tier.threshold(slo)
    windows = f"{duration(tier.long_seconds)} / {duration(tier.short_seconds)}"
    gone, after = in_two_units(period_seconds / burn_rate), in_words(fires(slo, tier, 1.0, Timing()))
    return f"| {windows} | {tier.severity} | {_percent(threshold)} | {burn_rate:.3g} | {gone} | {after} |"


def _objective(slo: Slo) -> str:
    words = [f"`{slo.name}`: {number(slo.target * 100)} % good over {slo.period_days:g} d ({_linked(slo.target_source)})."]
    if slo.least_bad_events:
        words.append(f"Quiet below {number(slo.least_bad_events)} bad {_counted(slo)} in the long window.")
    return " ".join(words)


def _counted(slo: Slo) -> str:
    """Return the unit of the minimum number of bad events."""
    if isinstance(slo.indicator, Slices):
        return "minutes"
    seconds = isinstance(slo.indicator, Ratio) and slo.indicator.total.metric.endswith("_seconds_total")
    return "seconds, summed over all that count them," if seconds else "events"


def _event_urgency(event: EventAlert) -> str:
    says = {
        "page": "Users are affected now: this alert pages.",
        "ticket": "A cause, or a loss that can wait: it does not page.",
        "none": "It always fires and notifies no one; its end pages.",
    }[event.severity]
    companion = f" It belongs to the objective `{event.slo}`." if event.slo else ""
    return "\n".join(
        [
            "| severity | fires | ends | threshold |",
            "|---|---|---|---|",
            f"| {event.severity} | {_begin(event)} | {_end(event)} | {_linked(event.source)} |",
            "",
            f"{says}{companion} [Expression](../alerts/events/{Path(event.path).name}), with the series of its tests.",
        ]
    )


def _begin(event: EventAlert) -> str:
    """Return when it fires. Most expressions look back instead of using `for`, which restarts at every gap."""
    if event.for_seconds:
        return f"when its condition has held for {in_two_units(event.for_seconds)}"
    found = {seconds_of(window) for window in _RANGE.findall(event.expr) or _OFFSET.findall(event.expr)}
    back = ", ".join(in_two_units(seconds) for seconds in sorted(found))
    return f"as soon as its condition is true, which {f'looks back {back}' if back else 'compares the newest values'}"


def _end(event: EventAlert) -> str:
    return f"{in_two_units(event.keep_firing_for_seconds)} after its condition was last true"


def _escalation(subject: Subject, policy: Policy) -> str:
    rows = [
        f"| {severity} | {in_two_units(step.after_minutes * 60)} | {step.who} {step.what} |"
        for severity in subject.escalates_as
        for step in policy.escalation[severity]
    ]
    owner = policy.owners.get(subject.owner, policy.owners[policy.fallback])
    lines = ["| severity | after | who |", "|---|---|---|", *rows, "", f"Owner: {owner.name}, {owner.contact}."]
    if subject.budgeted:
        steps = "; ".join(f"below {step.remaining_below:.0%}: {step.what}" for step in policy.budget)
        lines.append(f"Budget {steps}. One incident that spends over {policy.postmortem_above:.0%} of it is written up.")
    return "\n".join(lines)


def _linked(source: str) -> str:
    return f"[source]({source})" if source.startswith("https://") else source


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.3g} %"
