"""Objectives of OpenSLO's first version, `openslo/v1alpha`, with queries of a Prometheus."""

from __future__ import annotations

from tachoscope_alerts.spec import indicators, queries
from tachoscope_alerts.spec.foreign import Promise, Wording, alert_of, labels_of, name_of, objective, owner_of, unread
from tachoscope_alerts.spec.slo import Indicator, Slices, Slo
from tachoscope_core.located_yaml import Section, Value

VERSION = "openslo/v1alpha"
_SPEC = ("description", "service", "indicator", "timeWindows", "budgetingMethod", "objectives")
_OBJECTIVE = ("displayName", "value", "op", "target", "ratioMetrics", "timeSliceTarget")
_RATIO = ("counter", "incremental", "good", "bad", "total")
_DAYS = {"Second": 1 / 86400, "Minute": 1 / 1440, "Hour": 1 / 24, "Day": 1.0, "Week": 7.0}
_WINDOW = "write timeWindows: [{count: 30, unit: Day, isRolling: true}]"


def read(document: Value) -> list[Slo]:
    """Return the objectives of a document; none of another kind than SLO.

    Raises:
        TachoscopeError: its first mistake, or what cannot be evaluated here: file, line, key and the accepted form.
    """
    section = document.section()
    if section.required("kind", "add kind: SLO").word() != "SLO":
        return []
    metadata = section.required("metadata", "add metadata: {name: ...}").section()
    spec = section.required("spec", "add the spec").section()
    method = indicators.method(spec.required("budgetingMethod", "add budgetingMethod: Occurrences"))
    period_days = _period_days(spec)
    found = [one.section(_OBJECTIVE) for one in spec.required("objectives", "add objectives: [{target: 0.99}]").items()]
    made = []
    for number, one in enumerate(found, 1):
        indicator, by = _indicator(spec, one, method)
        said = _wording(metadata, spec, one, f"-{number}" if len(found) > 1 else "")
        made.append(objective(one.place, said, Promise(indicator, by, indicators.target(one), period_days)))
    return made


def _wording(metadata: Section, spec: Section, one: Section, suffix: str) -> Wording:
    place = metadata.required("name", "name the objective")
    name = name_of(place.text() + suffix, place)
    display, description = one.get("displayName") or metadata.get("displayName"), spec.get("description")
    return Wording(
        name=name,
        title=display.text() if display else name,
        description=description.text() if description else "",
        owner=owner_of(labels_of(metadata.get("labels"))),
        alert=alert_of("", name),
        not_honoured=unread(spec, _SPEC),
    )


def _indicator(spec: Section, one: Section, method: str) -> tuple[Indicator, tuple[str, ...]]:
    ratio, common = one.get("ratioMetrics"), spec.get("indicator")
    if ratio is not None:
        if method != "Occurrences":
            raise ratio.error("does not fit budgetingMethod Timeslices: a ratio counts events", "write Occurrences")
        return _ratio(ratio.section(_RATIO))
    if common is None:
        raise one.place.error("has no ratioMetrics, and the spec no indicator", "add one of both")
    threshold = common.section(("thresholdMetric",)).required("thresholdMetric", "add thresholdMetric")
    if method != "Timeslices":
        raise threshold.error(
            "is compared with a value, and Occurrences counts events", "write ratioMetrics, or Timeslices for a gauge"
        )
    operator, bound = indicators.comparison(one)
    selector, by, reduce = queries.gauge(_query(threshold))
    return Slices(selector, by, operator, bound, reduce=reduce), by


def _ratio(section: Section) -> tuple[Indicator, tuple[str, ...]]:
    good, bad = section.get("good"), section.get("bad")
    part = bad if good is None else good
    if part is None or (good is not None and bad is not None):
        raise section.place.error("needs good or bad, one of both", "add one, or leave one out")
    total, of_part = _query(section.required("total", "add total: all events")), _query(part)
    return queries.events((total, queries.counted(total)), (of_part, queries.counted(of_part)), "bad" if good is None else "good")


def _query(place: Value) -> Value:
    section = place.section(("source", "queryType", "query", "metadata"))
    source = section.get("source")
    if source is not None and source.text().lower() != "prometheus":
        raise source.error(f"is {source.text()!r}", "metrics are read from a Prometheus: write prometheus")
    return section.required("query", "add the query")


def _period_days(spec: Section) -> float:
    windows = spec.required("timeWindows", _WINDOW).items()
    if len(windows) != 1:
        raise spec.values["timeWindows"].error(f"holds {len(windows)} windows", f"OpenSLO takes exactly one: {_WINDOW}")
    window = windows[0].section(("count", "unit", "isRolling", "calendar"))
    rolling = window.get("isRolling")
    if window.get("calendar") is not None or (rolling is not None and not rolling.flag()):
        raise window.place.error("is a calendar window, which is not supported", f"burn rates need a rolling one: {_WINDOW}")
    unit = window.required("unit", _WINDOW)
    if unit.word() not in _DAYS:
        raise unit.error(f"is {unit.word()!r}: it has no fixed length", "write Day or Week")
    return window.required("count", _WINDOW).count(least=1) * _DAYS[unit.word()]
