"""What saving costs: formulas against jobs that live through simulated failures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failure_traces import best_found, exponential, useful, walked, weibull
from tachoscope_analyzers.checkpoint_policy.cost_model import (
    SaveCost,
    best_interval,
    daly_interval,
    lost_at_failure,
    useful_ratio,
    young_interval,
)

DAY = 86_400.0
CASES = [
    pytest.param(SaveCost(30, 0, 300), DAY, id="a short save, a failure a day"),
    pytest.param(SaveCost(300, 0, 600), DAY, id="a long save"),
    pytest.param(SaveCost(600, 0, 600), 7200.0, id="a save that is not short against the time between failures"),
    pytest.param(SaveCost(5, 120, 300), DAY, id="asynchronous"),
    pytest.param(SaveCost(60, 60, 120), 21_600.0, id="asynchronous, blocking for half of it"),
]
savings = st.builds(SaveCost, st.floats(0.1, 600), st.floats(0, 600), st.floats(0, 1000))
means = st.floats(1000, 1e6)


@pytest.mark.parametrize("saving", [SaveCost(30, 0, 300), SaveCost(5, 120, 300), SaveCost(10, 700, 60)])
def test_the_fast_simulation_does_what_walking_through_each_life_does(saving: SaveCost) -> None:
    gaps = exponential(5000.0, 300)

    for interval in (200.0, 905.0, 4000.0):
        assert useful(gaps, saving, interval) == pytest.approx(walked(gaps, saving, interval) / gaps.sum())


@pytest.mark.parametrize(("saving", "between"), CASES)
def test_the_advised_interval_is_within_2_percent_of_the_best_found_by_search(saving: SaveCost, between: float) -> None:
    advised = best_interval(saving, between)

    found, _ = best_found(exponential(between, 200_000), saving, advised)

    assert advised == pytest.approx(found, rel=0.02)


@pytest.mark.bar
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("saving", "between"), CASES)
def test_so_it_is_on_other_traces_with_more_failures(saving: SaveCost, between: float, seed: int) -> None:
    advised = best_interval(saving, between)

    found, _ = best_found(exponential(between, 600_000, seed), saving, advised, tries=121)

    assert advised == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize(("saving", "between"), CASES)
def test_where_failures_come_in_bursts_what_is_lost_is_within_2_percent_of_the_least(saving: SaveCost, between: float) -> None:
    """The interval itself is then too short, by 2 to 13 % here: the optimum is so flat that this costs next to nothing."""
    gaps = weibull(between, 200_000)
    advised = best_interval(saving, between)

    _, least_lost = best_found(gaps, saving, advised)

    assert 1 - useful(gaps, saving, advised) <= 1.02 * (1 - least_lost)


@pytest.mark.parametrize(("saving", "between"), CASES)
def test_the_useful_share_is_what_the_simulation_keeps(saving: SaveCost, between: float) -> None:
    interval = 1.3 * best_interval(saving, between)

    assert 1 - useful_ratio(saving, interval, between) == pytest.approx(
        1 - useful(exponential(between, 400_000), saving, interval), rel=0.02
    )


def test_what_a_failure_undoes_is_what_the_simulation_had_done_and_lost() -> None:
    saving, between, interval = SaveCost(60, 120), 3000.0, 900.0
    uptimes = exponential(between, 400_000)
    done = np.floor(uptimes / interval) * 840 + np.minimum(uptimes % interval, 840)
    kept = np.maximum(np.floor((uptimes - 120) / interval), 0) * 840

    assert lost_at_failure(saving, interval, between) == pytest.approx(float((done - kept).mean()), rel=0.01)


@settings(deadline=None)
@given(savings, means, st.floats(0.3, 3.0))
def test_no_other_interval_that_is_possible_is_better(saving: SaveCost, between: float, factor: float) -> None:
    best = best_interval(saving, between)
    other = max(best * factor, saving.shortest)

    assert useful_ratio(saving, best, between) >= useful_ratio(saving, other, between) * (1 - 1e-9)


@settings(deadline=None)
@given(savings, means)
def test_restarting_and_writing_in_the_background_do_not_move_the_optimum_but_a_save_must_be_complete(
    saving: SaveCost, between: float
) -> None:
    alone = best_interval(SaveCost(saving.blocking), between)

    assert best_interval(saving, between) == max(alone, saving.blocking + saving.background)


@settings(deadline=None)
@given(savings, means, st.floats(1.0, 1e5))
def test_shares_are_shares_and_no_failure_undoes_more_than_was_done(saving: SaveCost, between: float, interval: float) -> None:
    assert 0 <= useful_ratio(saving, interval, between) < 1
    assert -1e-6 <= lost_at_failure(saving, interval, between) <= between * (1 + 1e-9)


def test_where_saves_are_short_half_an_interval_is_lost_and_young_and_daly_are_right() -> None:
    saving, between = SaveCost(1.0), 1e6

    best = best_interval(saving, between)

    assert best == pytest.approx(young_interval(1.0, between), rel=1e-3)
    assert best == pytest.approx(daly_interval(1.0, between), rel=1e-6)
    assert lost_at_failure(saving, best, between) == pytest.approx(best / 2, rel=1e-2)


def test_where_saves_are_long_young_is_too_short_and_daly_still_right() -> None:
    best = best_interval(SaveCost(600.0), 7200.0)

    assert young_interval(600.0, 7200.0) == pytest.approx(0.93 * best, rel=0.01)
    assert daly_interval(600.0, 7200.0) == pytest.approx(best, rel=1e-3)
    assert daly_interval(300.0, 100.0) == 400.0


def test_a_save_that_outlasts_the_time_between_failures_leaves_nothing_and_overflows_nowhere() -> None:
    saving = SaveCost(1e6, 0, 1e6)

    assert useful_ratio(saving, best_interval(saving, 100.0), 100.0) == 0.0
    assert useful_ratio(saving, 1000.0, 100.0) == 0.0, "shorter than a save: no work at all"
