import numpy as np
import pytest
from benchmarks.lab.isotonic import ANCHORS, fit, pool_adjacent_violators
from hypothesis import given
from hypothesis import strategies as st

POINTS = st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=20)
CASES = st.lists(st.tuples(st.floats(0, 0.99), st.booleans()), max_size=40)


def at(points: list[tuple[float, float]], score: float) -> float:
    return float(np.interp(score, [one for one, _ in points], [value for _, value in points]))


@given(POINTS)
def test_it_never_falls_keeps_the_mean_and_is_nearer_than_any_other_that_never_falls(points: list[tuple[float, float]]) -> None:
    values, weights = [value for value, _ in points], [weight for _, weight in points]
    fitted = pool_adjacent_violators(values, weights)

    def distance(curve: list[float]) -> float:
        return sum(weight * (one - value) ** 2 for one, value, weight in zip(curve, values, weights, strict=True))

    assert all(np.diff(fitted) >= -1e-9)
    assert np.average(fitted, weights=weights) == pytest.approx(np.average(values, weights=weights))
    others = [sorted(values), [float(np.average(values, weights=weights))] * len(values), list(np.maximum.accumulate(values))]
    assert all(distance(fitted) <= distance(other) + 1e-9 for other in others)


def test_what_already_rises_stays_as_it_is() -> None:
    assert pool_adjacent_violators([0.1, 0.2, 0.9], [1, 5, 1]) == [0.1, 0.2, 0.9]


def test_without_any_case_the_curve_is_the_prior() -> None:
    points = fit([], [], lambda score: score, 5.0)

    assert [at(points, score) for score in ANCHORS] == pytest.approx(ANCHORS)


def test_with_few_cases_it_leans_to_the_prior_and_with_many_to_what_was_counted() -> None:
    def learned(cases: int) -> float:
        return at(fit([0.9] * cases, [False] * cases, lambda score: score, 5.0), 0.9)

    assert learned(5) == pytest.approx(0.45), "half of it"
    assert 0.9 > learned(1) > learned(5) > learned(50)
    assert learned(5000) == pytest.approx(0.0, abs=0.002)


def test_a_planted_curve_is_found_again() -> None:
    random = np.random.default_rng(1)
    scores = random.uniform(0, 1, 4000)
    right = random.uniform(0, 1, 4000) < scores**2  # far too sure of itself

    points = fit(list(scores), list(right), lambda score: score, 5.0)

    assert np.mean([abs(at(points, score) - score**2) for score in ANCHORS]) < 0.03


@given(CASES)
def test_whatever_the_cases_the_curve_rises_from_score_to_score_within_zero_and_one(cases: list[tuple[float, bool]]) -> None:
    points = fit([score for score, _ in cases], [hit for _, hit in cases], lambda score: score, 5.0)

    assert [score for score, _ in points] == sorted({score for score, _ in points})
    assert all(np.diff([value for _, value in points]) >= -1e-9)
    assert all(-1e-9 <= value <= 1 + 1e-9 for _, value in points)
