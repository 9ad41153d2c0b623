"""Which rank kept the others waiting, and from when to when: a straggler that comes and goes has stretches, not only a mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.ledger import STATE_OF_CAUSE
from tachoscope_analyzers.steps import Matrix, Steps
from tachoscope_analyzers.thresholds import threshold
from tachoscope_core.course import LateRank, Stretch

_WINDOWS = 100
"""A run is looked at through windows of that part of it, but never of fewer than `change_steps` steps."""


@dataclass(frozen=True, slots=True)
class _Lateness:
    """What each rank cost the others.

    Attributes:
        seconds: that the others waited for it, shape (K, R). over: what it spent longer than they did, by cause, each (K, R).
        is_late: whether that is worth counting, shape (K, R) of bool.
    """

    seconds: Matrix
    over: dict[str, Matrix]
    is_late: npt.NDArray[np.bool_]


def late_ranks(steps: Steps) -> list[LateRank] | None:
    """Return the ranks that were late in stretches of the run, those that were late in the most steps first.

    Late is a rank in windows in which it cost a warning's share of the step, and not by a few steps: it was late in the ratio
    `straggler_steps` of them. None: there is one rank, or not all ranks have records, so that nobody knows who was late.
    """
    if len(steps.ranks) < 2 or len(steps.ranks) < steps.world_size:
        return None
    late = _lateness(steps)
    found = []
    for column, rank in enumerate(steps.ranks):
        spans = _spans(late.is_late[:, column], late.seconds[:, column], steps.wall.max(axis=1))
        if spans:
            stretches = [_stretch(steps, late, column, begin, end) for begin, end in spans]
            count = sum(one.steps for one in stretches)
            found.append(LateRank(rank=rank, steps=count, share=count / len(steps.numbers), stretches=stretches))
    return sorted(found, key=lambda one: -one.steps)


def _lateness(steps: Steps) -> _Lateness:
    """Hold each rank against the lower median of all, of two against the other; nobody is later than somebody waited."""
    own = np.asarray(sum(steps.own.values(), np.zeros_like(steps.wall)))
    waited = steps.waiting.max(axis=1, keepdims=True) - steps.waiting.min(axis=1, keepdims=True)
    seconds = np.minimum(np.maximum(own - _typical(own), 0.0), waited)
    over = {cause: np.maximum(spent - _typical(spent), 0.0) for cause, spent in steps.own.items()}
    # As for a straggler of the whole run: a step counts that loses a quarter of what is worth a warning.
    least = threshold("warning_share") / 4 * float(np.median(steps.wall.max(axis=1)))
    return _Lateness(seconds, over, seconds >= least)


def _typical(values: Matrix) -> Matrix:
    middle = (values.shape[1] - 1) // 2
    return np.partition(values, middle, axis=1)[:, middle : middle + 1]


def _spans(is_late: npt.NDArray[np.bool_], seconds: Matrix, step: Matrix) -> list[tuple[int, int]]:
    """Return the stretches, from a step up to but without another, of one rank; all arrays have shape (K,)."""
    width = max(int(threshold("change_steps")), len(step) // _WINDOWS)
    if len(step) < width or not is_late.any():
        return []
    often = _sums(is_late.astype(float), width) >= threshold("straggler_steps") * width
    costly = _sums(seconds, width) >= threshold("warning_share") * _sums(step, width)
    starts = np.flatnonzero(often & costly)
    if not len(starts):
        return []
    breaks = np.flatnonzero(np.diff(starts) > width)
    begins, ends = starts[np.concatenate([[0], breaks + 1])], starts[np.concatenate([breaks, [len(starts) - 1]])] + width
    balance = np.concatenate([[0.0], np.cumsum(np.where(is_late, 1.0, -1.0))])
    spans = []
    for begin, end in zip(begins, ends, strict=True):
        # Windows reach beyond a stretch: it begins where the late steps begin to be the more, and ends where they cease to be.
        half = min(width, (end - begin + 1) // 2)
        first = int(begin + balance[begin : begin + half].argmin())
        last = int(end - half + 1 + balance[end - half + 1 : end + 1].argmax())
        spans.append((first, last))
    return spans


def _sums(values: Matrix, width: int) -> Matrix:
    """Return the sum of each window, by its first step, shape (K - width + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[width:] - sums[:-width])


def _stretch(steps: Steps, late: _Lateness, column: int, begin: int, end: int) -> Stretch:
    by_cause = {cause: float(over[begin:end, column].sum()) for cause, over in late.over.items()}
    return Stretch(
        first_step=int(steps.numbers[begin]),
        last_step=int(steps.numbers[end - 1]),
        steps=int(late.is_late[begin:end, column].sum()),
        start=float(steps.unix_ends[begin, column] - steps.wall[begin, column]),
        end=float(steps.unix_ends[end - 1, column]),
        seconds_per_step=float(late.seconds[begin:end, column].mean()),
        state=STATE_OF_CAUSE[max(by_cause, key=by_cause.__getitem__)],
    )
