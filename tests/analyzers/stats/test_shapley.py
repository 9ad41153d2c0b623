"""Shapley values: against all orders played by hand, and what must hold for any game."""

from itertools import permutations

import numpy as np
import pytest

from tachoscope_analyzers.stats.shapley import Values, exact, sampled, shapley

LETTERS = "abcdefgh"


def game(seed: int, causes: str, steps: int = 3) -> dict[frozenset[str], Values]:
    draw = np.random.default_rng(seed)
    values = {frozenset[str](): draw.random(steps)}
    for mask in range(1, 2 ** len(causes)):
        values[frozenset(letter for place, letter in enumerate(causes) if mask >> place & 1)] = draw.random(steps)
    return values


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_values_are_what_a_cause_adds_on_average_over_all_orders(seed: int, count: int) -> None:
    causes = LETTERS[:count]
    values = game(seed, causes)
    orders = list(permutations(causes))
    expected = {cause: np.zeros(3) for cause in causes}
    for order in orders:
        for place, cause in enumerate(order):
            expected[cause] += values[frozenset(order[: place + 1])] - values[frozenset(order[:place])]

    found = exact(values.__getitem__, causes)

    for cause in causes:
        assert found.values[cause] == pytest.approx(expected[cause] / len(orders))
    assert sum(found.values.values()) == pytest.approx(found.full - found.none)
    assert set(found.standard_error.values()) == {0.0}


def test_of_seven_causes_and_more_orders_are_drawn_and_the_error_is_told() -> None:
    causes = LETTERS[:7]
    values = game(1, causes)
    truth = exact(values.__getitem__, causes)

    found = shapley(values.__getitem__, causes, permutations=400)

    assert sum(found.values.values()) == pytest.approx(truth.full - truth.none)
    for cause in causes:
        assert found.standard_error[cause] > 0
        assert abs(found.values[cause].mean() - truth.values[cause].mean()) < 4 * found.standard_error[cause]


def test_the_error_falls_with_the_number_of_orders() -> None:
    values = game(2, LETTERS[:7])
    few, many = (sampled(values.__getitem__, LETTERS[:7], permutations=count) for count in (50, 5000))

    assert sum(many.standard_error.values()) < 0.2 * sum(few.standard_error.values())


def test_causes_that_do_not_interact_get_what_they_add_and_no_error() -> None:
    worth = {letter: float(place) for place, letter in enumerate(LETTERS)}

    found = sampled(lambda coalition: np.array([sum(worth[one] for one in coalition)]), LETTERS, permutations=5)

    for letter in LETTERS:
        assert found.values[letter] == pytest.approx([worth[letter]])
        assert found.standard_error[letter] == pytest.approx(0.0, abs=1e-12)


def test_causes_that_mask_each_other_share_the_loss() -> None:
    found = exact(lambda coalition: np.array([8.0 if coalition else 0.0]), "ab")

    assert found.values["a"] == found.values["b"] == pytest.approx([4.0])


def test_one_order_tells_no_error() -> None:
    with pytest.raises(ValueError, match="standard error"):
        sampled(lambda coalition: np.zeros(1), LETTERS, permutations=1)
