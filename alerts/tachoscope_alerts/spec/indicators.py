"""The indicator of an OpenSLO v1 document: a ratio of counters, a histogram and a threshold, or a gauge in slices of time.

A metric source is `{type: tachoscope, spec: {metric: ..., labels: {...}, excluding: {...}}}`. Slices of time add what makes an
entity (`by`), how its series become one value (`reduce`, `age`), when it counts (`while`), and what no value means (`missing`).
A query, `{type: prometheus, spec: {query: ...}}`, is taken apart (`queries`), and the labels that it keeps are the indicator's.
"""

from __future__ import annotations

import re

from tachoscope_alerts.spec import queries
from tachoscope_alerts.spec.slo import AtMost, Comparison, Gate, Indicator, MoreThan, Ratio, Selector, Slices, with_identity
from tachoscope_core.located_yaml import Section, Value

SLI = ("description", "thresholdMetric", "ratioMetric")
OBJECTIVE = ("displayName", "op", "value", "target", "targetPercent", "timeSliceTarget", "timeSliceWindow")
_COMPARISONS: dict[str, Comparison] = {"lt": "lt", "lte": "lte", "gt": "gt", "gte": "gte"}
_SOURCE_TYPES = ("tachoscope", "prometheus")
_SELECTOR = ("metric", "labels", "excluding")
_SLICES = (*_SELECTOR, "by", "reduce", "age", "while", "missing")
_GATE = (*_SELECTOR, "on", "for")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_BOTH = "write queries for both, or metrics for both"
_DURATION = re.compile(r"(\d{1,6})([smhdwMQY])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def method(value: Value) -> str:
    """Return the budgeting method.

    Raises:
        TachoscopeError: it is none that is supported.
    """
    if value.word() == "RatioTimeslices":
        raise value.error(
            "is 'RatioTimeslices', a mean of ratios in which a quiet hour weighs like a busy one", "write Occurrences"
        )
    if value.word() not in {"Occurrences", "Timeslices"}:
        raise value.error(f"is {value.word()!r}", "write Occurrences, or Timeslices for a gauge")
    return value.word()


def indicator(sli: Section, budgeting: str, objective: Section) -> tuple[Indicator, tuple[str, ...] | None]:
    """Return what an objective counts, and the labels that its queries keep; None: it names metrics and has no query.

    Raises:
        TachoscopeError: what is written there is no indicator, or does not fit the budgeting method.
    """
    ratio, threshold = sli.get("ratioMetric"), sli.get("thresholdMetric")
    if (ratio is None) == (threshold is None):
        raise sli.place.error("needs ratioMetric or thresholdMetric, one of both", "add one, or leave one out")
    if ratio is not None:
        _refuse(objective, ("value", "timeSliceTarget", "timeSliceWindow"), "does not go with ratioMetric")
        if budgeting != "Occurrences":
            raise ratio.error(
                "does not fit budgetingMethod Timeslices: a ratio counts events",
                "write Occurrences, or a thresholdMetric on a gauge",
            )
        return _ratio(ratio)
    assert threshold is not None
    if budgeting == "Occurrences":
        _refuse(objective, ("timeSliceTarget", "timeSliceWindow"), "does not go with budgetingMethod Occurrences")
        return _of_histogram(threshold, objective), None
    query = _query(threshold)
    return _slices_of(query, objective) if query else (_slices(threshold, objective), None)


def target(objective: Section) -> float:
    """Return the ratio of good events that is promised.

    Raises:
        TachoscopeError: there is none, or it is not between 0 and 1.
    """
    ratio, percent = objective.get("target"), objective.get("targetPercent")
    if ratio is not None and percent is not None:
        raise percent.error("cannot be combined with target", "leave one of the two")
    if percent is not None:
        value, place, limit = round(percent.number() / 100, 12), percent, "100"
    else:
        place, limit = objective.required("target", "add target: 0.99"), "1"
        value = place.number()
    if not 0 < value < 1:
        raise place.error(f"is {place.word()}", f"a target is between 0 and {limit}, both excluded: nothing is always good")
    return value


def check_by(found: Indicator, by: tuple[str, ...], place: Value | None) -> None:
    """Check the labels that an objective keeps.

    Raises:
        TachoscopeError: one is not a label, or none that an entity has.
    """
    if place is None:
        return
    for label in by:
        if not _LABEL.fullmatch(label):
            raise place.error(f"holds {label!r}, which is not a label", "write labels with commas between them")
        if isinstance(found, Slices) and label not in found.by:
            raise place.error(
                f"holds {label}, which is not a label of an entity", f"add it to the metric source's by: {', '.join(found.by)}"
            )


def seconds(value: Value) -> float:
    """Return a length of time such as `28d`, in seconds.

    Raises:
        TachoscopeError: it is none, or a unit without a fixed length.
    """
    match = _DURATION.fullmatch(value.word())
    if match is None:
        raise value.error(f"is {value.word()!r}, which is not a duration", "write a number and a unit (m, h, d or w): 28d")
    if match[2] not in _SECONDS:
        raise value.error(f"is {value.word()!r}: months, quarters and years have no fixed length", "write days: 28d")
    return float(match[1]) * _SECONDS[match[2]]


def comparison(objective: Section) -> tuple[Comparison, float]:
    """Return how a good value compares, and with what.

    Raises:
        TachoscopeError: one of both is missing or is none.
    """
    operator = objective.required("op", "add op: lte, lt, gte or gt: a good event is one whose value is so to value:")
    if operator.word() not in _COMPARISONS:
        raise operator.error(f"is {operator.word()!r}", "write lte, lt, gte or gt")
    return _COMPARISONS[operator.word()], objective.required("value", "add value: the threshold").number()


# --- the kinds ------------------------------------------------------------------------------------------------------------------


def _ratio(value: Value) -> tuple[Indicator, tuple[str, ...] | None]:
    section = value.section(("counter", "good", "bad", "total", "raw", "rawType"))
    _refuse(
        section, ("raw", "rawType"), "is not supported: what is divided already cannot be summed over a window", "name bad, total"
    )
    counter = section.get("counter")
    if counter is not None and not counter.flag():
        raise counter.error("is false", "events are counted by counters; for a gauge write thresholdMetric and Timeslices")
    good, bad = section.get("good"), section.get("bad")
    if (good is None) == (bad is None):
        raise value.error("needs good or bad, one of both", "add one, or leave one out")
    all_events = section.required("total", "add total: all events")
    part = bad or good
    assert part is not None, "one of both is given"
    of_total, of_part = _query(all_events), _query(part)
    if of_part is not None and of_total is None:
        raise of_part.error("is a query, and the total names a metric", _BOTH)
    if of_total is not None:
        if of_part is None:
            raise part.error("names a metric, and the total is a query", _BOTH)
        return queries.events((of_total, queries.counted(of_total)), (of_part, queries.counted(of_part)), "bad" if bad else "good")
    total = _selector(_source(all_events, _SELECTOR))
    return Ratio(
        total=total,
        bad=_selector(_source(bad, _SELECTOR)) if bad else None,
        good=_selector(_source(good, _SELECTOR)) if good else None,
    ), None


def _slices_of(query: Value, objective: Section) -> tuple[Slices, tuple[str, ...]]:
    _check_slice(objective)
    operator, bound = comparison(objective)
    selector, by, reduce = queries.gauge(query)
    return Slices(selector, by, operator, bound, reduce=reduce), by


def _of_histogram(value: Value, objective: Section) -> AtMost | MoreThan:
    source = _source(value, _SLICES)
    _refuse(source, _SLICES[len(_SELECTOR) :], "does not go with budgetingMethod Occurrences", "write Timeslices, if it is a gauge")
    operator, bound = comparison(objective)
    if operator not in {"lte", "gt"}:
        raise objective.values["op"].error(
            f"is {operator}", "the buckets of a histogram count what is at most their bound: write op: lte, or op: gt for all above"
        )
    histogram = _selector(source)
    if histogram.metric.endswith(("_bucket", "_count", "_sum")):
        raise source.values["metric"].error(f"is {histogram.metric!r}", "name the histogram without _bucket, _count or _sum")
    return AtMost(histogram=histogram, bound=bound) if operator == "lte" else MoreThan(histogram=histogram, bound=bound)


def _slices(value: Value, objective: Section) -> Slices:
    source = _source(value, _SLICES)
    _check_slice(objective)
    operator, bound = comparison(objective)
    by = with_identity(_labels(source.required("by", "add by: [label, ...]: the labels of which each set of values is one entity")))
    age, gate, missing = source.get("age"), source.get("while"), source.get("missing")
    found = Slices(
        value=_selector(source),
        by=by,
        comparison=operator,
        bound=bound,
        reduce="min" if _choice(source, "reduce", ("max", "min")) == "min" else "max",
        age=age.flag() if age else False,
        gate=_gate(gate, by) if gate else None,
        missing="bad" if _choice(source, "missing", ("ignored", "bad")) == "bad" else "ignored",
    )
    if missing is not None and found.missing == "bad" and (found.gate is None or set(found.gate.on) != set(by)):
        raise missing.error("is bad, but nothing defines which entities must exist", "add while: with an on: that equals by:")
    return found


def _check_slice(objective: Section) -> None:
    """Refuse options that a slice cannot have: it is one evaluation with one value of an entity."""
    ratio, window = objective.get("timeSliceTarget"), objective.get("timeSliceWindow")
    if ratio is not None and ratio.number() != 1:
        raise ratio.error(
            f"is {ratio.word()}", "a slice has one value, so that it is good or bad as a whole: write 1, or leave it out"
        )
    if window is not None and (window.word() not in {"1", "1m"}):
        raise window.error(f"is {window.word()!r}", "slices are taken at every evaluation of the rules: write 1m, or leave it out")


def _gate(value: Value, by: tuple[str, ...]) -> Gate:
    section = value.section(_GATE)
    on = with_identity(_labels(section.required("on", "add on: [label, ...]: the labels that it shares with the entities")))
    since = section.get("for")
    if not set(on) <= set(by):
        foreign = sorted(set(on) - set(by))[0]
        raise section.values["on"].error(
            f"holds {foreign}, which is not a label of an entity", f"take labels of by: {', '.join(by)}"
        )
    return Gate(selector=_selector(section), on=on, since_seconds=seconds(since) if since else 0.0)


# --- their parts --------------------------------------------------------------------------------------------------------------


def _source(value: Value, known: tuple[str, ...]) -> Section:
    spec = _spec(value)
    query = spec.section().get("query")
    if query is not None:
        raise query.error(
            "is a query, and budgetingMethod Occurrences counts events",
            "write ratioMetric with good and total, or Timeslices for a gauge",
        )
    return spec.section(known)


def _query(value: Value) -> Value | None:
    """Return the query of a metric source; None: it names a metric."""
    return _spec(value).section().get("query")


def _spec(value: Value) -> Value:
    source = value.section(("metricSource",)).required("metricSource", "add metricSource: {type: tachoscope, spec: {metric: ...}}")
    section = source.section(("metricSourceRef", "type", "spec"))
    kind = section.get("type")
    if kind is not None and kind.text().lower() not in _SOURCE_TYPES:
        raise kind.error(f"is {kind.text()!r}", "metrics are read from a Prometheus or the store: write prometheus or tachoscope")
    return section.required("spec", "add spec: {metric: ..., labels: {...}}, or {query: ...}")


def _selector(section: Section) -> Selector:
    metric = section.required("metric", "name the metric")
    if not _METRIC.fullmatch(metric.text()):
        raise metric.error(
            f"is {metric.text()!r}, which is not a name of a metric", "name one metric; its labels go to labels: {label: value}"
        )
    return Selector(metric=metric.text(), labels=_matchers(section, "labels"), excluding=_matchers(section, "excluding"))


def _matchers(section: Section, key: str) -> dict[str, tuple[str, ...]]:
    place = section.get(key)
    if place is None:
        return {}
    for value in place.section().values.values():
        _label_of(value, value.key.removeprefix(f"{place.key}."))
    return {label: value.strings() for label, value in place.section().values.items()}


def _labels(value: Value) -> tuple[str, ...]:
    found = value.strings()
    for label in found:
        _label_of(value, label)
    if len(set(found)) < len(found):
        raise value.error("holds a label twice", "leave one of the two")
    return found


def _label_of(value: Value, label: str) -> None:
    if not _LABEL.fullmatch(label):
        raise value.error(f"holds {label!r}, which is not a label", "labels are made of letters, digits and _")


def _choice(section: Section, key: str, words: tuple[str, str]) -> str:
    """Return the given choice, or the first of `words` if none is given."""
    value = section.get(key)
    if value is not None and value.word() not in words:
        raise value.error(f"is {value.word()!r}", f"write {words[0]} or {words[1]}")
    return value.word() if value else words[0]


def _refuse(section: Section, keys: tuple[str, ...], problem: str, fix: str = "leave it out") -> None:
    for key in keys:
        value = section.get(key)
        if value is not None:
            raise value.error(problem, fix)
