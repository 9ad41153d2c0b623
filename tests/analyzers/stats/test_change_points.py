"""Planted truth in both directions: a lasting change is found to a few steps, and what only looks like one is not."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.change_points import change_points

LEVEL = 0.1


def noise(count: int, deviation: float = 0.03, seed: int = 0) -> Matrix:
    return LEVEL * np.maximum(np.random.default_rng(seed).normal(1, deviation, count), 0.2)


def with_spikes(seconds: Matrix, ratio: float = 0.02, seed: int = 1) -> Matrix:
    generator = np.random.default_rng(seed)
    return seconds * np.where(generator.random(len(seconds)) < ratio, generator.uniform(2, 20, len(seconds)), 1.0)


@pytest.mark.parametrize("count", [100, 1_000, 30_000])
@pytest.mark.parametrize("ratio", [1.15, 1.5, 1 / 1.15])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.bar), pytest.param(2, marks=pytest.mark.bar)])
def test_a_lasting_change_is_found_to_a_few_steps(count: int, ratio: float, seed: int) -> None:
    place = int(np.random.default_rng(seed).integers(count // 4, 3 * count // 4))
    seconds = noise(count, seed=seed)
    seconds[place:] *= ratio

    (found,) = change_points(with_spikes(seconds, seed=seed))

    assert abs(found - place) <= 5


@pytest.mark.parametrize("seed", range(5))
def test_a_shift_of_twelve_percent_is_enough(seed: int) -> None:
    seconds = noise(600, 0.04, seed)
    seconds[347:] *= 1.12

    assert [abs(found - 347) <= 5 for found in change_points(seconds)] == [True]


def test_a_shift_below_ten_percent_is_none() -> None:
    seconds = noise(600, 0.01)
    seconds[300:] *= 1.08

    assert change_points(seconds) == []


def numbers(count: int) -> Matrix:
    return np.arange(count)


LOOK_ALIKES: dict[str, Callable[[int, int], Matrix]] = {
    "noise": lambda count, seed: noise(count, 0.05, seed),
    "strong noise": lambda count, seed: LEVEL * np.exp(np.random.default_rng(seed).normal(0, 0.3, count)),
    "heavy tails": lambda count, seed: LEVEL * (1 + 0.03 * np.abs(np.random.default_rng(seed).standard_cauchy(count))),
    "spikes": lambda count, seed: with_spikes(noise(count, seed=seed), 0.05, seed),
    "periodic saves": lambda count, seed: noise(count, seed=seed) + 0.5 * (numbers(count) % 10 == 3),
    "rare saves": lambda count, seed: noise(count, seed=seed) + 3.0 * (numbers(count) % 50 == 7),
    "every other step": lambda count, seed: noise(count, seed=seed) + 0.1 * (numbers(count) % 2),
    "slow drift": lambda count, seed: noise(count, seed=seed) * np.linspace(1, 1.4, count),
    "steep drift": lambda count, seed: noise(count, seed=seed) * np.linspace(2, 1, count),
    "a burst": lambda count, seed: noise(count, seed=seed) * np.where((numbers(count) >= 50) & (numbers(count) < 62), 2, 1),
    "warm-up": lambda count, seed: noise(count, seed=seed) * np.where(numbers(count) < count // 11, 1.8, 1),
}


@pytest.mark.parametrize("kind", LOOK_ALIKES)
@pytest.mark.parametrize("count", [90, 700, 9_000])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.bar), pytest.param(2, marks=pytest.mark.bar)])
def test_what_only_looks_like_a_change_is_none(kind: str, count: int, seed: int) -> None:
    assert change_points(LOOK_ALIKES[kind](count, seed)) == []


def test_a_change_is_found_in_drift_and_among_saves() -> None:
    seconds = noise(1_000) * np.linspace(1, 1.1, 1_000)
    seconds[600:] *= 1.25
    seconds[::40] += 1.0

    assert [abs(found - 600) <= 5 for found in change_points(seconds)] == [True]


def test_a_slow_stretch_has_a_begin_and_an_end_however_long_the_run_is() -> None:
    seconds = noise(20_000)
    seconds[4_000:4_300] *= 1.2

    begin, end = change_points(seconds)

    assert abs(begin - 4_000) <= 5
    assert abs(end - 4_300) <= 5


def test_several_levels_are_told_apart() -> None:
    seconds = noise(500) * np.repeat([1.0, 1.3, 1.0, 2.0, 1.5], 100)

    assert [round(found / 100) for found in change_points(seconds)] == [1, 2, 3, 4]
    assert all(abs(found - 100 * round(found / 100)) <= 3 for found in change_points(seconds))


def test_steps_without_any_noise_are_no_trouble() -> None:
    assert change_points(np.full(200, LEVEL)) == []
    assert change_points(np.repeat([LEVEL, 2 * LEVEL], 60)) == [60]
    assert change_points(np.zeros(100)) == []


@pytest.mark.parametrize("count", [0, 1, 39])
def test_too_few_steps_have_no_change(count: int) -> None:
    assert change_points(np.linspace(1.0, 9.0, count)) == []


def test_a_million_steps_are_no_trouble() -> None:
    seconds = noise(1_000_000, 0.05)
    seconds[700_123:] *= 1.12

    (found,) = change_points(seconds)

    assert abs(found - 700_123) <= 50


@given(
    st.lists(st.floats(1e-4, 10.0), min_size=40, max_size=120),
    st.floats(1e-3, 1e3),
)
def test_the_unit_of_time_does_not_matter_and_places_are_in_order(values: list[float], factor: float) -> None:
    seconds = np.array(values)

    found = change_points(seconds)

    assert found == sorted(set(found))
    assert all(0 < place < len(seconds) for place in found)
    assert change_points(seconds * 2.0 ** round(np.log2(factor))) == found
