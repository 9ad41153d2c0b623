"""How often to save: the advised intervals are the model's best, and what is assumed is called assumed."""

import pytest

from tachoscope_analyzers.advice import interval
from tachoscope_analyzers.advice.interval import assumed_between_failures, of_life
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, useful_ratio
from tachoscope_analyzers.life.ledger import Waterfall
from tachoscope_analyzers.life.losses import checkpoint_stall
from tachoscope_core.report.job_life import Advice, CheckpointCosts

SAVING = SaveCost(blocking=0.6, step=0.1)


def test_the_words_carry_the_present_cost_and_the_best_for_assumed_failures() -> None:
    assert interval.of_attempt(SAVING, 1.62, 0.38, "resnet", failed=False).text == (
        "training stands still for 600 ms every 1.62 s, 38 % of the time. Best, with the loss by saves and work done again, for a "
        "failure every 3 h: 1.9 min, 1.1 %; every 24 h: 5.4 min, 0.37 %; every 7 d: 14 min, 0.14 % (rates assumed). Or save in the "
        "background"
    )


def test_saves_that_are_in_the_background_already_are_not_sent_there() -> None:
    saving = SaveCost(blocking=0.6, background=2.0, step=0.1)

    assert interval.of_attempt(saving, 1.62, 0.38, "resnet", failed=False).text.endswith("(rates assumed)")


@pytest.mark.parametrize("between", assumed_between_failures())
def test_no_other_interval_loses_less_than_the_advised(between: float) -> None:
    best = best_interval(SAVING, between)

    for other in (best / 2, 0.9 * best, 1.1 * best, 2 * best):
        assert useful_ratio(SAVING, other, between) < useful_ratio(SAVING, best, between)


def test_a_job_that_failed_before_is_told_where_its_own_rate_is_weighed() -> None:
    words = interval.of_attempt(SAVING, 1.62, 0.38, "resnet", failed=True).text

    assert "tachoscope goodput resnet" in words
    assert "assumed" not in words
    assert len(words) <= 300


def case(what: str, seconds: float | None, overhead: float) -> Advice:
    return Advice(what=what, interval_seconds=seconds, overhead=overhead, lost_at_failure_seconds=1.0, basis="")


def test_over_a_life_the_jobs_own_failures_decide() -> None:
    words = of_life([case("now", 60.0, 0.12), case("optimum (rough)", 600.0, 0.02), case("asynchronous at best", 90.0, 0.01)])

    assert words == (
        "save every 10 min, not every 60 s: 12 % of the time is lost to saves and work done again now, 2 % then (rough, few "
        "failures were seen); in the background at best 1 %"
    )


def test_an_interval_that_is_right_is_left_and_the_save_made_cheaper() -> None:
    assert of_life([case("now", 60.0, 0.121), case("optimum", 70.0, 0.12)]) == (
        "the interval of 60 s is right (12 % of the time is lost to saves and work done again): make the save itself cheaper"
    )


@pytest.mark.parametrize("known", [[], [case("now", None, 0.5), case("optimum", 60.0, 0.1)], [case("now", 60.0, 0.1)]])
def test_without_an_interval_or_its_optimum_there_is_no_advice(known: list[Advice]) -> None:
    assert of_life(known) == ""


def test_the_finding_over_a_life_carries_it() -> None:
    total = Waterfall({"checkpoint": 120.0}, 1000.0, 0.0)
    costs = CheckpointCosts(saves=20, interval_seconds=60.0, blocking_seconds=6.0)

    loss = checkpoint_stall(costs, total, [case("now", 60.0, 0.12), case("optimum", 600.0, 0.02)])

    assert loss.action.startswith("save every 10 min, not every 60 s")
    assert checkpoint_stall(costs, total, []).action == ""
