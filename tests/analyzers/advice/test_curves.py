"""Curves are those of the advice: it lies on them, and they are best where it says."""

from itertools import pairwise

import numpy as np
import pytest

from tachoscope_analyzers.advice.workers import Input, needed_workers
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, useful_ratio
from tachoscope_analyzers.job.advice_curves import enough_batch, loss_by_interval, seconds_by_batch, steps_with_workers
from tachoscope_analyzers.records.cores import Cores


def test_more_workers_never_make_the_step_longer_and_the_advised_number_is_enough() -> None:
    found = Input(step=0.3, rest=0.1, making=0.45, workers=0)
    steps = steps_with_workers(found, 12)

    assert steps[0] == pytest.approx(0.55)
    assert steps[2] == pytest.approx(0.225)
    assert all(after <= before for before, after in pairwise(steps))
    assert steps[needed_workers(found.making, found.rest)] == pytest.approx(found.rest)


def test_workers_bring_no_more_than_the_cores_allow() -> None:
    found = Input(step=0.3, rest=0.1, making=0.3, workers=1, computing=1.0, cores=Cores(used=1.8, idle=0.2, all=2))

    assert steps_with_workers(found, 16)[-1] == pytest.approx(0.27)


def test_the_best_interval_is_the_lowest_point_and_today_lies_on_the_curve() -> None:
    saving, between = SaveCost(blocking=20.0, restart=60.0, step=0.5), 10800.0
    intervals, lost = loss_by_interval(saving, between, today=7200.0)

    assert intervals[int(lost.argmin())] == pytest.approx(best_interval(saving, between), rel=1e-6)
    assert intervals[0] <= best_interval(saving, between) <= 7200 <= intervals[-1]
    assert np.interp(7200, intervals, lost) == pytest.approx(1 - useful_ratio(saving, 7200, between), abs=1e-3)


@pytest.mark.parametrize("blocking", [0.0, 1e-6, 1e5])
def test_free_saves_and_those_longer_than_the_time_between_failures_have_a_curve(blocking: float) -> None:
    intervals, lost = loss_by_interval(SaveCost(blocking), 3600.0)

    assert (np.diff(intervals) > 0).all()
    assert ((lost >= 0) & (lost <= 1)).all()


def test_a_larger_batch_brings_nothing_once_the_device_is_full() -> None:
    assert enough_batch(0.1, 0.06) == pytest.approx(2.5)
    assert seconds_by_batch(0.1, 0.06, [1, 2, 2.5, 5]) == pytest.approx([0.1, 0.05, 0.04, 0.04])
    assert enough_batch(0.1, 0.1) is None
