"""Where the level of a series changes for good: offline, and whatever spikes, warm-up, periodic saves and drift there are.

Candidates come from seeded binary segmentation with narrowest-over-threshold selection (Kovács, Bühlmann, Li and Munk 2023,
https://doi.org/10.1093/biomet/asac052): the CUSUM of the values, clipped so that a spike counts for no more than what is usual,
over overlapping intervals of all lengths. Then each has to be large, beyond the noise, sudden, and to last. Knows nothing of jobs:
takes seconds, gives places. O(n log n).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.stats.arrays import Matrix, median

_MOST_BINS = 2000
"""A longer series is looked at in bins of so many steps that no more than twice as many are left, each by its median."""
_LEAST_BINS = 10
"""Of a bin's noise nothing is known from fewer."""
_DECAY = 0.5**0.5
"""From the length of intervals to the next shorter one, as the authors of the method recommend."""
_CLIPPED_AT = 3.0
_DEVIATION = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""
_LEAST_NOISE = 1e-3
"""Of the level: noise below that is taken to be that large, so that steps that are all alike do not make it infinitely certain."""
_ERRORS = 3.0
"""Standard errors that the difference of two levels has to have."""
_ROUNDING = 1e-9
"""Part of a sum of squares that is far above what is lost in adding it up."""
_NEARBY = 10
"""The jump itself is looked for within this part of the series, in which a drift does not come far."""
_WARM_UP = 0.1


def change_points(seconds: Matrix) -> list[int]:
    """Return the places, in order, from which on the level of `seconds`, shape (K,), is another one.

    A change is at least the ratio `change_share` of the lower level, and both levels last at least `change_steps` steps (of more
    than 4,000, ten times a 2,000th of them). A first tenth of the series, or less, that is slower is warm-up, and no change.
    """
    width = max(1, len(seconds) // _MOST_BINS)
    values = np.median(seconds[: len(seconds) // width * width].reshape(-1, width), axis=1)
    shortest = least_steps(len(seconds)) // width
    found = _confirmed(values, _candidates(values, shortest), shortest)
    places = _located(seconds, [place * width for place in found], shortest * width)
    return places[1:] if places and _is_warm_up(seconds, places) else places


def large_change_points(seconds: Matrix, least: float) -> list[int]:
    """Return the change points of a series, shape (K,), which has one of `least` seconds: of most series it is cheap to know that
    they have none.
    """
    apart = least_steps(len(seconds))
    blocks = len(seconds) // apart
    medians = median(seconds[: blocks * apart].reshape(blocks, apart))
    return change_points(seconds) if blocks > 1 and float(np.ptp(medians)) >= least / 2 else []


def least_steps(count: int) -> int:
    """Return how many of `count` steps a level has to last."""
    width = max(1, count // _MOST_BINS)
    shortest = -(-int(threshold("change_steps")) // width)
    return max(shortest, _LEAST_BINS) * width if width > 1 else shortest


def spread(values: Matrix) -> float:
    """Return the standard deviation of the values, shape (n,), without regard to those that stand out: normal noise is assumed."""
    return _spread_around(values, float(np.median(values)))


def _spread_around(values: Matrix, middle: float) -> float:
    return max(_DEVIATION * float(np.median(np.abs(values - middle))), _LEAST_NOISE * abs(middle), 1e-12)


def _candidates(values: Matrix, shortest: int) -> list[int]:
    """Return change points by CUSUM, one per interval, shortest intervals first."""
    # The supremum of a Brownian bridge exceeds x with a probability of 2 exp(-2 x²) (Kolmogorov).
    limit = (np.log(2 / threshold("change_false_alarm")) / 2) ** 0.5
    found = []
    length = len(values)
    while length >= 2 * shortest:
        intervals = 1 if length == len(values) else -(-2 * (len(values) - length) // length) + 1
        starts = np.unique(np.linspace(0, len(values) - length, intervals).astype(int))
        for row, place, strength in _strongest(values, starts, length, max(shortest // 2, 1), limit):
            found.append((length, -strength, int(starts[row]), int(starts[row]) + place))
        length = int(length * _DECAY)
    chosen: list[int] = []
    for length, _, start, place in sorted(found):
        if not any(start < one < start + length for one in chosen):
            chosen.append(place)
    return sorted(chosen)


def _strongest(
    values: Matrix, starts: npt.NDArray[np.intp], length: int, margin: int, limit: float
) -> Iterator[tuple[int, int, float]]:
    """Yield each interval where the CUSUM of its clipped values, over what noise alone would give, is at least `limit` away from
    zero: its row in `starts`, the place within it and that distance. All intervals of a length are one matrix: a call of numpy for
    each took most of the time.
    """
    every = sliding_window_view(values, length)[starts]
    middles = np.median(every, axis=1, keepdims=True)
    distances = every - middles
    deviations = _DEVIATION * np.median(np.abs(distances), axis=1, keepdims=True)
    least = np.maximum(_LEAST_NOISE * np.abs(middles), 1e-12)
    far = _CLIPPED_AT * np.maximum(deviations, least)
    clipped = np.clip(distances, -far, far)
    sums = np.abs(np.cumsum(clipped - clipped.mean(axis=1, keepdims=True), axis=1))[:, margin - 1 : -margin]
    at = sums.argmax(axis=1)
    farthest, places, floors = sums[np.arange(len(sums)), at], at + margin, least[:, 0]
    far_enough = farthest >= limit * length**0.5 * np.maximum(_at_least_deviation(clipped, places), floors)
    for row in np.flatnonzero(far_enough).tolist():
        own, place = clipped[row], int(places[row])
        rest = np.concatenate([own[:place] - own[:place].mean(), own[place:] - own[place:].mean()])
        noise = max(_long_run_deviation(rest), float(floors[row]))
        strength = float(farthest[row]) / (noise * length**0.5)
        if strength >= limit:
            yield row, place, strength


def _at_least_deviation(clipped: Matrix, places: npt.NDArray[np.intp]) -> Matrix:
    """Return for each row less than the standard deviation of its values around the means before and after its place: the noise
    is at least that, and of most rows nothing more has to be known.
    """
    length = clipped.shape[1]
    squares = (clipped * clipped).sum(axis=1)
    sums = np.cumsum(clipped, axis=1)
    before = sums[np.arange(len(sums)), places - 1]
    after = sums[:, -1] - before
    variances = (squares * (1 - _ROUNDING) - before**2 / places - after**2 / (length - places)) / length
    return np.asarray((1 - _ROUNDING) * np.sqrt(np.maximum(variances, 0.0)))


def _long_run_deviation(rest: Matrix) -> float:
    """Return the standard deviation that means of long stretches have, times the root of their length: that of the values, or more
    where neighbours are alike, as an autoregression of first order and as the means of blocks have it.
    """
    deviation: float = rest.std().item()
    alike = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    length = max(1, round(len(rest) ** 0.5))
    means = rest[: len(rest) // length * length].reshape(-1, length).mean(axis=1)
    return max(deviation, deviation * float(np.sqrt((1 + alike) / (1 - alike))), float(means.std()) * float(np.sqrt(length)))


@dataclass(frozen=True, slots=True)
class _ChangeCandidate:
    """A candidate: by how much of the lower level its sides differ nearby, and whether it is a change."""

    share: float
    holds: bool


def _confirmed(values: Matrix, places: Sequence[int], shortest: int) -> list[int]:
    """Return the confirmed changes: the smallest failing one is removed, and its neighbours are tested again."""
    kept = [0, *places, len(values)]
    while len(kept) > 2:
        jumps = [_jump(values, *three, shortest) for three in zip(kept, kept[1:], kept[2:], strict=False)]
        failed = [index for index, jump in enumerate(jumps) if not jump.holds]
        if not failed:
            break
        del kept[1 + min(failed, key=lambda index: jumps[index].share)]
    return kept[1:-1]


def _jump(values: Matrix, begin: int, place: int, end: int, shortest: int) -> _ChangeCandidate:
    reach = max(len(values) // _NEARBY, shortest)
    before, after = values[max(begin, place - reach) : place], values[place : min(end, place + reach)]
    lower, difference = _levels(before, after)
    share = abs(difference) / max(lower, 1e-12)
    error = (sum(_long_run_deviation(_clipped(side)) ** 2 / len(side) for side in (before, after))) ** 0.5
    at_ends = float(np.median(values[place:end][-shortest:]) - np.median(values[begin:place][:shortest]))
    holds = (
        min(place - begin, end - place) >= shortest
        and share >= threshold("change_share")
        and abs(difference) >= _ERRORS * error
        and at_ends * np.sign(difference) >= threshold("change_share") / 2 * lower  # a burst is gone by then
        and _is_sudden(values[begin:place], values[place:end])
    )
    return _ChangeCandidate(share, bool(holds))


def _levels(before: Matrix, after: Matrix) -> tuple[float, float]:
    """Return the lower of the two levels, and by how much the second is higher."""
    levels = [float(np.median(side) + _clipped(side).mean()) for side in (before, after)]
    return min(levels), levels[1] - levels[0]


def _clipped(values: Matrix) -> Matrix:
    """Return the values' distances from their median, at most three standard deviations."""
    middle = float(np.median(values))
    far = _CLIPPED_AT * _spread_around(values, middle)
    return np.clip(values - middle, -far, far)


def _is_sudden(before: Matrix, after: Matrix) -> bool:
    """Return whether two levels fit better than a slope."""
    both = np.concatenate([before, after])
    clipped = np.median(both) + _clipped(both)
    at = np.arange(len(both)) - (len(both) - 1) / 2
    line = clipped.mean() + at * (at @ clipped) / max(float(at @ at), 1e-12)
    levels = sum(float(np.abs(side - np.median(side)).sum()) for side in (before, after))
    return levels < float(np.abs(both - line).sum())


def _located(seconds: Matrix, places: list[int], reach: int) -> list[int]:
    """Return each change at the step with the least absolute error of two levels."""
    found: list[int] = []
    for index, place in enumerate(places):
        low = max(found[-1] if found else 0, place - reach)
        high = min(places[index + 1] if index + 1 < len(places) else len(seconds), place + reach)
        one, two = np.median(seconds[low:place]), np.median(seconds[place:high])
        gain = np.cumsum(np.abs(seconds[low:high] - one) - np.abs(seconds[low:high] - two))
        found.append(low + int(gain[:-1].argmin()) + 1)
    return found


def _is_warm_up(seconds: Matrix, places: list[int]) -> bool:
    end = [*places[1:], len(seconds)][0]
    _, difference = _levels(seconds[: places[0]], seconds[places[0] : end])
    return difference < 0 and places[0] <= _WARM_UP * len(seconds)
