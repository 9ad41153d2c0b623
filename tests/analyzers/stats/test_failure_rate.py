"""The mean time between failures and how sure it is."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.stats.failure_rate import failure_rate, poisson_at_most


@pytest.mark.parametrize(
    ("failures", "low", "high"),  # quantiles of chi-square: 2 life / chi2(0.95; 2 n + 2) and 2 life / chi2(0.05; 2 n)
    [(0, 5.991465, math.inf), (1, 9.487729, 0.102587), (3, 15.507313, 1.635383), (10, 33.924438, 10.850811)],
)
def test_the_limits_are_those_of_chi_square_tables(failures: int, low: float, high: float) -> None:
    rate = failure_rate(failures, 1000.0)

    assert rate.low_seconds == pytest.approx(2000 / low, rel=1e-5)
    assert rate.high_seconds == pytest.approx(math.inf if math.isinf(high) else 2000 / high, rel=1e-5)


def test_without_a_failure_there_is_a_bound_and_no_estimate() -> None:
    rate = failure_rate(0, 3000.0)

    assert rate.mean_seconds is None
    assert rate.cautious_seconds == rate.low_seconds == pytest.approx(1001.4, abs=0.1)


@settings(deadline=None)
@given(st.integers(1, 3000), st.floats(1.0, 1e8))
def test_the_estimate_lies_between_its_limits_and_more_failures_narrow_them(failures: int, life: float) -> None:
    rate, more = failure_rate(failures, life), failure_rate(failures * 4, life * 4)

    assert rate.mean_seconds is not None
    assert rate.low_seconds < rate.mean_seconds < rate.high_seconds
    assert more.high_seconds / more.low_seconds < rate.high_seconds / rate.low_seconds


@settings(deadline=None)
@given(st.floats(0.1, 5000.0))
def test_poisson_probabilities_sum_to_one_however_large_the_mean(mean: float) -> None:
    assert poisson_at_most(int(mean + 12 * math.sqrt(mean) + 20), mean) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("failures", "life"), [(1, 0.0), (-1, 10.0), (1, float("nan"))])
def test_a_life_without_length_has_no_rate(failures: int, life: float) -> None:
    with pytest.raises(ValueError, match="a rate needs a life longer than 0"):
        failure_rate(failures, life)
