"""Steps that are not the same work, compared with each other by the work."""

import pytest

from tachoscope_analyzers.compare.per_work import per_work
from tachoscope_core.report.trend import Estimate, Trend


def course(seconds: float, *, error: float = 0.0, samples: float = 0.0, tokens: float = 0.0) -> Trend:
    step = Estimate(seconds=seconds, error=error)
    return Trend(device="cpu", step=step, states={}, samples_per_step=samples, tokens_per_step=tokens)


def test_twice_the_work_in_twice_the_time_is_the_same_pace() -> None:
    tokens, samples = per_work(course(0.4, tokens=8000, samples=16), course(0.2, tokens=4000, samples=8))

    assert (tokens.unit, tokens.baseline, tokens.now) == ("million tokens", pytest.approx(50), pytest.approx(50))
    assert (samples.baseline, samples.now) == (pytest.approx(25), pytest.approx(25))
    assert tokens.share == pytest.approx(0)


def test_what_is_not_known_of_one_run_is_not_held_against_the_other() -> None:
    tokens, samples = per_work(course(0.4, samples=16), course(0.2))

    assert (tokens.baseline, tokens.now, tokens.share) == (None, None, None)
    assert (samples.baseline, samples.now, samples.share) == (None, pytest.approx(25), None)


def test_the_interval_holds_the_noise_of_both() -> None:
    tokens, _ = per_work(course(0.22, error=0.002, tokens=1000), course(0.2, error=0.002, tokens=1000))

    assert tokens.share == pytest.approx(0.1)
    assert tokens.interval is not None
    low, high = tokens.interval
    assert low < 0.1 < high
    assert high - low == pytest.approx(2 * 1.96 * 1.1 * (0.01**2 + (0.002 / 0.22) ** 2) ** 0.5)
