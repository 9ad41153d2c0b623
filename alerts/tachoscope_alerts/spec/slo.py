"""What a service-level objective is: an indicator that counts bad and total events, a target, a period, and who answers for it.

All indicators come down to two numbers at each evaluation: how many events were bad, and how many there were. Over a window both
are summed and then divided, so that a busy hour weighs more than a quiet one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tachoscope_core.metrics.metric import IDENTITY

Severity = Literal["page", "ticket"]
Comparison = Literal["lt", "lte", "gt", "gte"]


def with_identity(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels after those that tell workloads of the same name apart (`tachoscope_core.metrics.metric.IDENTITY`)."""
    return tuple(dict.fromkeys((*IDENTITY, *labels)))


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric.

    Attributes:
        metric: its name in a catalogue; of a histogram without `_bucket`. labels: values that a label may have.
        excluding: values that it may not have. patterns: a regular expression that all of a label matches, or none of it
            (`excluded_patterns`).
    """

    metric: str
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    excluding: dict[str, tuple[str, ...]] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    excluded_patterns: dict[str, str] = field(default_factory=dict)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a series has the labels that are asked for; a label that it lacks is empty."""
        return (
            all(labels.get(label, "") in values for label, values in self.labels.items())
            and not any(labels.get(label, "") in values for label, values in self.excluding.items())
            and all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in self.patterns.items())
            and not any(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in self.excluded_patterns.items())
        )


@dataclass(frozen=True, slots=True)
class Ratio:
    """Events that counters count: all of `total`, and of these the `bad` ones, or the `good` ones: one of both is given."""

    total: Selector
    bad: Selector | None = None
    good: Selector | None = None

    @property
    def other_metric(self) -> str:
        """The metric of the good or bad events; empty if it is that of the total."""
        part = self.bad or self.good
        assert part is not None, "one of both is given"
        return part.metric if part.metric != self.total.metric else ""


@dataclass(frozen=True, slots=True)
class AtMost:
    """Events that a histogram counts: good are those of at most `bound`, which is a boundary of its buckets."""

    histogram: Selector
    bound: float


@dataclass(frozen=True, slots=True)
class MoreThan:
    """Events that a histogram counts: good are those above `bound`, which is a boundary of its buckets; at it they are bad."""

    histogram: Selector
    bound: float


@dataclass(frozen=True, slots=True)
class Gate:
    """When time counts: while the gauge of an entity is 1, and has been for `since_seconds`.

    Attributes:
        on: the labels that it shares with the entities.
    """

    selector: Selector
    on: tuple[str, ...]
    since_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Slices:
    """Time: at each evaluation every entity is good or bad. An event is one entity at one evaluation.

    Attributes:
        value: a gauge. by: the labels that make an entity. reduce: which of an entity's series counts.
        age: compare the time since the value, a Unix time, instead of it.
        comparison, bound: good is an entity whose value compares so with the bound.
        gate: only entities for which it is open count; those that are open and have no value are bad if `missing` says so, which
            needs `by` and the gate's `on` to be the same.
    """

    value: Selector
    by: tuple[str, ...]
    comparison: Comparison
    bound: float
    reduce: Literal["min", "max"] = "max"
    age: bool = False
    gate: Gate | None = None
    missing: Literal["bad", "ignored"] = "ignored"


Indicator = Ratio | AtMost | MoreThan | Slices


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective: one target on one indicator. A spec with two targets gives two of these, each with its own name.

    Attributes:
        name: of the objective, unique, such as `inference-ttft-p99`. area: `training` or `inference`, the label of its alerts.
        indicator: what is counted. by: the labels that are kept in the rules, such as service and model: one budget for each. A
            spec's begin with those of `with_identity`, so that no cluster or namespace hides another's events.
        target: ratio of good events, 0 to 1. period_days: of the budget, rolling.
        alert: name of its burn alert, and of the runbook: `runbooks/<alert>.md`. pages, tickets: False: it has none of them.
        least_bad_events: fewer within the long window are no alert (low traffic); of slices minutes of bad entities. owner: team.
        target_source: where the target comes from: a URL, or `judgement`. dashboard: name of the
            suite's board that shows it, or uid of another.
        path, line: where it was read, for messages. lines: of its parts, by key: `owner`, `duration`, `ratioMetric.bad`.
        not_honoured: keys in the document that have no effect here, with their lines. of_catalogue: False: its metrics may be
            missing in the catalogue, as those of other programs are.
    """

    name: str
    title: str
    description: str
    area: str
    indicator: Indicator
    by: tuple[str, ...]
    target: float
    period_days: float
    alert: str
    pages: bool
    owner: str
    target_source: str
    least_bad_events: float = 0.0
    dashboard: str = ""
    path: str = ""
    line: int = 0
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    not_honoured: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    of_catalogue: bool = True
    tickets: bool = True

    def labels_of(self, group: Sequence[str]) -> dict[str, str]:
        """Return the values of the labels that it keeps by label, without cluster, namespace or team where there is none."""
        return {label: value for label, value in zip(self.by, group, strict=True) if value or label not in IDENTITY}

    @property
    def budget(self) -> float:
        """Ratio of events that may be bad."""
        return 1.0 - self.target
