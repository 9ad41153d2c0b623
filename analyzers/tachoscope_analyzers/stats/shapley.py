"""Shapley values: what each cause is to blame for of a loss that several have together, so that the parts sum to it.

The value of a cause is what it adds to a coalition of others, averaged over all orders in which they could have come:
phi_i = sum over S without i of |S|! (n - |S| - 1)! / n! (v(S + i) - v(S)), https://en.wikipedia.org/wiki/Shapley_value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Game = Callable[[frozenset[str]], Values]
"""What comes of a coalition of causes: seconds of each step, shape (K,)."""

MOST_EXACT = 6
"""Causes up to which all coalitions are played: 64 of them."""
PERMUTATIONS = 200


@dataclass(frozen=True, slots=True)
class Shapley:
    """Seconds by cause.

    Attributes:
        values: by cause, shape (K,); they sum to `full` - `none`. standard_error: of the mean of each; 0 where it is exact.
        none, full: the game of no cause and of all, shape (K,).
        coalitions: mean value of those that were played.
    """

    values: dict[str, Values]
    standard_error: dict[str, float]
    none: Values
    full: Values
    coalitions: dict[frozenset[str], float]


def shapley(game: Game, causes: Sequence[str], *, permutations: int = PERMUTATIONS, seed: int = 0) -> Shapley:
    """Return the Shapley values, exactly for up to `MOST_EXACT` causes, else from random permutations."""
    return exact(game, causes) if len(causes) <= MOST_EXACT else sampled(game, causes, permutations=permutations, seed=seed)


def exact(game: Game, causes: Sequence[str]) -> Shapley:
    """Return the Shapley values from all 2^n coalitions."""
    count = len(causes)
    none = game(frozenset())
    means = {frozenset[str](): float(none.mean())}
    values = {cause: np.zeros_like(none) for cause in causes}
    full = none
    for size in range(count + 1):
        for members in combinations(causes, size):
            coalition = frozenset(members)
            value = game(coalition) if members else none
            means[coalition] = float(value.mean())
            full = value
            # Each coalition stands once behind its members, and once before all others.
            joined = factorial(size - 1) * factorial(count - size) / factorial(count) if size else 0.0
            left = factorial(size) * factorial(count - size - 1) / factorial(count) if size < count else 0.0
            for cause in causes:
                values[cause] = values[cause] + (joined * value if cause in coalition else -left * value)
    return Shapley(values, dict.fromkeys(causes, 0.0), none, full, means)


def sampled(game: Game, causes: Sequence[str], *, permutations: int = PERMUTATIONS, seed: int = 0) -> Shapley:
    """Return estimates from random permutations, each with its reverse, and the standard error of their mean.

    Raises:
        ValueError: fewer than two permutations are asked for: their error could not be told.
    """
    if permutations < 2:
        raise ValueError(f"{permutations} permutations give no standard error")
    played: dict[frozenset[str], Values] = {}

    def play(coalition: frozenset[str]) -> Values:
        if coalition not in played:
            played[coalition] = game(coalition)
        return played[coalition]

    none, full = play(frozenset()), play(frozenset(causes))
    generator = np.random.default_rng(seed)
    sums = {cause: np.zeros_like(none) for cause in causes}
    means: dict[str, list[float]] = {cause: [] for cause in causes}
    for _ in range(permutations):
        order = [causes[index] for index in generator.permutation(len(causes))]
        added = _added(play, order), _added(play, order[::-1])
        for cause in causes:
            pair = (added[0][cause] + added[1][cause]) / 2
            sums[cause] = sums[cause] + pair
            means[cause].append(float(pair.mean()))
    return Shapley(
        {cause: total / permutations for cause, total in sums.items()},
        {cause: float(np.std(ones, ddof=1) / np.sqrt(permutations)) for cause, ones in means.items()},
        none,
        full,
        {coalition: float(value.mean()) for coalition, value in played.items()},
    )


def _added(play: Game, order: Sequence[str]) -> dict[str, Values]:
    """Return what each cause adds to the previous ones."""
    added: dict[str, Values] = {}
    before, there = play(frozenset()), frozenset[str]()
    for cause in order:
        there = there | {cause}
        now = play(there)
        added[cause], before = now - before, now
    return added
