"""Series of an objective's indicator whose truth is known: so many of its events are bad.

They are made from the indicator's selectors alone, in promtool's notation
(https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/#series).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tachoscope_alerts.compile.sli_expressions import bound_text, number, quoted
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slices, Slo
from tachoscope_core.errors import TachoscopeError

Labels = dict[str, str]
PlantedSeries = dict[str, str]
"""`series` and `values`, as promtool reads them."""


@dataclass(frozen=True, slots=True)
class PlantedStretch:
    """Scrapes in a row. In each `total` events are new, of these `bad` bad ones; `restart`: counters begin at 0 again."""

    scrapes: int
    total: float
    bad: float
    restart: bool = False


def of_events(slo: Slo, stretches: list[PlantedStretch], labels: Mapping[str, str] | None = None) -> list[PlantedSeries]:
    """Return counters of an objective on events, which have counted `stretches` one after the other.

    Args:
        labels: those of the objective's `by`; by default as `labels_of` names them.
    """
    by = dict(labels) if labels is not None else labels_of(slo)
    indicator = slo.indicator
    if isinstance(indicator, AtMost | MoreThan):
        chosen, metric = _matching(indicator.histogram) | by, indicator.histogram.metric
        low_is_good = isinstance(indicator, AtMost)
        all_of_them, within = _counter(stretches, bad=True, good=True), _counter(stretches, bad=not low_is_good, good=low_is_good)
        return [
            {"series": _named(f"{metric}_count", chosen), "values": all_of_them},
            {"series": _named(f"{metric}_bucket", chosen | {"le": bound_text(indicator.bound)}), "values": within},
            {"series": _named(f"{metric}_bucket", chosen | {"le": "+Inf"}), "values": all_of_them},
        ]
    assert isinstance(indicator, Ratio), "time is planted by of_slices"
    part = indicator.bad or indicator.good
    assert part is not None, "one of both is given"
    counted = {"bad": indicator.bad is not None, "good": indicator.bad is None}
    inside, outside = _inside(indicator.total, part), _outside(indicator.total, part)
    if indicator.total.metric == part.metric and inside is not None and outside is not None:
        rest = {name: not value for name, value in counted.items()}
        return [
            {"series": _named(part.metric, inside | by), "values": _counter(stretches, **counted)},
            {"series": _named(part.metric, outside | by), "values": _counter(stretches, **rest)},
        ]
    return [
        {"series": _named(part.metric, _matching(part) | by), "values": _counter(stretches, **counted)},
        {
            "series": _named(indicator.total.metric, _matching(indicator.total) | by),
            "values": _counter(stretches, bad=True, good=True),
        },
    ]


def of_slices(slo: Slo, scrapes: int, interval: float, *, bad: bool, is_open: bool = True, entity: int = 1) -> list[PlantedSeries]:
    """Return the gauges of one entity that is bad or good all the time.

    Args:
        interval: seconds between scrapes. is_open: its gate, if there is one. entity: its number.
    """
    indicator = slo.indicator
    assert isinstance(indicator, Slices), "events are planted by of_events"
    entity_labels = {label: f"{label.replace('_', '-')}-{entity}" for label in indicator.by} | labels_of(slo)
    value = _gauge(indicator, scrapes, interval, bad=bad)
    found = []
    if value:
        found.append({"series": _named(indicator.value.metric, entity_labels | _matching(indicator.value)), "values": value})
    if indicator.gate is not None:
        shared = {label: entity_labels[label] for label in indicator.gate.on}
        series = _named(indicator.gate.selector.metric, shared | _matching(indicator.gate.selector))
        found.append({"series": series, "values": f"{1 if is_open else 0}x{scrapes}"})
    return found


def labels_of(slo: Slo) -> Labels:
    """Return values of the labels that an objective keeps, those that its selectors ask for among them."""
    indicator = slo.indicator
    if isinstance(indicator, Slices):
        first = indicator.value
    else:
        first = indicator.histogram if isinstance(indicator, AtMost | MoreThan) else indicator.total
    return {label: first.labels.get(label, (f"{label.replace('_', '-')}-1",))[0] for label in slo.by}


def _gauge(indicator: Slices, scrapes: int, interval: float, *, bad: bool) -> str:
    """Return the values of an entity; none if their absence is the fault."""
    low_is_good = indicator.comparison in {"lt", "lte"}
    margin = max(abs(indicator.bound) / 10, 0.1)
    if not bad:
        # The newest age is that of what was done just now.
        return (
            f"0+{number(interval)}x{scrapes}"
            if indicator.age
            else f"{number(indicator.bound + (-margin if low_is_good else margin))}x{scrapes}"
        )
    if indicator.gate is not None and indicator.missing == "bad":
        return ""
    worse = 2 * abs(indicator.bound) + 1 if low_is_good else indicator.bound / 2 - margin
    return f"{number(-worse if indicator.age else worse)}x{scrapes}"


def _counter(stretches: list[PlantedStretch], *, bad: bool, good: bool) -> str:
    """Return a counter of bad events, good ones, or both, starting at 0."""
    parts, value = ["0"], 0.0
    for stretch in stretches:
        step = stretch.bad * bad + (stretch.total - stretch.bad) * good
        value = 0.0 if stretch.restart else value + step
        parts.append(f"{number(value)}+{number(step)}x{stretch.scrapes - 1}")
        value += step * (stretch.scrapes - 1)
    return " ".join(parts)


def _named(metric: str, labels: Mapping[str, str]) -> str:
    return f"{metric}{{{','.join(f'{name}={quoted(value)}' for name, value in sorted(labels.items()))}}}"


def _matching(selector: Selector) -> Labels:
    """Return labels that match a selector; a label that must not be empty gets some value."""
    lacking = {label: "other" for label, values in selector.excluding.items() if "" in values}
    lacking |= {label: _example(pattern) for label, pattern in selector.patterns.items()}
    return lacking | {label: values[0] for label, values in selector.labels.items()}


def _example(pattern: str) -> str:
    """Return a value that a regular expression of words, dots and repetitions matches."""
    plain = re.sub(r"\\d|\[0-9\]", "5", re.sub(r"\.[*+]?", "0", pattern.replace("\\.", "\0")).replace("\0", "."))
    words = [word.replace("(", "").replace(")", "").replace("?:", "").strip("^$") for word in plain.split("|")]
    for word in (*words, "500", "x", ""):
        if re.fullmatch(pattern, word):
            return word
    raise TachoscopeError(f"no value was found that matches {pattern!r}, for the tests of rules", fix="write values: one|another")


def _inside(total: Selector, part: Selector) -> Labels | None:
    """Return labels that match both."""
    found = _matching(total)
    for label, values in part.labels.items():
        usable = [v for v in values if v in total.labels.get(label, (v,)) and v not in total.excluding.get(label, ())]
        if not usable:
            return None
        found[label] = usable[0]
    found |= {label: _example(pattern) for label, pattern in part.patterns.items() if label not in part.labels}
    return found if part.matches(found) and total.matches(found) else None


def _outside(total: Selector, part: Selector) -> Labels | None:
    """Return labels that match the total but not the part."""
    changes = [(label, total.labels.get(label, ("other",))) for label in (*part.labels, *part.patterns)]
    changes += list(part.excluding.items())
    changes += [(label, (_example(pattern),)) for label, pattern in part.excluded_patterns.items()]
    for label, values in changes:
        for value in values:
            found = _matching(total) | {label: value}
            if total.matches(found) and not part.matches(found):
                return found
    return None
