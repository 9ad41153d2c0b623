"""Objectives from OpenSLO v1 files (https://github.com/OpenSLO/OpenSLO).

A metric source does not hold a query but names a metric and its labels, so that the same spec becomes PromQL and is evaluated over
recorded samples. What OpenSLO has no key for stands in annotations that begin with `tachoscope.dev/`; see docs/guides/slos.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tachoscope_alerts.spec import indicators
from tachoscope_alerts.spec.slo import Slo, with_identity
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value, documents, known_instead

PREFIX = "tachoscope.dev/"
ANNOTATIONS = ("alert", "area", "by", "dashboard", "least-bad-events", "owner", "pages", "target-source")
AREAS = ("training", "inference")
ALERT_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
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

    def annotation(self, name: str) -> str:
        value = self.annotations.get(name)
        return value.text().strip() if value else ""

    def required_text(self, name: str, fix: str) -> str:
        if name not in self.annotations:
            raise self.metadata.place.error(f"lacks the annotation {PREFIX}{name}", fix)
        return self.annotation(name)


def load(paths: Iterable[Path]) -> list[Slo]:
    """Return the objectives of files, and of the `*.yaml` and `*.yml` in folders.

    Raises:
        TachoscopeError: a file cannot be read, or its first mistake: file, line, offender and way out.
    """
    return [slo for path in files(paths) for slo in read(path)]


def files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that paths mean: themselves, and of folders what is YAML in them.

    Raises:
        TachoscopeError: there is no such path, or a folder has none.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.suffix in {".yaml", ".yml"}) if path.is_dir() else [path]
        if not path.exists() or not inside:
            problem = "contains no *.yaml" if path.exists() else "does not exist"
            raise TachoscopeError(f"{path} {problem}", fix="name OpenSLO files, or a folder of them")
        found += inside
    return found


def read(path: Path) -> list[Slo]:
    """Return the objectives of a file, in their order; documents of other kinds than SLO and SLI are skipped.

    Raises:
        TachoscopeError: the file cannot be read, or its first mistake: file, line, offender and way out.
    """
    parts = [part for top in documents(path) for part in (top.items() if top.is_list else [top])]
    wanted = [(kind, section) for kind, section in map(_document, parts) if section is not None]
    shared: dict[str, Section] = {}
    for kind, section in wanted:
        metadata = section.required("metadata", "add metadata: {name: ...}")
        if kind == "SLI" and _name(metadata) in shared:
            raise metadata.error(f"names {_name(metadata)!r} as another indicator of this file does", "give it another name")
        if kind == "SLI":
            shared[_name(metadata)] = section
    return [slo for kind, section in wanted if kind == "SLO" for slo in _objectives(section, shared)]


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
    _refuse_policies(spec)
    method = spec.required("budgetingMethod", "add budgetingMethod: Occurrences, or Timeslices for a gauge")
    common = _Spec(metadata, spec, _annotations(metadata), _indicator(spec, shared), indicators.method(method))
    objectives = spec.required("objectives", "add objectives: [{target: 0.99}]").items()
    if not objectives:
        raise spec.values["objectives"].error("is an empty list", "add an objective: {target: 0.99}")
    sections = [objective.section(indicators.OBJECTIVE) for objective in objectives]
    names = [_objective_name(section, name, alone=len(sections) == 1) for section in sections]
    return [_slo(common, section, names, number) for number, section in enumerate(sections)]


def _refuse_policies(spec: Section) -> None:
    policies = spec.get("alertPolicies")
    if policies is not None and policies.items():
        raise policies.error("are not read", "remove them: burn-rate alerts are made from the target and the window")


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


def _objective_name(section: Section, document: str, *, alone: bool) -> str:
    """Return an objective's name: its display name if that can be one, else the document's if it has no other objective."""
    display = section.get("displayName")
    if display is not None and _NAME.fullmatch(display.text()):
        return display.text()
    if alone:
        return document
    if display is None:
        raise section.place.error("has no displayName of its own", "add displayName: it distinguishes the objectives of a document")
    raise display.error(f"is {display.text()!r}", f"it is the objective's name: {_NAME_FIX}")


def _slo(common: _Spec, objective: Section, names: list[str], number: int) -> Slo:
    chosen = tuple(part.strip() for part in common.annotation("by").split(",") if part.strip())
    indicator = indicators.indicator(common.indicator, common.method, objective)
    indicators.check_by(indicator, chosen, common.annotations.get("by"))
    by = with_identity(chosen)
    display, description = common.metadata.get("displayName"), common.spec.get("description")
    return Slo(
        name=names[number],
        title=display.text() if display else names[number],
        description=_description(description) if description else "",
        area=_area(common),
        indicator=indicator,
        by=by,
        target=indicators.target(objective),
        period_days=_period_days(common.spec),
        alert=_alert(common, names, number),
        pages=_pages(common, len(names))[number],
        owner=common.required_text("owner", "name the team that answers for it"),
        target_source=common.required_text("target-source", "say where the target comes from: a URL, or judgement: why"),
        least_bad_events=_least(common.annotations.get("least-bad-events")),
        dashboard=common.annotation("dashboard") or "slos",
        path=objective.place.path,
        line=objective.place.line,
        lines=_lines(common, objective),
    )


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
    area = common.required_text("area", f"add {PREFIX}area: {' or '.join(AREAS)}")
    if area not in AREAS:
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
