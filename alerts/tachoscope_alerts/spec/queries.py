"""Indicators from PromQL, as Sloth, Pyrra and OpenSLO with a Prometheus as its source write them.

A query is taken apart into the metric and the conditions on its labels, so that the objective becomes rules and is evaluated over
recorded samples. That can be done for sums of rates of one metric, `sum by (...) (rate(metric{...}[window]))`, for the buckets of a
histogram, for a difference of two of these, and for a gauge. Another query is refused with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from tachoscope_alerts import promql
from tachoscope_alerts.promql import Aggregation, Binary, Call, Expression, Matcher, Series, Window
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Value

RATES = ("rate", "increase")
ACCEPTED = "write sum(rate(metric{...}[window])), or name the metric: {metric: ..., labels: {...}}"
_WINDOW = re.compile(r"\{\{\s*\.?window\s*\}\}|\$__rate_interval|\$window|\[\[\s*window\s*\]\]")
_LITERAL = re.compile(r"[\w:/ @,-]*")
_MOST_PATTERN = 500
CLUSTER = "cluster"
"""Where several clusters write to one Prometheus each has its own budget; elsewhere no series has the label."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Counted:
    """The rate of the events of one counter, summed by labels; `bound`: of a histogram's bucket."""

    selector: Selector
    by: tuple[str, ...] = ()
    function: str = "rate"
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """All events of one counter but those of another."""

    all: Counted
    less: Counted


def counted(query: Value) -> Counted | Difference:
    """Return the events that a query counts.

    Raises:
        TachoscopeError: it does something else, with file, line and key.
    """
    expression = _without_zero(_parsed(query))
    if isinstance(expression, Binary) and expression.operator == "-":
        return Difference(_sum(query, expression.left), _sum(query, expression.right))
    return _sum(query, expression)


def of_selector(text: Value, grouping: tuple[str, ...] = ()) -> Counted:
    """Return the events of a bare selector, such as `requests_total{code="500"}`. Raises as `counted`."""
    expression = _parsed(text)
    if not isinstance(expression, Series):
        raise text.error("is not a selector", 'write metric{label="value"}')
    return _of_series(text, expression, grouping, "rate")


def gauge(query: Value) -> tuple[Selector, tuple[str, ...], Literal["min", "max"]]:
    """Return the gauge of `max by (...) (metric{...})`: its selector, the labels of an entity, and which of its series counts.

    Raises:
        TachoscopeError: it is another expression, with file, line and key.
    """
    expression = _parsed(query)
    named = isinstance(expression, Aggregation) and expression.function in {"min", "max"} and not expression.without
    if not (named and isinstance(expression, Aggregation) and isinstance(series := expression.arguments[-1], Series)):
        raise query.error(
            "is not a gauge of named entities", "write max by (label, ...) (metric{...}): each set of their values is one entity"
        )
    of = _of_series(query, series, tuple(expression.labels or ()), "rate")
    return of.selector, kept(of.by), "min" if expression.function == "min" else "max"


def events(
    total: tuple[Value, Counted | Difference], part: tuple[Value, Counted | Difference], kind: Literal["bad", "good"]
) -> tuple[Ratio | AtMost | MoreThan, tuple[str, ...]]:
    """Return the indicator of all events and of their bad or good ones, and the labels that it keeps.

    Args:
        total, part: each with the place of its query.

    Raises:
        TachoscopeError: both do not fit each other, with file, line and key.
    """
    (place, of_total), (part_place, of_part) = total, part
    if isinstance(of_total, Difference):
        raise place.error("is a difference", "count all events by one sum of rates")
    if isinstance(of_part, Difference):
        if of_part.all != of_total:
            raise part_place.error("subtracts from other events than those of the total", "subtract from the query of the total")
        of_part, kind = of_part.less, "good" if kind == "bad" else "bad"
    if of_part.by != of_total.by:
        raise part_place.error("keeps other labels than the total does", "write the same `by (...)` in both")
    if of_part.function != of_total.function:
        raise part_place.error(f"uses {of_part.function}, and the total {of_total.function}", "write the same function in both")
    if of_part.bound is not None:
        return _of_histogram(part_place, of_total, of_part, kind), kept(of_total.by)
    if of_total.bound is not None:
        raise place.error("counts a bucket of a histogram", "count all events by its _count")
    selector = of_part.selector
    return Ratio(of_total.selector, **{kind: selector}), kept(of_total.by)


def kept(by: Iterable[str]) -> tuple[str, ...]:
    """Return the labels that rules keep, of those that a query keeps."""
    return tuple(dict.fromkeys((CLUSTER, *by)))


def _of_histogram(place: Value, total: Counted, bucket: Counted, kind: str) -> AtMost | MoreThan:
    assert bucket.bound is not None
    base = bucket.selector.metric.removesuffix("_bucket")
    if total.selector.metric != f"{base}_count" and not (total.selector.metric == f"{base}_bucket" and total.bound == float("inf")):
        raise place.error(
            f"is a bucket of {base}, and the total counts {total.selector.metric}", f"count all events by {base}_count"
        )
    of_bucket, of_total = (replace(one.selector, metric=base) for one in (bucket, total))
    if of_bucket != of_total:
        raise place.error("selects other series of the histogram than the total", "write the same labels in both, but for le")
    return AtMost(of_total, bucket.bound) if kind == "good" else MoreThan(of_total, bucket.bound)


def _parsed(query: Value) -> Expression:
    try:
        return promql.parse(_WINDOW.sub("5m", query.text()))
    except TachoscopeError as error:
        raise query.error(f"is not valid PromQL: {str(error).splitlines()[0]}", ACCEPTED) from None


def _without_zero(expression: Expression) -> Expression:
    """Return what stands before `or vector(0)`: without events nothing is bad here anyway."""
    match expression:
        case Binary(operator="or", left=left, right=Call(function="vector", arguments=(promql.Constant(value=0.0),))):
            return left
        case _:
            return expression


def _sum(query: Value, expression: Expression) -> Counted:
    expression = _without_zero(expression)
    if not (isinstance(expression, Aggregation) and expression.function == "sum"):
        raise query.error("is not a sum of rates", ACCEPTED)
    if expression.without:
        raise query.error("sums without labels", "name those that stay: sum by (...)")
    call = expression.arguments[-1]
    if not (isinstance(call, Call) and call.function in RATES and isinstance(call.arguments[0], Window)):
        raise query.error("is not a sum of rates of a counter", ACCEPTED)
    series = call.arguments[0].operand
    if not isinstance(series, Series):
        raise query.error("rates the evaluations of another expression, a subquery", ACCEPTED)
    return _of_series(query, series, tuple(expression.labels or ()), call.function)


def _of_series(query: Value, series: Series, by: tuple[str, ...], function: str) -> Counted:
    if not series.metric:
        raise query.error("names no metric", 'write metric{label="value"}')
    bound, labels, excluding = None, dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    patterns, excluded_patterns = dict[str, str](), dict[str, str]()
    for one in series.matchers:
        if one.label == "le" and series.metric.endswith("_bucket"):
            bound = _bound(query, one)
            continue
        values = (one.value,) if one.operator in {"=", "!="} else _alternatives(one.value)
        negated = one.operator in {"!=", "!~"}
        if values is None:
            _keep(query, excluded_patterns if negated else patterns, one.label, _checked(query, one.value))
        else:
            _keep(query, excluding if negated else labels, one.label, values)
    if series.metric.endswith("_bucket") and bound is None:
        raise query.error("counts all buckets of a histogram", 'name one: le="0.5"')
    return Counted(Selector(series.metric, labels, excluding, patterns, excluded_patterns), by, function, bound)


def _keep(query: Value, found: dict[str, _T], label: str, value: _T) -> None:
    if label in found:
        raise query.error(f"has two conditions of one kind on {label}", "write one")
    found[label] = value


def _bound(query: Value, matcher: Matcher) -> float:
    text = matcher.value.removesuffix("(\\.0)?")
    try:
        if matcher.operator in {"=", "=~"}:
            return float(text)
    except ValueError:
        pass
    raise query.error(f"chooses buckets by le{matcher.operator}{matcher.value!r}", 'name one: le="0.5"')


def _alternatives(pattern: str) -> tuple[str, ...] | None:
    """Return the values that a regular expression of words between bars matches; None: it is another one."""
    bare = pattern[1:-1].removeprefix("?:") if pattern.startswith("(") and pattern.endswith(")") else pattern
    parts = tuple(bare.split("|"))
    return tuple(dict.fromkeys(parts)) if all(_LITERAL.fullmatch(part) for part in parts) else None


def _checked(query: Value, pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise query.error(f"has the regular expression {pattern!r}: {error}", "correct it, or name the values") from None
    if len(pattern) > _MOST_PATTERN:
        raise query.error(f"has a regular expression of {len(pattern)} characters", f"write at most {_MOST_PATTERN}")
    return pattern
