"""Advice on how often to save: each case says what it is about, what it would cost, and how sure it is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.checkpoint_policy.advisor import advise
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, lost_at_failure, useful_ratio
from tachoscope_core.report.job_life import Advice, CheckpointCosts

DAY = 86_400.0
SYNC = CheckpointCosts(saves=40, interval_seconds=3600.0, blocking_seconds=30.0)
ASYNC = CheckpointCosts(saves=200, asynchronous=True, interval_seconds=600.0, blocking_seconds=2.0, background_seconds=40.0)


def cases(
    costs: CheckpointCosts, failures: int = 6, life: float = 6 * DAY, restart: float | None = 300.0, **more: Any
) -> dict[str, Advice]:
    advice = advise(costs, failures=failures, life_seconds=life, restart_seconds=restart, **more)
    return {entry.what.partition(" (")[0]: entry for entry in advice}


def test_synchronous_saves_are_held_against_the_optimum_and_against_the_best_that_asynchronous_ones_could_do() -> None:
    found = cases(SYNC)

    assert list(found) == ["now", "optimum", "asynchronous at best", "24 h preemptible"]
    assert found["now"].interval_seconds == 3600.0
    assert found["now"].overhead == pytest.approx(1 - useful_ratio(SaveCost(30, 0, 300), 3600, DAY))
    assert found["optimum"].interval_seconds == pytest.approx(best_interval(SaveCost(30), DAY))
    assert found["now"].overhead > found["optimum"].overhead > found["asynchronous at best"].overhead
    assert "not a forecast" in found["asynchronous at best"].basis


def test_asynchronous_saves_cost_what_blocks_and_lose_what_was_not_complete() -> None:
    best = cases(ASYNC)["asynchronous"]

    assert best.interval_seconds == pytest.approx(best_interval(SaveCost(2), DAY))
    assert best.lost_at_failure_seconds == pytest.approx(lost_at_failure(SaveCost(2, 40), best.interval_seconds or 0, DAY))
    assert "optimum" not in cases(ASYNC)


def test_asynchronous_saves_are_not_advised_faster_than_they_complete() -> None:
    slow = CheckpointCosts(saves=9, asynchronous=True, interval_seconds=5000.0, blocking_seconds=1.0, background_seconds=3000.0)

    best = cases(slow)["asynchronous"]

    assert best.interval_seconds == 3001.0
    assert "as short as a whole save allows" in best.basis


@pytest.mark.parametrize(("failures", "what"), [(0, "optimum (at least)"), (2, "optimum (rough)"), (9, "optimum")])
def test_the_name_of_the_case_says_how_sure_the_advice_is(failures: int, what: str) -> None:
    assert advise(SYNC, failures=failures, life_seconds=DAY, restart_seconds=None)[1].what == what


def test_no_interval_shorter_than_a_step_is_advised() -> None:
    quick = CheckpointCosts(saves=40, interval_seconds=10.0, blocking_seconds=0.001)

    found = cases(quick, life=60.0, restart=1.0, shortest_seconds=2.0)

    assert {entry.interval_seconds for what, entry in found.items() if what != "now"} == {2.0}
    assert "It is one step" in found["optimum"].basis


@pytest.mark.parametrize(
    ("failures", "said"), [(1, "only one failure: rough"), (4, "only 4 failures: rough"), (0, "a bound and no estimate")]
)
def test_advice_from_few_failures_says_so_and_between_which_intervals_the_optimum_lies(failures: int, said: str) -> None:
    basis = cases(SYNC, failures=failures)["optimum"].basis

    assert said in basis
    assert ("or longer" if failures == 0 else "lies between") in basis


def test_many_failures_are_not_called_few() -> None:
    assert "rough" not in cases(SYNC, failures=30)["optimum"].basis


def test_without_a_failure_the_interval_is_the_least_that_the_life_so_far_allows() -> None:
    best = cases(SYNC, failures=0)["optimum"]

    assert best.interval_seconds == pytest.approx(best_interval(SaveCost(30), 6 * DAY / 2.9957), rel=1e-4)


def test_young_is_called_too_coarse_only_where_a_save_is_not_short_against_the_time_between_failures() -> None:
    long = CheckpointCosts(saves=4, interval_seconds=3600.0, blocking_seconds=600.0)

    assert "off: a save is not short" in cases(long, failures=12, life=DAY)["optimum"].basis
    assert "not short" not in cases(SYNC)["optimum"].basis


def test_a_restart_that_was_not_measured_is_not_taken_for_free_in_silence() -> None:
    assert "restarting was not measured: not counted" in cases(SYNC, restart=None)["now"].basis
    only_read = CheckpointCosts(saves=40, interval_seconds=3600.0, blocking_seconds=30.0, restore_seconds=120.0)
    assert "only reading the checkpoint is counted" in cases(only_read, restart=None)["24 h preemptible"].basis
    assert cases(only_read, restart=None)["now"].overhead > cases(SYNC, restart=None)["now"].overhead


def test_storage_that_became_half_as_fast_lengthens_the_interval_by_the_root_of_two_and_says_what_that_risks() -> None:
    slow = CheckpointCosts(saves=40, interval_seconds=2200.0, blocking_seconds=30.0, slowdown=2.0)

    advice = cases(slow)["storage 2.0 times slower"]

    assert advice.interval_seconds == pytest.approx(best_interval(SaveCost(40.0), DAY))
    assert advice.interval_seconds == pytest.approx(2**0.5 * best_interval(SaveCost(20.0), DAY), rel=0.01)
    more = lost_at_failure(SaveCost(40), advice.interval_seconds or 0, DAY) - lost_at_failure(
        SaveCost(20), best_interval(SaveCost(20), DAY), DAY
    )
    assert more / 60 == pytest.approx(6.4, abs=0.05)
    assert "undoes 6.4 min more than before, 6.4 min a day" in advice.basis


def test_slow_storage_under_asynchronous_saves_leaves_the_interval_and_adds_only_the_longer_background() -> None:
    slow = CheckpointCosts(
        saves=40, asynchronous=True, interval_seconds=600.0, blocking_seconds=2.0, background_seconds=40.0, slowdown=3.0
    )

    advice = cases(slow)["storage 3.0 times slower"]

    assert advice.interval_seconds == pytest.approx(best_interval(SaveCost(2), DAY))
    assert "can stay" in advice.basis
    assert "40 s more than before" in advice.basis, "20 s in the first quarter, 60 s in the last"


@pytest.mark.parametrize("slowdown", [None, 1.0, 1.19])
def test_storage_that_is_as_fast_as_ever_is_not_mentioned(slowdown: float | None) -> None:
    steady = CheckpointCosts(saves=40, interval_seconds=600.0, blocking_seconds=2.0, slowdown=slowdown)

    assert not [what for what in cases(steady) if what.startswith("storage")]


def test_a_job_that_never_saved_loses_all_it_did_and_gets_no_optimum_from_a_cost_that_nobody_measured() -> None:
    (now,) = cases(CheckpointCosts(saves=0), failures=1, life=7200.0).values()

    assert now.interval_seconds is None
    assert now.lost_at_failure_seconds == 3600.0
    assert now.overhead == 0.5


def test_one_save_has_a_cost_but_no_interval_yet() -> None:
    found = cases(CheckpointCosts(saves=1, blocking_seconds=30.0))

    assert found["now"].interval_seconds is None
    assert found["optimum"].interval_seconds == pytest.approx(best_interval(SaveCost(30), DAY))


def test_a_life_of_no_length_gets_no_advice() -> None:
    assert cases(SYNC, failures=0, life=0.0) == {}


@settings(deadline=None)
@given(
    st.integers(0, 50),
    st.floats(60, 1e7),
    st.builds(
        CheckpointCosts,
        saves=st.just(20),
        asynchronous=st.booleans(),
        interval_seconds=st.floats(0.1, 1e6),
        blocking_seconds=st.floats(0.001, 5000),
        background_seconds=st.floats(0, 5000),
        slowdown=st.none() | st.floats(0.1, 50),
    ),
)
def test_whatever_was_measured_every_case_is_a_share_and_the_advised_one_is_no_worse_than_now(
    failures: int, life: float, costs: CheckpointCosts
) -> None:
    found = cases(costs, failures, life)

    for advice in found.values():
        assert 0 <= advice.overhead <= 1
        assert advice.interval_seconds is not None
        assert advice.interval_seconds > 0
    best = found["asynchronous" if costs.asynchronous else "optimum"]
    possible = costs.blocking_seconds + (costs.background_seconds if costs.asynchronous else 0.0)
    if costs.interval_seconds is not None and costs.interval_seconds >= possible:
        assert best.overhead <= found["now"].overhead + 1e-9
