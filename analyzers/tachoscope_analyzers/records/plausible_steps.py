"""Drops steps with impossible numbers: a spool is foreign input, and counters would keep a wrong value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records.base import MAX_STEP_SECONDS
from tachoscope_core.records.records import PHASES

_MOST_LOST_STEPS = 1_000_000


def plausible_steps(steps: StepTable) -> StepTable:
    """Return the steps without those whose numbers cannot be true; what no phase covers is `other`."""
    if not len(steps):
        return steps
    wall, numbers = steps.column("wall_seconds"), steps.column("step")
    phases = np.nansum([steps.column(f"{phase}_seconds") for phase in PHASES], axis=0)
    kept = (wall <= MAX_STEP_SECONDS) & (np.abs(phases - wall) <= 1e-6 + 0.01 * wall)
    begin = 0
    for own in steps.by_writer().values():
        in_order = np.zeros(len(own), dtype=bool)
        in_order[_in_order(own)] = True
        part = slice(begin, begin + len(own))
        kept[part] &= in_order & (numbers[part] <= _MOST_LOST_STEPS + 2 * len(own))
        begin += len(own)
    left = wall - phases
    if (unnamed := np.abs(left) > 1e-6).any():
        other = steps.column("other_seconds")
        steps = steps.with_column("other_seconds", np.where(unnamed, np.maximum(np.nan_to_num(other) + left, 0.0), other))
    return steps if kept.all() else steps.take(kept)


def _in_order(steps: StepTable) -> Sequence[int]:
    """Return the places of the most steps of a process, given in the order of writing, of which none ends or is numbered before an
    earlier one. Of these the ones are left that begin after the one before has ended.
    """
    numbers, ends_ns, wall_ns = steps.column("step"), steps.column("monotonic_ns"), steps.column("wall_seconds") * 1e9
    # `follows`: more than a microsecond, and a hundredth of the step, clocks of one process do not differ by.
    begins_ns = ends_ns - wall_ns + 0.01 * wall_ns + 1e3
    if ((numbers[1:] > numbers[:-1]) & (begins_ns[1:] >= ends_ns[:-1])).all():
        return range(len(steps))
    places = np.array(_rising(ends_ns.tolist()))
    places = places[_rising(numbers[places].tolist())]
    found = [int(places[0])]
    for place in places[1:].tolist():
        if numbers[place] > numbers[found[-1]] and begins_ns[place] >= ends_ns[found[-1]]:
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
