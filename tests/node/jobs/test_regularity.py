"""Steps over the usual one, with planted steps."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_node.jobs.step_baseline import HALF_LIFE_SECONDS, LEAST_STEPS, Regularity


def after(count: int, seconds: float = 1.0) -> Regularity:
    regularity = Regularity()
    for _ in range(count):
        regularity.compared(0, seconds)
    return regularity


def test_nothing_is_compared_before_enough_steps_were_seen() -> None:
    regularity = Regularity()
    ratios = [regularity.compared(0, 1.0) for _ in range(LEAST_STEPS + 1)]

    assert ratios[:-1] == [None] * LEAST_STEPS
    assert ratios[-1] == pytest.approx(1.0, rel=0.005)


@given(st.floats(1e-3, 1e4), st.floats(0.1, 100.0))
def test_a_step_is_compared_with_the_median_to_half_a_per_cent(usual: float, slower: float) -> None:
    assert after(LEAST_STEPS, usual).compared(0, slower * usual) == pytest.approx(slower, rel=0.006)


def test_steps_that_compile_at_the_beginning_are_no_baseline() -> None:
    regularity = Regularity()
    for seconds in [60.0] * 5 + [1.0] * (LEAST_STEPS - 5):
        regularity.compared(0, seconds)

    assert regularity.compared(0, 1.0) == pytest.approx(1.0, rel=0.006)


def test_a_lasting_slowdown_counts_as_one_for_hours_and_becomes_the_usual_at_last() -> None:
    day, hour = 86_400, 3600
    regularity = after(day)
    slow = [regularity.compared(0, 1.5) or 0.0 for _ in range(round(8 * hour / 1.5))]
    still = [index * 1.5 for index, ratio in enumerate(slow) if ratio > 1.25]

    assert hour < max(still) < 4 * hour
    assert len(still) == pytest.approx(max(still) / 1.5, rel=0.01), "it does not flap"
    assert slow[-1] == pytest.approx(1.0, rel=0.006)


def test_an_attempt_is_compared_with_itself_only() -> None:
    regularity = after(100)

    assert regularity.compared(1, 3.0) is None
    assert regularity.compared(0, 3.0) is None, "what an earlier attempt left is of no use any more"
    for _ in range(LEAST_STEPS):
        regularity.compared(1, 3.0)
    assert regularity.compared(1, 3.0) == pytest.approx(1.0, rel=0.006)


def test_the_memory_has_a_bound_whatever_steps_take() -> None:
    regularity = Regularity()
    for power in range(-5000, 1000):  # seconds of which the sum stays below the half-life
        regularity.compared(0, math.exp(power / 200))

    assert 1000 < len(regularity.weights) < 2500


@given(st.lists(st.floats(0.0, 1e9), max_size=50), st.integers(0, 100))
def test_whatever_the_steps_are_it_survives_a_restart(odd: list[float], usual: int) -> None:
    regularity = after(usual)
    for seconds in odd:
        regularity.compared(0, seconds)
    again = msgspec.json.decode(msgspec.json.encode(regularity), type=Regularity)

    assert again == regularity
    assert regularity.baseline >= 0.0


def test_weights_are_forgotten() -> None:
    regularity = after(1000, 0.001)
    for _ in range(10 * LEAST_STEPS):
        regularity.compared(0, HALF_LIFE_SECONDS / 10)

    assert len(regularity.weights) == 1
