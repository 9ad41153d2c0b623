"""Quantiles of numbers that come some at a time are those of all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.stats.distribution import Distribution

PARTS = [0.0, 0.3, 0.5, 0.95, 1.0]
numbers = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=200)


def made(values: list[float], most: int, pieces: int) -> Distribution:
    found = Distribution(most)
    for piece in np.array_split(values, pieces):
        found.add(piece)
    return found


@given(numbers, st.integers(1, 9), st.integers(200, 1000))
def test_a_few_numbers_are_told_exactly(values: list[float], pieces: int, most: int) -> None:
    found = made(values, most, pieces)

    assert found.count == len(values)
    assert found.quantiles(PARTS) == pytest.approx(np.quantile(values, PARTS), rel=1e-12)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12)


@given(numbers, st.integers(1, 9))
def test_of_many_numbers_quantiles_are_right_to_the_fifth_digit_and_do_not_depend_on_their_order(
    values: list[float], pieces: int
) -> None:
    found, other = made(values, 2, pieces), made(values[::-1], 2, 1)

    assert found.quantiles(PARTS) == other.quantiles(PARTS)
    assert found.quantiles(PARTS) == pytest.approx(np.quantile(values, PARTS), rel=2e-5, abs=1e-300)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-12)


@pytest.mark.parametrize("most", [2, 1000])
def test_numbers_that_are_taken_out_again_do_not_count(most: int) -> None:
    found = made([1.0, 2.0, 2.0, 3.0], most, 1)
    found.add([2.0, 5.0, 7.0])
    found.add([7.0, 2.0, 5.0], -1)

    assert (found.count, found.mean) == (4, 2.0)
    assert found.quantiles([0.5, 1.0]) == pytest.approx([2.0, 3.0], rel=2e-5)


def test_without_numbers_all_is_zero() -> None:
    found = Distribution()

    assert (found.count, found.mean, found.quantiles([0.5])) == (0, 0.0, [0.0])


def test_what_rounding_makes_less_than_zero_is_zero() -> None:
    found = made([-1e-12, -0.0, 0.0, 1.0], 1000, 1)

    assert found.quantiles([0.0, 0.5, 1.0]) == [0.0, 0.0, 1.0]
