"""Objectives from OpenSLO v1 files (https://github.com/OpenSLO/OpenSLO).

A metric source names a metric and its labels, so that the same spec becomes PromQL and is evaluated over recorded samples; a query
is taken apart. What OpenSLO has no key for stands in annotations that begin with `tachoscope.dev/`; see docs/guides/slos.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tachoscope_alerts.spec import indicators
from tachoscope_alerts.spec.foreign import ALERT_NAME, AREA, labels_of, name_of, owner_of
from tachoscope_alerts.spec.slo import Slo, with_identity
from tachoscope_core.located_yaml import Section, Value, known_instead

PREFIX = "tachoscope.dev/"
ANNOTATIONS = ("alert", "area", "by", "dashboard", "least-bad-events", "owner", "pages", "target-source")
AREAS = ("training", "inference")
_VERSION = "openslo/v1"
_OTHER_KINDS = frozenset({"DataSource", "Service", "AlertPolicy", "AlertCondition", "AlertNotificationTarget"})
_DOCUMENT = ("apiVersion", "kind", "metadata", "spec")
_METADATA = ("name", "displayName", "labels", "annotations")
_SPEC = ("description", "service", "indicator", "indicatorRef", "timeWindow", "budgetingMethod", "objectives", "alertPolicies")
_MOST_DESCRIPTION = 1050
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_NAME_FIX = "write lower-case letters, digits and dashes, at most 63 (RFC 1123)"
_ROLLING = "write timeWindow: [{duration: 28d, isRolling: true}]"


@dataclass(frozen=True, slots=True)
class _Spec:
    """What the objectives of one document share; `annotations` without the prefix."""

    metadata: Section
    spec: Section
    annotations: dict[str, Value]
    indicator: Section
    method: str

    @property
    def has_query(self) -> bool:
        """Whether a metric source holds a query."""
        return any(key.endswith(".metricSource.spec.query") for key in self.indicator.place.lines())

    def annotation(self, name: str) -> str:
        value = self.annotations.get(name)
        return value.text().strip() if value else ""

    def required_text(self, name: str, fix: str) -> str:
        if name not in self.annotations:
            raise self.metadata.place.error(f"lacks the annotation {PREFIX}{name}", fix)
        return self.annotation(name)


def shared_indicators(documents: Iterable[Value]) -> dict[str, Section]:
    """Return the documents of kind SLI by name. Raises as `read`."""
    shared: dict[str, Section] = {}
    for kind, section in map(_document, documents):
        if kind != "SLI" or section is None:
            continue
        metadata = section.required("metadata", "add metadata: {name: ...}")
        if _name(metadata) in shared:
            raise metadata.error(f"names {_name(metadata)!r} as another indicator of this file does", "give it another name")
        shared[_name(metadata)] = section
    return shared


def read(document: Value, shared: Mapping[str, Section]) -> list[Slo]:
    """Return the objectives of a document, in their order; none of another kind than SLO.

    Args:
        shared: the indicators of the same file, which an objective may refer to.

    Raises:
        TachoscopeError: its first mistake: file, line, offender and way out.
    """
    kind, section = _document(document)
    return _objectives(section, shared) if kind == "SLO" and section is not None else []


def _document(value: Value) -> tuple[str, Section | None]:
    """Return a document's kind, and the document if it is an objective or indicator."""
    section = value.section(_DOCUMENT)
    version = section.required("apiVersion", f"add apiVersion: {_VERSION}")
    if version.word() != _VERSION:
        raise version.error(f"is {version.word()!r}", f"only {_VERSION} is read")
    kind = section.required("kind", "add kind: SLO")
    if kind.word() in _OTHER_KINDS:
        return kind.word(), None
    if kind.word() not in {"SLO", "SLI"}:
        raise kind.error(f"is {kind.word()!r}", f"kinds are SLO, SLI, {', '.join(sorted(_OTHER_KINDS))}")
    return kind.word(), section


def _name(metadata: Value) -> str:
    name = metadata.section(_METADATA).required("name", "add name: ...")
    if not _NAME.fullmatch(name.text()):
        raise name.error(f"is {name.text()!r}", _NAME_FIX)
    return name.text()


def _objectives(document: Section, shared: Mapping[str, Section]) -> list[Slo]:
    place = document.required("metadata", "add metadata: {name: ...}")
    name = _name(place)
    metadata = place.section(_METADATA)
    spec = document.required("spec", "add the spec").section(_SPEC)
    spec.required("service", "name the service that the objective is of").text()
    method = spec.required("budgetingMethod", "add budgetingMethod: Occurrences, or Timeslices for a gauge")
    common = _Spec(metadata, spec, _annotations(metadata), _indicator(spec, shared), indicators.method(method))
    objectives = spec.required("objectives", "add objectives: [{target: 0.99}]").items()
    if not objectives:
        raise spec.values["objectives"].error("is an empty list", "add an objective: {target: 0.99}")
    sections = [objective.section(indicators.OBJECTIVE) for objective in objectives]
    names = [_objective_name(section, name, number if len(sections) > 1 else 0) for number, section in enumerate(sections, 1)]
    return [_slo(common, section, names, number) for number, section in enumerate(sections)]


def _annotations(metadata: Section) -> dict[str, Value]:
    """Return the annotations that are ours."""
    place = metadata.get("annotations")
    found = {}
    for key, value in (place.section().values if place else {}).items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if name not in ANNOTATIONS:
            raise value.error("is an unknown annotation", known_instead(key, [PREFIX + one for one in ANNOTATIONS]))
        found[name] = value
    return found


def _indicator(spec: Section, shared: Mapping[str, Section]) -> Section:
    inline, reference = spec.get("indicator"), spec.get("indicatorRef")
    if inline is not None and reference is not None:
        raise reference.error("cannot be combined with indicator", "leave one of the two")
    if reference is not None:
        if reference.text() not in shared:
            known = f"there are {', '.join(sorted(shared))}" if shared else "there is none"
            raise reference.error(f"is {reference.text()!r}: no document of kind SLI in this file has that name", known)
        document = shared[reference.text()]
    else:
        document = spec.required("indicator", "add the indicator, or indicatorRef").section(("metadata", "spec"))
    return document.required("spec", "add the indicator's spec").section(indicators.SLI)


def _objective_name(section: Section, document: str, number: int) -> str:
    """Return an objective's name: its display name if that can be one, else the document's; its number distinguishes several."""
    display = section.get("displayName")
    if display is not None and _NAME.fullmatch(display.text()):
        return display.text()
    return name_of(f"{document}-{number}", section.place) if number else document


def _slo(common: _Spec, objective: Section, names: list[str], number: int) -> Slo:
    chosen = tuple(part.strip() for part in common.annotation("by").split(",") if part.strip())
    indicator, kept = indicators.indicator(common.indicator, common.method, objective)
    if kept is None:
        indicators.check_by(indicator, chosen, common.annotations.get("by"))
        kept = with_identity(chosen)
    elif "by" in common.annotations:
        raise common.annotations["by"].error("does not go with a query", "write the labels in the query: sum by (...)")
    display, description = common.metadata.get("displayName"), common.spec.get("description")
    return Slo(
        name=names[number],
        title=display.text() if display else names[number],
        description=_description(description) if description else "",
        area=_area(common),
        indicator=indicator,
        by=kept,
        target=indicators.target(objective),
        period_days=_period_days(common.spec),
        alert=_alert(common, names, number),
        pages=_pages(common, len(names))[number],
        owner=_owner(common),
        target_source=_said(
            common,
            "target-source",
            f"judgement: as written in {objective.place.path}",
            "say where the target comes from: a URL, or judgement: why",
        ),
        least_bad_events=_least(common.annotations.get("least-bad-events")),
        dashboard=common.annotation("dashboard") or "slos",
        path=objective.place.path,
        line=objective.place.line,
        lines=_lines(common, objective),
        not_honoured=_not_honoured(common, objective),
        of_catalogue=not common.has_query,
    )


def _owner(common: _Spec) -> str:
    otherwise = owner_of(labels_of(common.metadata.get("labels"))) if common.has_query else ""
    return _said(common, "owner", otherwise, "name the team that answers for it")


def _said(common: _Spec, name: str, otherwise: str, fix: str) -> str:
    """Return an annotation, which a document with queries, written for other tools, may lack."""
    return common.annotation(name) or otherwise if common.has_query else common.required_text(name, fix)


def _not_honoured(common: _Spec, objective: Section) -> dict[str, int]:
    policies, operator = common.spec.get("alertPolicies"), objective.get("op")
    found = [policies] if policies is not None and policies.items() else []
    found += [operator] if operator is not None and "ratioMetric" in common.indicator.values else []
    return {one.key: one.line for one in found}


def _lines(common: _Spec, objective: Section) -> dict[str, int]:
    """Return the lines that a message may refer to, by annotation and key."""
    of_annotations = {name: value.line for name, value in common.annotations.items()}
    (window,) = common.spec.values["timeWindow"].items()
    return of_annotations | window.lines() | objective.place.lines() | common.indicator.place.lines()


def _description(value: Value) -> str:
    text = value.text()
    if len(text) > _MOST_DESCRIPTION:
        raise value.error(f"has {len(text)} characters", f"OpenSLO allows {_MOST_DESCRIPTION}")
    return " ".join(text.split())


def _area(common: _Spec) -> str:
    area = _said(common, "area", AREA, f"add {PREFIX}area: {' or '.join(AREAS)}")
    if "area" in common.annotations and area not in AREAS:
        raise common.annotations["area"].error(f"is {area!r}", f"it is {' or '.join(AREAS)}")
    return area


def _alert(common: _Spec, names: list[str], number: int) -> str:
    """Return the name of the burn alert: from the annotation, one per objective, else from the objective's name."""
    place = common.annotations.get("alert", common.metadata.values["name"])
    found = [part.strip() for part in common.annotation("alert").split(",")] if "alert" in common.annotations else _alerts_of(names)
    if len(found) != len(names):
        raise place.error(f"has {len(found)} names for {len(names)} objectives", "write one for each, with commas between them")
    if not ALERT_NAME.fullmatch(found[number]):
        raise place.error(f"gives an alert the name {found[number]!r}", f"write {PREFIX}alert: a name like InferenceLatencyBurn")
    return found[number]


def _alerts_of(names: list[str]) -> list[str]:
    return ["".join(part.capitalize() for part in name.split("-")) + "Burn" for name in names]


def _pages(common: _Spec, count: int) -> list[bool]:
    """Return for each objective whether it pages: one word for all, or one for each."""
    words = [part.strip() for part in (common.annotation("pages") or "true").split(",")]
    if not set(words) <= {"true", "false"}:
        raise common.annotations["pages"].error(f"is {common.annotation('pages')!r}", 'write "true" or "false"')
    if len(words) not in {1, count}:
        raise common.annotations["pages"].error(
            f"has {len(words)} words for {count} objectives", "write one for all, or one for each"
        )
    return [word == "true" for word in (words * count if len(words) == 1 else words)]


def _least(value: Value | None) -> float:
    if value is None:
        return 0.0
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", value.text()):
        raise value.error(f"is {value.text()!r}", 'write a number of events in quotes, such as "5"')
    return float(value.text())


def _period_days(spec: Section) -> float:
    windows = spec.required("timeWindow", _ROLLING)
    if len(windows.items()) != 1:
        raise windows.error(f"holds {len(windows.items())} windows", f"OpenSLO takes exactly one: {_ROLLING}")
    window = windows.items()[0].section(("duration", "isRolling", "calendar"))
    calendar, rolling = window.get("calendar"), window.get("isRolling")
    if calendar is not None or rolling is None or not rolling.flag():
        place = calendar or rolling or window.place
        raise place.error("makes this a calendar window, which is not supported", f"burn rates need a rolling one: {_ROLLING}")
    duration = window.required("duration", _ROLLING)
    days = indicators.seconds(duration) / 86400
    if not 1 <= days <= 366:
        raise duration.error(f"is {duration.word()!r}", "a period is between 1 day and a year: 28d")
    return days
