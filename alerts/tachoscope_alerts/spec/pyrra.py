"""Objectives that were written for Pyrra (https://github.com/pyrra-dev/pyrra): its Kubernetes resource, in a file."""

from __future__ import annotations

from tachoscope_alerts.spec import indicators, queries
from tachoscope_alerts.spec.foreign import Promise, Wording, alert_of, labels_of, name_of, objective, owner_of, percent, unread
from tachoscope_alerts.spec.slo import Indicator, Slices, Slo
from tachoscope_core.located_yaml import Section, Value

RESOURCE = ("pyrra.dev/v1alpha1", "ServiceLevelObjective")
_SPEC = (
    *("description", "target", "window", "indicator", "alerting", "serviceLevelIndicator"),
    *("partial_response_strategy", "performanceOverAccuracy", "ruleOutput"),
)
_INDICATORS = ("ratio", "latency", "latencyNative", "bool_gauge")
_ALERTING = ("disabled", "burnrates", "absent", "name", "absentName", "severities")
_OF_A_TARGET = ("job", "instance")
"""A boolean gauge without a grouping is one of each target that Prometheus scrapes, such as `up`."""


def read(document: Value) -> list[Slo]:
    """Return the objective of a document.

    Raises:
        TachoscopeError: its first mistake, or what cannot be evaluated here: file, line, key and the accepted form.
    """
    section = document.section()
    metadata = section.required("metadata", "add metadata: {name: ...}").section()
    spec = section.required("spec", "add the spec").section(_SPEC)
    place = metadata.required("name", "name the objective")
    name = name_of(place.text(), place)
    alerting = spec.values["alerting"].section(_ALERTING) if "alerting" in spec.values else None
    description = spec.get("description")
    given = alerting.get("name") if alerting else None
    said = Wording(
        name=name,
        title=place.text(),
        description=description.text() if description else "",
        owner=owner_of(labels_of(metadata.get("labels"))),
        alert=alert_of(given.text() if given else "", name),
        pages=_enabled(alerting),
        tickets=_enabled(alerting),
        not_honoured=[*unread(spec, ("description", "target", "window", "indicator", "alerting")), *_ignored(alerting)],
    )
    target = percent(spec.required("target", 'add target: "99.9"'))
    window = spec.required("window", "add window: 4w")
    indicator, by = _indicator(spec.required("indicator", "add the indicator").section(_INDICATORS))
    return [objective(document, said, Promise(indicator, by, target, indicators.seconds(window) / 86400))]


def _enabled(alerting: Section | None) -> bool:
    disabled, burn_rates = (alerting.get(key) if alerting else None for key in ("disabled", "burnrates"))
    return not (disabled is not None and disabled.flag()) and (burn_rates is None or burn_rates.flag())


def _ignored(alerting: Section | None) -> list[Value]:
    return unread(alerting, ("name", "disabled", "burnrates")) if alerting else []


def _indicator(section: Section) -> tuple[Indicator, tuple[str, ...]]:
    if len(section.values) != 1:
        raise section.place.error(f"holds {len(section.values)} indicators", f"write one of {', '.join(_INDICATORS)}")
    ((kind, place),) = section.values.items()
    if kind == "latencyNative":
        raise place.error("counts native histograms, which are not read", "write latency, with a bucket of a classic histogram")
    if kind == "bool_gauge":
        return _boolean(place.section(("metric", "grouping")))
    part = "errors" if kind == "ratio" else "success"
    of = place.section((part, "total", "grouping"))
    by = _grouping(of)
    total, other = _metric(of, "total"), _metric(of, part)
    return queries.events(
        (total, queries.of_selector(total, by)),
        (other, queries.of_selector(other, by)),
        "bad" if kind == "ratio" else "good",
    )


def _boolean(section: Section) -> tuple[Slices, tuple[str, ...]]:
    place = section.required("metric", "add the metric")
    by = _grouping(section)
    found = queries.of_selector(place, by)
    entity = queries.kept(by or _OF_A_TARGET)
    return Slices(found.selector, entity, "gte", 1.0, reduce="min"), queries.kept(by)


def _metric(section: Section, key: str) -> Value:
    return section.required(key, f"add {key}: {{metric: ...}}").section(("metric",)).required("metric", "add the metric")


def _grouping(section: Section) -> tuple[str, ...]:
    place = section.get("grouping")
    return () if place is None or not place.items() else place.strings()
