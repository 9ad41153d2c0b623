"""Finds what an engine's iteration takes: `base` and a time for each prompt and each output token.

An engine that records its iterations says it itself. A server's page does not: it says how long requests waited from one token to
the next, which is an iteration, seen as often as requests decode in it; how long they took from admission to the first token, which
is an iteration with their prompt; and how many iterations there were. All of these depend on what else was in the iterations, so
the costs are found by replaying the recorded traffic until the replay looks, in these numbers, as the recording does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.serving.capacity.engine_intervals import Intervals
from tachoscope_analyzers.serving.capacity.engine_simulator import IterationCost, Vector
from tachoscope_analyzers.serving.records.non_negative_least_squares import non_negative

MIN_INTERVALS = 8
"""With fewer, only what is true of all of them together is compared with the replay."""
MIN_TOTAL_ITERATIONS = 100
_HUBER = 1.5
_ROUNDS = 8
_RESAMPLES = 40
_STEPS, _SLOPE_STEPS = 4, (0, 2)
REPLAYS = 4
_NUDGE = 0.1
_PRIOR = np.log(3)
"""A cost that the recording does not tell is known to this factor of the first guess; what is predicted from it is then wide."""
_MODEL_ERROR = 0.01
_SMALL = np.array([1e-3, 1e-5, 1e-2])
"""Costs are found by their logarithms: none is less than so much of the time of a token (of the base, prompt and output)."""
_INSIDE = (0.1, 0.9)
_ALIKE, _MOSTLY = 0.8, 0.9

Replays = Callable[[IterationCost, int], Sequence[Intervals]]
"""Replays the recorded traffic at a cost, so many times with other draws of what is not recorded; what would be counted of each."""


@dataclass(frozen=True, slots=True)
class IterationCostFit:
    """What was found.

    Attributes:
        draws: costs that explain the recording as well, for the uncertainty of what is computed from them.
        output_tokens: in an iteration, mean of the busiest tenth of the intervals: the cost is known up to there.
    """

    cost: IterationCost
    draws: tuple[IterationCost, ...]
    output_tokens: float


def fitted(intervals: Intervals, seed: int = 0) -> IterationCostFit:
    """Return the costs that explain best how long an interval's iterations took, as they stand.

    Raises:
        ValueError: there is too little to say so.
    """
    usable = int(intervals.usable.sum())
    if usable < MIN_INTERVALS:
        raise ValueError(f"{usable} intervals with work in them, {MIN_INTERVALS} are needed")
    rows, times, weights = _equations(intervals)
    _check_apart(intervals)
    randomly = np.random.default_rng(seed)
    draws = []
    for _ in range(_RESAMPLES):
        chosen = randomly.integers(0, len(rows), len(rows))
        draws.append(_cost(_solved(rows[chosen], times[chosen], weights[chosen])))
    return IterationCostFit(_cost(_solved(rows, times, weights)), tuple(draws), _busiest(intervals))


def matched(intervals: Intervals, replays: Replays, seed: int = 0) -> IterationCostFit:
    """Return the costs at which the replayed traffic looks as the recorded.

    Raises:
        ValueError: there is too little to say so.
    """
    if intervals.iterations.sum() < MIN_TOTAL_ITERATIONS or not intervals.usable.any():
        raise ValueError(f"{intervals.iterations.sum():.0f} iterations, {MIN_TOTAL_ITERATIONS} are needed")
    rows, times, weights = _equations(intervals)
    by_interval = int(intervals.usable.sum()) >= MIN_INTERVALS
    if by_interval:
        _check_apart(intervals)
    probes = _probes(rows, weights) if by_interval else None
    target = _looks(intervals, probes)
    start = np.log(np.maximum(_solved(rows, times, weights), _SMALL * np.average(times, weights=weights)))
    noise = _noise(intervals, probes, seed)
    guess, slopes = start, np.zeros((0, 0))
    for step in range(_STEPS):
        seen, spread = _seen(guess, replays, probes, REPLAYS)
        if step in _SLOPE_STEPS:
            slopes = _slopes(guess, replays, probes)
        trust = 1 / (noise**2 + spread**2 + _MODEL_ERROR**2)
        curvature = slopes.T @ (slopes * trust[:, None]) + np.eye(len(guess)) / _PRIOR**2
        pull = slopes.T @ (trust * (target - seen)) + (start - guess) / _PRIOR**2
        guess = guess + np.clip(np.linalg.solve(curvature, pull), -0.5, 0.5)
    randomly = np.random.default_rng(seed)
    draws = randomly.multivariate_normal(guess, np.linalg.inv(curvature), _RESAMPLES)
    return IterationCostFit(_cost(np.exp(guess)), tuple(_cost(np.exp(draw)) for draw in draws), _busiest(intervals))


def _seen(guess: Vector, replays: Replays, probes: Vector | None, times: int) -> tuple[Vector, Vector]:
    """Return the replays' statistics at a guess, and their scatter."""
    found = np.array([_looks(one, probes) for one in replays(_cost(np.exp(guess)), times)])
    return found.mean(axis=0), found.std(axis=0, ddof=1)


def _slopes(guess: Vector, replays: Replays, probes: Vector | None) -> Vector:
    """Return the derivatives of the replays' statistics by the logarithm of each cost."""
    here = _seen(guess, replays, probes, 2)[0]
    ways = np.eye(len(guess)) * _NUDGE
    return np.array([(_seen(guess + way, replays, probes, 2)[0] - here) / _NUDGE for way in ways]).T


def _looks(intervals: Intervals, probes: Vector | None) -> Vector:
    """Return the numbers by which recording and replay are compared, as logarithms: iterations, time from token to token, prefill;
    and what an iteration of few and of many tokens takes, as far as intervals tell that apart.
    """
    tiny = 1e-9
    whole = [
        intervals.iterations.sum() / max(intervals.output_tokens.sum(), 1.0),
        intervals.gap_seconds.sum() / max(intervals.gap_counts.sum(), 1.0),
        intervals.prefill_seconds.sum() / max(intervals.prefill_counts.sum(), 1.0),
    ]
    apart = list[float]()
    if probes is not None:
        told = int(intervals.usable.sum()) > 1
        apart = list(probes @ _solved(*_equations(intervals))) if told else [whole[1]] * len(probes)
    return np.log(np.array(whole + apart) + tiny)


def _probes(rows: Vector, weights: Vector) -> Vector:
    """Return the content of an iteration with few and with many tokens, in the recorded mixture."""
    mixture = np.average(rows, axis=0, weights=weights)
    order = np.argsort(rows[:, 2])
    shares = np.cumsum(weights[order]) / weights.sum()
    outputs = np.interp(_INSIDE, shares, rows[order, 2])
    return np.array([[1.0, mixture[1] * output / mixture[2], output] for output in outputs])


def _check_apart(intervals: Intervals) -> None:
    """Raise ValueError if iterations were too similar, as of a full engine, to separate base cost and tokens."""
    good = intervals.usable
    outputs, weights = intervals.output_tokens[good] / intervals.iterations[good], intervals.gap_counts[good]
    most = outputs.max()
    if weights[outputs > _ALIKE * most].sum() > _MOSTLY * weights.sum():
        raise ValueError(f"nearly all its iterations have about {most:.0f} output tokens")


def _noise(intervals: Intervals, probes: Vector | None, seed: int) -> Vector:
    """Return by how much chance moves what the intervals tell apart; that of the totals is the scatter of the replays."""
    if probes is None:
        return np.zeros(3)
    rows, times, weights = _equations(intervals)
    randomly = np.random.default_rng(seed)
    found = []
    for _ in range(_RESAMPLES):
        chosen = randomly.integers(0, len(rows), len(rows))
        found.append(np.log(probes @ _solved(rows[chosen], times[chosen], weights[chosen]) + 1e-9))
    return np.concatenate([np.zeros(3), np.std(found, axis=0)])


def _equations(intervals: Intervals) -> tuple[Vector, Vector, Vector]:
    """Return what is in an iteration, how long it takes, and the weight, for each interval and for the prompts as a whole."""
    good = intervals.usable
    iterations = intervals.iterations[good]
    rows = np.column_stack(
        [np.ones(len(iterations)), intervals.prompt_tokens[good] / iterations, intervals.output_tokens[good] / iterations]
    )
    weights = intervals.gap_counts[good]
    times = intervals.gap_seconds[good] / np.maximum(weights, 1e-9)
    answered = intervals.prefill_counts.sum()
    if answered <= 0 or not len(rows):
        return rows, times, weights
    total = intervals.iterations.sum()
    each = intervals.prompt_tokens.sum() / max(min(intervals.first_tokens.sum(), total), 1.0)
    row = [1.0, each, 1.0 + intervals.gap_counts.sum() / total]
    prefill = max(intervals.prefill_seconds.sum() / answered, 1e-9)
    return np.vstack([rows, row]), np.append(times, prefill), np.append(weights, weights.sum() / 2)


def _solved(rows: Vector, times: Vector, weights: Vector) -> Vector:
    """Return non-negative costs that minimise relative errors, with less weight on large ones (Huber)."""
    scaled, ones = rows / times[:, None], np.ones(len(times))
    trust, found = ones, np.zeros(rows.shape[1])
    for _ in range(_ROUNDS):
        found = non_negative(scaled, ones, weights * trust)
        errors = np.abs(scaled @ found - 1)
        scale = 1.4826 * np.median(errors) + 1e-9
        trust = np.minimum(1.0, _HUBER * scale / np.maximum(errors, 1e-12))
    return found


def _busiest(intervals: Intervals) -> float:
    good = intervals.usable
    return float(np.quantile(intervals.output_tokens[good] / intervals.iterations[good], _INSIDE[1]))


def _cost(values: Vector) -> IterationCost:
    return IterationCost(*(float(value) for value in values))
