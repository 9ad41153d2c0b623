"""What can never be in an expression: metrics and labels that do not exist, and vectors whose labels can never match.

Follows the labels from the series through functions, aggregations and operators, as Prometheus does
(https://prometheus.io/docs/prometheus/latest/querying/operators/). A rule with such a fault is valid, and silent for ever.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from tachoscope_alerts import promql
from tachoscope_alerts.compile.sli_expressions import bound_matcher, bound_text
from tachoscope_alerts.lint.catalogue import PARTS, SCRAPE_LABELS, Catalogue, KnownSeries
from tachoscope_alerts.promql import Aggregation, Binary, Call, Constant, Expression, Matcher, Series, Window

_OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
_SCALARS = frozenset({"scalar", "time", "pi"})
_WITHOUT_LABELS = frozenset({"scalar", "time", "pi", "vector"})
KEEPING = frozenset({"topk", "bottomk", "limitk"})
"""Aggregations whose series keep all their labels."""
_Labels = frozenset[str] | None
"""Labels that a vector may have; None: any, of a series that is not known."""


class LabelFault(NamedTuple):
    """What is wrong, and the way out."""

    what: str
    fix: str


def faults(expression: str, known: Catalogue) -> list[LabelFault]:
    """Return what can never be in an expression.

    Raises:
        TachoscopeError: it cannot be read.
    """
    flow = _Flow(known)
    flow.labels(promql.parse(expression))
    return list(dict.fromkeys(flow.found))


def labels_of(expression: str, known: Catalogue) -> frozenset[str] | None:
    """Return the labels that the result of an expression may have; None: any, of a series that is not known.

    Raises:
        TachoscopeError: it cannot be read.
    """
    return _Flow(known).labels(promql.parse(expression))


def unknown_metric(name: str, known: Catalogue) -> LabelFault:
    """Return the fault of a metric that is in no catalogue."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    instead = f"did you mean {near[0]}? Else declare" if near else "declare"
    return LabelFault(f"metric {name} is in no catalogue", f"{instead} it in a catalogue of your own (--catalogue)")


def unknown_label(label: str, of: KnownSeries) -> LabelFault:
    """Return the fault of a label that a metric does not have."""
    there = ", ".join(sorted(of.labels)) or "none"
    return LabelFault(f"{of.name} has no label {label}", f"its labels are {there}, and those of the scrape")


def impossible_values(matcher: Matcher, of: KnownSeries) -> list[LabelFault]:
    """Return the faults of values that a label never has; a value in an exclusion is as wrong as elsewhere."""
    if matcher.label == "le":
        return _impossible_bound(matcher, of)
    possible = of.values.get(matcher.label)
    if not possible or matcher.value == "":
        return []
    pattern = matcher.operator in {"=~", "!~"}
    wanted = matcher.value.split("|") if pattern and not re.search(r"[()]", matcher.value) else [matcher.value]
    return [
        LabelFault(f"{of.name} never has {matcher.label}={value!r}", f"it is one of {', '.join(possible)}")
        for value in wanted
        if value and not any(_matches(value, one, pattern=pattern) for one in possible)
    ]


def _impossible_bound(matcher: Matcher, of: KnownSeries) -> list[LabelFault]:
    """Return the faults of a bucket that does not exist, or not in every spelling: `le="600"` is `le="600.0"` elsewhere."""
    if not of.buckets or matcher.operator in {"!=", "!~"}:
        return []
    pattern = matcher.operator == "=~"
    bounds = [*of.buckets, math.inf]
    chosen = [bound for bound in bounds if any(_matches(matcher.value, spelt, pattern=pattern) for spelt in spellings(bound))]
    if not chosen:
        there = ", ".join(bound_text(bound) for bound in of.buckets)
        return [LabelFault(f"no bucket of {of.name} ends at {matcher.value!r}", f"its boundaries are {there}")]
    half = [bound for bound in chosen if not all(_matches(matcher.value, spelt, pattern=pattern) for spelt in spellings(bound))]
    return [
        LabelFault(
            f"le={matcher.value!r} misses the same bucket of exporters that write it otherwise", f"write {bound_matcher(bound)}"
        )
        for bound in half
    ]


def spellings(bound: float) -> tuple[str, ...]:
    """Return how exporters write the bound of a bucket: whole numbers with and without `.0`."""
    if math.isinf(bound):
        return ("+Inf",)
    text = bound_text(bound)
    return (text, f"{bound:.1f}") if bound == int(bound) and bound < 1e6 else (text,)


def _matches(value: str, text: str, *, pattern: bool) -> bool:
    if not pattern:
        return value == text
    try:
        return re.fullmatch(value, text) is not None
    except re.error:  # a pattern of Go's that is none of Python's: promtool's to judge
        return True


class _Flow:
    """Follows labels from the series upwards, and collects faults."""

    def __init__(self, known: Catalogue) -> None:
        self.known = known
        self.found: list[LabelFault] = []

    def fault(self, what: str, fix: str) -> None:
        self.found.append(LabelFault(what, fix))

    def labels(self, expression: Expression) -> _Labels:
        match expression:
            case Series():
                return self.of_series(expression)
            case Window():
                return self.labels(expression.operand)
            case Call():
                return self.of_call(expression)
            case Aggregation():
                return self.of_aggregation(expression)
            case Binary():
                return self.of_binary(expression)
            case Constant():
                return frozenset()

    def of_series(self, series: Series) -> _Labels:
        named = [one.value for one in series.matchers if (one.label, one.operator) == ("__name__", "=")]
        name = series.metric or (named[0] if named else "")
        if not name:
            return None
        if name not in self.known:
            self.found.append(unknown_metric(name, self.known))
            return None
        of = self.known[name]
        if of.type == "histogram":
            self.fault(
                f"{name} is a histogram, which has no series of that name", f"use {', '.join(name + part for part in PARTS)}"
            )
            return of.all_labels
        empty = set()
        for matcher in series.matchers:
            if matcher.label == "__name__":
                continue
            if not of.may_have_label(matcher.label):
                self.found.append(unknown_label(matcher.label, of))
            self.found += impossible_values(matcher, of)
            if (matcher.operator, matcher.value) == ("=", ""):
                empty.add(matcher.label)
        return None if of.any_label else of.all_labels - empty

    def of_call(self, call: Call) -> _Labels:
        name = call.function.lower()
        labels = [self.labels(argument) for argument in call.arguments]
        if name in _OF_COUNTERS:
            self.check_counter(call)
        if name in _WITHOUT_LABELS or not call.arguments:
            return frozenset()
        if name in {"absent", "absent_over_time"}:
            return labels_of_absent(call.arguments[0])
        vectors = [own for own, argument in zip(labels, call.arguments, strict=True) if not isinstance(argument, Constant)]
        vector = vectors[-1] if name == "histogram_quantile" and vectors else vectors[0] if vectors else frozenset()
        if name == "histogram_quantile":
            self.check(("le",), [vector], "histogram_quantile")
            return None if vector is None else vector - {"le"}
        if name in {"label_replace", "label_join"}:
            return self.of_renaming(call, vector)
        return vector

    def of_renaming(self, call: Call, vector: _Labels) -> _Labels:
        texts = [argument.text for argument in call.arguments[1:] if isinstance(argument, Constant)]
        sources = texts[2:3] if call.function.lower() == "label_replace" else texts[2:]
        self.check([label for label in sources if label], [vector], call.function)
        return None if vector is None else vector | set(texts[:1])

    def of_aggregation(self, aggregation: Aggregation) -> _Labels:
        operand = [self.labels(argument) for argument in aggregation.arguments][-1]
        own = aggregation.labels or ()
        word = "without" if aggregation.without else "by"
        self.check(own, [operand], f"{aggregation.function} {word} ({', '.join(own)})")
        if aggregation.function in KEEPING:
            return operand
        added = aggregation.arguments[0] if aggregation.function == "count_values" else None
        extra = {added.text} if isinstance(added, Constant) else set()
        if aggregation.without:
            return None if operand is None else (operand - set(own)) | extra
        return frozenset(own) | extra

    def of_binary(self, binary: Binary) -> _Labels:
        left, right = self.labels(binary.left), self.labels(binary.right)
        if _is_scalar(binary.left) or _is_scalar(binary.right):
            return right if _is_scalar(binary.left) else left
        if binary.operator == "or":
            return None if left is None or right is None else left | right
        matching = binary.matching
        if matching is None:
            self.check_same(binary, left, right)
        elif binary.ignoring:
            together = None if left is None or right is None else left | right
            self.check(matching, [together], f"ignoring ({', '.join(matching)})")
            rest = (None if side is None else side - set(matching) for side in (left, right))
            self.check_same(binary, *rest)
        else:
            self.check(matching, [left, right], f"on ({', '.join(matching)})")
        if binary.operator in promql.SET_OPERATORS:
            return left
        if binary.many:
            many, one = (left, right) if binary.many == "left" else (right, left)
            self.check(binary.include, [one], f"group_{binary.many} ({', '.join(binary.include)})")
            return None if many is None else many | set(binary.include)
        if matching is None:
            return left
        return (None if left is None else left - set(matching)) if binary.ignoring else frozenset(matching)

    def check(self, labels: Iterable[str], sides: list[_Labels], where: str) -> None:
        """Add faults for labels that one side never has."""
        for label in labels:
            if any(side is not None and label not in side for side in sides):
                self.fault(f"{where}: no series has the label {label}", "use a label that the series below have")

    def check_counter(self, call: Call) -> None:
        """Add a fault for a rate of a metric that is not a counter."""
        window = call.arguments[0] if call.arguments else None
        series = window.operand if isinstance(window, Window) else None
        of = self.known.get(series.metric) if isinstance(series, Series) else None
        if of is not None and of.type == "gauge":
            self.fault(f"{call.function} of {of.name}, which is a gauge", "use delta, deriv or avg_over_time")

    def check_same(self, binary: Binary, left: _Labels, right: _Labels) -> None:
        """Add a fault for vectors that can never match, since one lacks labels of the other; labels of a scrape may be on both."""
        if left is None or right is None or binary.many:
            return
        different = sorted((left ^ right) - SCRAPE_LABELS)
        if different:
            self.fault(
                f"the sides of `{binary.operator}` never match: only one has {', '.join(different)}",
                "write on (...) or ignoring (...), or aggregate both by the same labels",
            )


def labels_of_absent(argument: Expression) -> frozenset[str]:
    """Return the labels of `absent(...)`: those that its selector asks to be equal to a value."""
    series = argument.operand if isinstance(argument, Window) else argument
    if not isinstance(series, Series):
        return frozenset()
    return frozenset(one.label for one in series.matchers if one.operator == "=" and one.label != "__name__")


def _is_scalar(expression: Expression) -> bool:
    if isinstance(expression, Binary):
        return _is_scalar(expression.left) and _is_scalar(expression.right)
    return isinstance(expression, Constant) or (isinstance(expression, Call) and expression.function.lower() in _SCALARS)
