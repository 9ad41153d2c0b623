"""Which rank kept the others waiting, and from when to when: a straggler that comes and goes has stretches, not only a mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.ledger.states import STATE_OF_CAUSE
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.trend import LateRank, Stretch

Flags = npt.NDArray[np.bool_]

_WINDOWS = 100
"""A run is looked at through windows of that part of it, but never of fewer than `late_window_steps` steps."""


def late_ranks(steps: Steps) -> list[LateRank] | None:
    """Return the ranks that were late in stretches of the run, those that were late in the most steps first.

    Late is a rank in windows in which it cost a warning's share of the step, and not by a few steps: it was late in the ratio
    `straggler_steps` of them. None: there is one rank, or not all ranks have records, or there is not one window of steps, so that
    nobody knows who was late.
    """
    if len(steps.ranks) < 2 or len(steps.ranks) < steps.world_size or len(steps.numbers) < threshold("late_window_steps"):
        return None
    seconds = _lateness(steps)
    step = steps.wall.max(axis=1)
    late = is_late(seconds, step[:, None])
    found = []
    for column, rank in enumerate(steps.ranks):
        spans = _spans(late[:, column], seconds[:, column], step)
        if spans:
            stretches = [_stretch(steps, seconds, late, column, slice(*span)) for span in spans]
            count = sum(one.steps for one in stretches)
            found.append(LateRank(rank=rank, steps=count, share=count / len(steps.numbers), stretches=stretches))
    return sorted(found, key=lambda one: -one.steps)


def is_late(seconds: Matrix, step: Matrix) -> Flags:
    """Return in which steps a rank is late: in those that lose a quarter of what is worth a warning to it.

    Args:
        seconds: lost to a rank. step: of the step; shapes that fit each other.
    """
    return np.asarray(seconds >= threshold("warning_share") / 4 * float(np.median(step)))


def _lateness(steps: Steps) -> Matrix:
    """Return the seconds that the others waited for each rank, shape (K, R): what it spent itself, compared with the lower median
    of all, of two ranks against the other; nobody is later than somebody waited.
    """
    own = np.asarray(sum(steps.own.values(), np.zeros_like(steps.wall)))
    waited = steps.waiting.max(axis=1, keepdims=True) - steps.waiting.min(axis=1, keepdims=True)
    return np.asarray(np.minimum(np.maximum(own - _typical(own), 0.0), waited))


def _typical(values: Matrix) -> Matrix:
    middle = (values.shape[1] - 1) // 2
    return np.asarray(np.partition(values, middle, axis=1)[:, middle : middle + 1])


def _spans(is_late: Flags, seconds: Matrix, step: Matrix) -> list[tuple[int, int]]:
    """Return the half-open stretches of steps in which one rank is late; all arrays have shape (K,)."""
    width = max(int(threshold("late_window_steps")), len(step) // _WINDOWS)
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
    """Return the sum of each window, by first step, shape (K - width + 1,)."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[width:] - sums[:-width])


def _stretch(steps: Steps, seconds: Matrix, is_late: Flags, column: int, span: slice) -> Stretch:
    over = {cause: own[span, column] - _typical(own[span])[:, 0] for cause, own in steps.own.items()}
    largest = max(over, key=lambda cause: float(np.maximum(over[cause], 0.0).sum()))
    first, last = span.start, span.stop - 1
    return Stretch(
        first_step=int(steps.numbers[first]),
        last_step=int(steps.numbers[last]),
        steps=int(is_late[span, column].sum()),
        start=float(steps.unix_ends[first, column] - steps.wall[first, column]),
        end=float(steps.unix_ends[last, column]),
        seconds_per_step=float(seconds[span, column].mean()),
        state=STATE_OF_CAUSE[largest],
    )
