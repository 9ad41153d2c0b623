"""Alerts that are no objective's burn: faults of infrastructure, and what is down so hard that nobody should wait for a budget.

Each is written by hand in `alerts/events/<group>.yaml`, with the series in which it fires and those of its look-alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tachoscope_alerts.compile.annotations import CHOSEN_PLACE, WHERE
from tachoscope_alerts.compile.links import chosen_by, dashboard_url, runbook_url
from tachoscope_alerts.compile.rules import KEEP_FIRING_SECONDS, Group, Rule
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration, scaled_expression, seconds_of
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value

EventSeverity = Literal["page", "ticket", "none"]
"""`none` is of the alert that always fires."""
EventTest = Mapping[str, Any]
"""`what`, `interval`, `series` (each with `series` and `values`, as promtool reads them), `at`, and `labels` that are expected."""

_SEVERITIES = get_args(EventSeverity)
_AREAS = ("infrastructure", "training", "inference")
_NEEDED = ("alert", "severity", "area", "owner", "expr", "summary", "description", "source", "tests")
_KEYS = (*_NEEDED, "slo", "for", "keep_firing_for", "dashboard", "labels", "also")
_TEST_KEYS = ("what", "interval", "series", "at", "labels")
_OWN_LABELS = frozenset(("alertname", "severity", "area", "owner", "slo"))
_NAME = re.compile(r"([A-Z][a-z0-9]*)+")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class EventAlert:
    """One alert.

    Attributes:
        alert: its name, and that of its runbook. owner: team. slo: the objective whose companion it is, or "".
        for_seconds: that the expression holds before it fires. keep_firing_for_seconds: that it goes on after that.
        summary, description: may hold Prometheus's templates. dashboard: name of a board of
            the suite, uid of another, or "".
        source: of the threshold: a URL, or `judgement: why`. tests: by name, `fires` and `quiet`. labels: more of them.
        path, line: where it was read. group: of its rules; that of its file.
        also: more tests; each says with `fires` whether it does.
    """

    alert: str
    severity: EventSeverity
    area: str
    owner: str
    slo: str
    expr: str
    for_seconds: float
    keep_firing_for_seconds: float
    summary: str
    description: str
    dashboard: str
    source: str
    tests: Mapping[str, EventTest]
    labels: Mapping[str, str]
    path: str = ""
    line: int = 0
    group: str = ""
    also: Sequence[EventTest] = ()


def load(path: Path) -> list[EventAlert]:
    """Read a file, or all `*.yaml` of a folder in the order of their names.

    Raises:
        TachoscopeError: one cannot be used; with file, line, what is wrong there, and the way out.
    """
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise TachoscopeError(f"{path} contains no *.yaml", fix="name the folder of event alerts, such as alerts/events")
    found: list[EventAlert] = []
    places: dict[str, str] = {}
    groups_of: dict[str, str] = {}
    for file in files:
        group, alerts = _read(file)
        if group.word() in groups_of:
            raise group.error(f"is {group.word()!r}, as in {groups_of[group.word()]}", "give each file a different group")
        groups_of[group.word()] = str(file)
        for one in alerts:
            if one.alert in places:
                raise TachoscopeError(
                    f"{one.path}:{one.line}: {one.alert} is in {places[one.alert]} too", fix="give each alert a name of its own"
                )
            places[one.alert] = f"{one.path}:{one.line}"
            found.append(one)
    return found


def groups(events: Sequence[EventAlert], policy: Policy, timing: Timing) -> list[Group]:
    """Return the rule groups of alerts: two for each group of theirs, where tickets are evaluated less often than pages."""
    return [
        {"name": name, "interval": duration(interval), "rules": [_rule(event, policy, timing) for event in of_group]}
        for group in dict.fromkeys(event.group for event in events)
        for name, interval, of_group in _parts(group, events, timing)
    ]


def group_names(events: Sequence[EventAlert]) -> list[str]:
    """Return the names of the rule groups of alerts."""
    names = dict.fromkeys(event.group for event in events)
    return [name for group in names for name, _, _ in _parts(group, events, Timing())]


def _parts(group: str, events: Sequence[EventAlert], timing: Timing) -> Iterator[tuple[str, float, list[EventAlert]]]:
    """Yield the name, seconds between evaluations and alerts of the rule groups of a group of alerts."""
    tickets = [event for event in events if event.group == group and event.severity == "ticket"]
    others = [event for event in events if event.group == group and event.severity != "ticket"]
    parts = ((f"events-{group}", timing.interval, others), (f"events-{group}-tickets", timing.ticket_interval, tickets))
    yield from (part for part in parts if part[2])


def labels_of(event: EventAlert) -> dict[str, str]:
    """Return the labels that the rule gives an alert, beside those of the series."""
    own = {"severity": event.severity, "area": event.area, "owner": event.owner}
    return own | ({"slo": event.slo} if event.slo else {}) | dict(event.labels)


def tests_of(event: EventAlert) -> list[tuple[bool, EventTest]]:
    """Return all tests of an alert, each with whether it fires."""
    return [(name == "fires", test) for name, test in event.tests.items()] + [(test["fires"], test) for test in event.also]


def _rule(event: EventAlert, policy: Policy, timing: Timing) -> Rule:
    rule: Rule = {"alert": event.alert, "expr": scaled_expression(event.expr, timing)}
    for key, seconds in (("for", event.for_seconds), ("keep_firing_for", event.keep_firing_for_seconds)):
        if seconds:
            rule[key] = duration(timing.scaled(seconds))
    rule["labels"] = labels_of(event)
    chosen = chosen_by(event.dashboard, event.tests["fires"]["labels"])
    rule["annotations"] = {
        "summary": event.summary + (WHERE if event.severity != "none" else ""),
        "description": event.description,
        "runbook_url": runbook_url(policy, event.alert),
        "dashboard_url": dashboard_url(policy, event.dashboard, chosen) + (CHOSEN_PLACE if chosen else ""),
    }
    return rule


# --- reading ------------------------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[Value, list[EventAlert]]:
    documents = located_yaml.documents(path)
    if len(documents) != 1:
        raise TachoscopeError(f"{path} holds {len(documents)} documents, not one", fix="write group: and alerts: once")
    parts = documents[0].section(("group", "alerts"))
    group = parts.required("group", "add group: and a name for these alerts, such as gpu")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", group.word()):
        raise group.error(f"is {group.word()!r}, which cannot be a file's name", "use small letters, digits and hyphens")
    items = parts.required("alerts", "add alerts: and a list of them").items()
    return group, [_event(item, group.word()) for item in items]


def _event(item: Value, group: str) -> EventAlert:
    parts = item.section(_KEYS)
    place = {key: parts.required(key, f"add {key}:") for key in _NEEDED}
    name = place["alert"]
    if not _NAME.fullmatch(name.text()):
        raise name.error(f"is {name.text()!r}, not in CamelCase", "write a name such as GpuLost")
    source = place["source"]
    if not source.text().startswith(("https://", "judgement: ")):
        raise source.error(f"is {source.text()!r}", "write the https:// address of the source, or 'judgement: ' and why")
    return EventAlert(
        alert=name.text(),
        severity=_one_of(place["severity"], _SEVERITIES),
        area=_one_of(place["area"], _AREAS),
        owner=place["owner"].word(),
        slo=_text(parts, "slo"),
        expr=_stripped_text(place["expr"]),
        for_seconds=_seconds(parts, "for", 0.0),
        keep_firing_for_seconds=_seconds(parts, "keep_firing_for", KEEP_FIRING_SECONDS),
        summary=" ".join(_stripped_text(place["summary"]).split()),
        description=" ".join(_stripped_text(place["description"]).split()),
        dashboard=_text(parts, "dashboard"),
        source=source.text(),
        tests=_tests(place["tests"], _one_of(place["severity"], _SEVERITIES)),
        labels=_labels(parts.get("labels"), own=_OWN_LABELS),
        path=item.path,
        line=item.line,
        group=group,
        also=tuple(_more(one) for one in (parts.values["also"].items() if "also" in parts.values else [])),
    )


def _tests(value: Value, severity: EventSeverity) -> dict[str, EventTest]:
    # Nothing keeps an alert quiet that always fires: `never_quiet` says why, for readers of the file.
    always = severity == "none"
    parts = value.section(("fires", "never_quiet") if always else ("fires", "quiet"))
    needed = ("fires",) if always else ("fires", "quiet")
    for name in needed:
        parts.required(
            name, f"add {name}: with the series in which it {'fires' if name == 'fires' else 'does not, though they look so'}"
        )
    return {name: _test(parts.values[name]) for name in needed}


def _more(value: Value) -> EventTest:
    fires = value.section((*_TEST_KEYS, "fires")).required("fires", "say whether it fires: true or false").flag()
    return {**_test(value, (*_TEST_KEYS, "fires")), "fires": fires}


def _test(value: Value, keys: Sequence[str] = _TEST_KEYS) -> EventTest:
    parts = value.section(keys)
    found: dict[str, Any] = {"what": parts.required("what", "say in one line what it is").text()}
    for key in ("interval", "at"):
        found[key] = _duration(parts.required(key, f"add {key}: such as 30s"))
    series = parts.get("series")
    found["series"] = [_series(one) for one in series.items()] if series else []
    return found | {"labels": _labels(parts.get("labels"), own=frozenset())}


def _series(value: Value) -> dict[str, str]:
    parts = value.section(("series", "values"))
    return {key: parts.required(key, f"add {key}: as promtool reads it").word() for key in ("series", "values")}


def _labels(value: Value | None, own: frozenset[str]) -> dict[str, str]:
    found = {}
    for name, place in (value.section().values if value else {}).items():
        if name in own or not _LABEL.fullmatch(name):
            raise place.error(
                "is not a label that can be set here", f"{name} is the alert's own" if name in own else "use letters, digits, _"
            )
        found[name] = place.word()
    return found


def _stripped_text(value: Value) -> str:
    words = value.text().strip()
    if not words:
        raise value.error("is empty", "write it out")
    return words


def _text(parts: Section, key: str) -> str:
    value = parts.get(key)
    return value.word() if value else ""


def _seconds(parts: Section, key: str, default: float) -> float:
    value = parts.get(key)
    return seconds_of(_duration(value)) if value else default


def _duration(value: Value) -> str:
    try:
        seconds_of(value.word())
    except ValueError:
        raise value.error(f"is {value.word()!r}, no duration", "write one such as 30s, 5m or 1h30m") from None
    return value.word()


def _one_of(value: Value, known: Sequence[Any]) -> Any:
    if value.word() not in known:
        raise value.error(f"is {value.word()!r}", f"there are {', '.join(known)}")
    return value.word()
