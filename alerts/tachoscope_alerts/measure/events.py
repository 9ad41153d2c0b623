"""Events of objectives over windows: what a report asks for, and what every source of it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, Protocol

import numpy as np

from tachoscope_alerts.measure.evaluator import Events, Group
from tachoscope_alerts.measure.stored_samples import Floats
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo


@dataclass(frozen=True, slots=True)
class Window:
    """The evaluations after `start` up to `end`, Unix seconds, so that windows that follow each other share none."""

    start: float
    end: float


@dataclass(frozen=True, slots=True)
class EventSums:
    """Bad and total events summed over the evaluations of a window, a second's each time; `evaluations` had a number."""

    bad: float = 0.0
    total: float = 0.0
    evaluations: int = 0

    def __add__(self, other: EventSums) -> EventSums:
        return EventSums(self.bad + other.bad, self.total + other.total, self.evaluations + other.evaluations)

    @property
    def error_ratio(self) -> float | None:
        """The ratio of bad events, weighted by events; None where there were none."""
        return self.bad / self.total if self.total > 0 and isfinite(self.bad) else None


@dataclass(frozen=True, slots=True)
class Ask:
    """Sums over some windows. `only_bad`: the totals are not needed, and may not be there."""

    slo: Slo
    windows: tuple[Window, ...]
    only_bad: bool = False


Measured = dict[Group, list[EventSums]]
"""By the values of the objective's labels, the sums of each window."""


class EventSource(Protocol):
    """Where events are measured.

    Attributes:
        name: for people. notes: what of it could not be read, or is otherwise good to know, after `measure`.
        instance: what the label `instance` names here.
        raw_only_bad: after `measure`, the objectives whose `only_bad` was counted from other series than the rest.
    """

    name: str
    notes: list[str]
    instance: Literal["host", "instance"]
    raw_only_bad: set[str]

    def measure(self, asks: Sequence[Ask], timing: Timing) -> list[Measured]:
        """Return the answers in the order of the asks.

        Raises:
            TachoscopeError: the source cannot be read at all.
        """
        ...


class MomentSource(Protocol):
    """Where each moment's events are. name: for people. notes: what of it could not be read, after `moments`."""

    name: str
    notes: list[str]

    def moments(self, slo: Slo, start: float, end: float, timing: Timing) -> Events:
        """Return the events at each evaluation after `start` up to `end`, Unix seconds.

        Raises:
            TachoscopeError: the source cannot be read at all.
        """
        ...


def following_each_other(parts: Sequence[Events]) -> Events:
    """Return stretches of evaluations, the earlier first, as one; where a budget is not in a stretch, it has no events there."""
    times = np.concatenate([np.empty(0, dtype=np.int64), *(part.times_ms for part in parts)])

    def joined(rows: Sequence[Mapping[Group, Floats]]) -> dict[Group, Floats]:
        groups = {group for row in rows for group in row}
        lacking = [np.full(len(part.times_ms), np.nan) for part in parts]
        return {
            group: np.concatenate([row.get(group, blank) for row, blank in zip(rows, lacking, strict=True)]) for group in groups
        }

    return Events(times, joined([part.bad for part in parts]), joined([part.total for part in parts]))


def add(events: Events, ask: Ask, measured: Measured) -> None:
    """Add a stretch of evaluations to the windows of an ask; each evaluation is to be added once."""
    parts = [_part(events, window) for window in ask.windows]
    for group in events.total.keys() | events.bad.keys():
        sums = measured.setdefault(group, [EventSums()] * len(ask.windows))
        measured[group] = [before + _sums(events, group, part) for before, part in zip(sums, parts, strict=True)]


def _part(events: Events, window: Window) -> slice:
    ends = np.array([round(window.start * 1000), round(window.end * 1000)])
    first, last = np.searchsorted(events.times_ms, ends, side="right").tolist()
    return slice(first, last)


def _sums(events: Events, group: Group, part: slice) -> EventSums:
    if part.start >= part.stop:
        return EventSums()
    bad, total = (of_all[group][part] if group in of_all else np.empty(0) for of_all in (events.bad, events.total))
    return EventSums(float(np.nansum(bad)), float(np.nansum(total)), int(np.count_nonzero(~np.isnan(total))))
