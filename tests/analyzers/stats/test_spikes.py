"""When a loss comes: steadily, every so many steps, or at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.stats import spikes

STEPS = 200
NUMBERS = np.arange(3, 3 + STEPS, dtype=np.int64)


@given(period=st.integers(2, 40), size=st.floats(1e-3, 10), phase=st.integers(0, 10))
def test_a_fixed_period_is_found_whatever_its_length(period: int, size: float, phase: int) -> None:
    seconds = np.where(NUMBERS % period == phase % period, size, 0.0)

    found = spikes.rhythm(seconds, NUMBERS)

    assert (found.kind, found.period) == ("periodic", period) if period > 2 else found.kind in {"periodic", "steady"}


def test_a_period_is_found_beside_small_losses_in_every_step_and_with_one_spike_missing() -> None:
    seconds = np.random.default_rng(0).uniform(0, 0.002, STEPS) + np.where(NUMBERS % 10 == 0, 0.1, 0.0)
    seconds[NUMBERS == 100] = 0.0

    found = spikes.rhythm(seconds, NUMBERS)

    assert (found.kind, found.period) == ("periodic", 10)
    assert spikes.evidence(found)[0].signal == "it comes every 10 steps"


@pytest.mark.parametrize("seed", range(20))
def test_spikes_at_random_have_no_period(seed: int) -> None:
    random = np.random.default_rng(seed)
    seconds = np.where(random.random(STEPS) < 0.1, random.uniform(0.05, 0.15, STEPS), 0.0)

    found = spikes.rhythm(seconds, NUMBERS)

    assert found.kind == "irregular"
    assert spikes.evidence(found)[0].signal == "it comes at random"


@pytest.mark.parametrize("seconds", [np.full(STEPS, 0.01), np.random.default_rng(1).uniform(0.01, 0.02, STEPS)])
def test_a_loss_in_every_step_is_steady_and_nothing_is_said_of_it(seconds: np.ndarray) -> None:
    found = spikes.rhythm(seconds, NUMBERS)

    assert found.kind == "steady"
    assert spikes.evidence(found) == []


def test_two_spikes_are_too_few_to_speak_of_a_period() -> None:
    found = spikes.rhythm(np.where(np.isin(NUMBERS, (50, 100)), 1.0, 0.0), NUMBERS)

    assert (found.kind, found.spikes) == ("rare", 2)


def test_no_loss_has_no_spikes() -> None:
    assert spikes.rhythm(np.zeros(STEPS), NUMBERS).spikes == 0
    assert spikes.single_rank_ratio(np.zeros((STEPS, 2))) == 0.0


def test_a_spike_that_spills_into_the_next_step_is_one() -> None:
    found = spikes.rhythm(np.where(NUMBERS % 10 < 2, 0.1, 0.0), NUMBERS)

    assert (found.kind, found.period, found.spikes) == ("periodic", 10, 20)


@pytest.mark.parametrize(("shift", "alone"), [(0, 0.0), (5, 1.0)])
def test_ranks_that_pause_at_the_same_steps_are_told_from_those_that_take_turns(shift: int, alone: float) -> None:
    seconds = np.stack([np.where((NUMBERS + rank * shift) % 10 == 0, 0.1, 0.0) for rank in range(2)], axis=1)

    assert spikes.single_rank_ratio(seconds) == alone
