"""Drops steps with impossible numbers: a spool is foreign input, and counters would keep a wrong value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records.base import MAX_STEP_SECONDS
from tachoscope_core.records.records import PHASES

_MOST_LOST_STEPS = 1_000_000
_Count = TypeVar("_Count", int, npt.NDArray[np.int64])


def plausible_steps(steps: StepTable) -> StepTable:
    """Return the steps without those whose numbers cannot be true; what no phase covers is `other`.

    Args:
        steps: in the order of (writer, seq).
    """
    if not len(steps):
        return steps
    kept = plausible_by_themselves(steps)
    begin = 0
    for own in steps.by_writer().values():
        kept[begin : begin + len(own)] &= plausible_together(own)
        begin += len(own)
    steps = with_unnamed_time(steps)
    return steps if kept.all() else steps.take(kept)


def plausible_by_themselves(steps: StepTable) -> npt.NDArray[np.bool_]:
    """Return which steps have a length that can be true and phases that sum to it, shape (K,)."""
    wall = steps.column("wall_seconds")
    return np.asarray((wall <= MAX_STEP_SECONDS) & (np.abs(_in_phases(steps) - wall) <= 1e-6 + 0.01 * wall))


def with_unnamed_time(steps: StepTable) -> StepTable:
    """Return the steps with what no phase covers as `other`."""
    left = steps.column("wall_seconds") - _in_phases(steps)
    unnamed = np.abs(left) > 1e-6
    if not unnamed.any():
        return steps
    other = steps.column("other_seconds")
    return steps.with_column("other_seconds", np.where(unnamed, np.maximum(np.nan_to_num(other) + left, 0.0), other))


def plausible_together(own: StepTable) -> npt.NDArray[np.bool_]:
    """Return which of all steps of a process, in the order of writing, can follow one another, shape (K,)."""
    kept = np.zeros(len(own), dtype=bool)
    kept[_in_order(own)] = True
    return kept & (own.column("step") <= highest_number(len(own)))


def highest_number(count: _Count) -> _Count:
    """Return the highest number that a step can have of a process, or of each process, that recorded `count` steps."""
    return _MOST_LOST_STEPS + 2 * count


def begins_ns(steps: StepTable) -> npt.NDArray[np.float64]:
    """Return when each step began at the latest, by the clock that `monotonic_ns` is of, shape (K,).

    By more than a microsecond, and a hundredth of the step, clocks of one process do not differ.
    """
    wall_ns = steps.column("wall_seconds") * 1e9
    return np.asarray(steps.column("monotonic_ns") - wall_ns + 0.01 * wall_ns + 1e3)


def _in_phases(steps: StepTable) -> npt.NDArray[np.float64]:
    return np.asarray(np.nansum([steps.column(f"{phase}_seconds") for phase in PHASES], axis=0))


def _in_order(steps: StepTable) -> Sequence[int]:
    """Return the places of the most steps of a process, given in the order of writing, of which none ends or is numbered before an
    earlier one. Of these the ones are left that begin after the one before has ended.
    """
    numbers, ends, begins = steps.column("step"), steps.column("monotonic_ns"), begins_ns(steps)
    if ((numbers[1:] > numbers[:-1]) & (begins[1:] >= ends[:-1])).all():
        return range(len(steps))
    places = np.array(_rising(ends.tolist()))
    places = places[_rising(numbers[places].tolist())]
    found = [int(places[0])]
    for place in places[1:].tolist():
        if numbers[place] > numbers[found[-1]] and begins[place] >= ends[found[-1]]:
            found.append(place)
    return found


def _rising(values: Sequence[int]) -> list[int]:
    """Return the indices of the longest part of a series that never falls."""
    ends: list[int] = []  # the least last value of a part of each length, and which index that has
    last: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        length = bisect_right(ends, value)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [value], [index]
    part, index = [], last[-1]
    while index >= 0:
        part.append(index)
        index = before[index]
    return part[::-1]
