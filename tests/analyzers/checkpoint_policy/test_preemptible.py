"""The policy for machines that live a day at most, against a job that is simulated on such machines."""

import numpy as np
import pytest

from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval
from tachoscope_analyzers.checkpoint_policy.preemptible import Preemption, expected, policy
from tachoscope_analyzers.stats.failure_rate import failure_rate

DAY = 86_400.0


def lived(saving: SaveCost, interval: float, between: float, preemption: Preemption, *, fits: bool, days: int) -> float:
    """Return the useful share of a life on machines that fail, are preempted and end: event after event."""
    random = np.random.default_rng(7)
    clock = kept = since = 0.0  # since: work that no complete checkpoint has
    machine_ends = preemption.life_seconds
    failure, notice = random.exponential(between), random.exponential(preemption.between_seconds)
    pending: list[tuple[float, float]] = []  # when a checkpoint is complete, and the work that it has
    next_save = clock + interval
    while clock < days * DAY:
        event = min(next_save, failure, notice, machine_ends)
        while pending and pending[0][0] <= event:
            _, work = pending.pop(0)
            kept, since = kept + work, since - work
        since += min(event, next_save - saving.blocking) - min(clock, next_save - saving.blocking)
        clock = event
        if event == next_save:
            pending.append((clock + saving.background, since - sum(work for _, work in pending)))
            next_save += interval
            continue
        if event == machine_ends or (event == notice and fits):
            kept, clock = kept + since, clock + saving.shortest
        since, pending, clock = 0.0, [], clock + saving.restart
        if event == failure:
            failure = clock + random.exponential(between)
        else:  # another machine
            notice, machine_ends = clock + random.exponential(preemption.between_seconds), clock + preemption.life_seconds
            failure = clock + random.exponential(between)
        next_save = clock + interval
    return kept / clock


@pytest.mark.parametrize("fits", [True, False])
@pytest.mark.parametrize("saving", [SaveCost(30, 0, 300), SaveCost(3, 40, 200)])
@pytest.mark.bar(but=("saving0-False", "saving1-True"))
def test_the_expected_loss_is_what_a_simulated_life_loses(saving: SaveCost, fits: bool) -> None:
    preemption = Preemption(DAY / 3, 30.0, DAY)

    _, interval, goodput = expected(saving, DAY / 2, preemption, fits=fits)

    assert 1 - goodput == pytest.approx(1 - lived(saving, interval, DAY / 2, preemption, fits=fits, days=4000), rel=0.05)


def test_a_save_that_fits_into_the_notice_leaves_the_interval_to_failures_without_notice() -> None:
    rate = failure_rate(2, 10 * DAY)

    fitting = policy(SaveCost(20, 0, 300), rate, notices=40, hosts=1, notice_seconds=30.0)
    too_long = policy(SaveCost(25, 0, 300), rate, notices=40, hosts=1, notice_seconds=30.0)

    assert fitting.interval_seconds == pytest.approx(best_interval(SaveCost(20), 5 * DAY))
    assert "save once more at the notice" in fitting.basis
    assert too_long.interval_seconds == pytest.approx(best_interval(SaveCost(25), 1 / (1 / (5 * DAY) + 4 / DAY)))
    assert "too short to rely on" in too_long.basis
    assert too_long.overhead > fitting.overhead


def test_a_longer_notice_makes_a_slow_save_fit() -> None:
    advice = [
        policy(SaveCost(80, 0, 300), failure_rate(2, 10 * DAY), notices=40, hosts=1, notice_seconds=seconds)
        for seconds in (30.0, 120.0)
    ]

    assert advice[0].overhead > advice[1].overhead
    assert "save once more" in advice[1].basis


def test_what_is_assumed_is_called_assumed_and_more_hosts_are_preempted_more_often() -> None:
    rate = failure_rate(2, 10 * DAY)
    one, many = (policy(SaveCost(60, 0, 300), rate, notices=0, hosts=hosts, notice_seconds=None) for hosts in (1, 16))

    assert "assumed: 15% a day for each host, 16 here" in many.basis
    assert "notice 30 s (assumed)" in many.basis
    assert many.overhead > one.overhead
    assert (many.interval_seconds or 0) < (one.interval_seconds or 0)
    seen = policy(SaveCost(60, 0, 300), rate, notices=5, hosts=1, notice_seconds=30.0)
    assert "as 5 were seen" in seen.basis
    assert "assumed" not in seen.basis


def test_no_interval_is_longer_than_a_machine_lives() -> None:
    rare = policy(SaveCost(5000, 0, 300), failure_rate(1, 4000 * DAY), notices=1, hosts=1, notice_seconds=1e5)

    assert rare.interval_seconds == DAY
