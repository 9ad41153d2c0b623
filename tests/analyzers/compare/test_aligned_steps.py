"""Two runs on one axis: nothing is lost, nothing is made up."""

import numpy as np
import pytest

from tachoscope_analyzers.compare.aligned_steps import Axis, StepTimes, aligned_steps


def run(first: int, seconds: list[float]) -> StepTimes:
    return StepTimes(np.arange(first, first + len(seconds)), np.array(seconds))


def test_each_run_stands_where_its_steps_are() -> None:
    found = aligned_steps((run(1, [0.1] * 100), run(51, [0.2] * 100)), columns=30)
    before, now = (medians for _, medians, _ in found.runs)

    assert np.isnan(now[0])
    assert np.isnan(before[-1])
    assert set(before[~np.isnan(before)]) == {0.1}
    assert set(now[~np.isnan(now)]) == {0.2}


def test_by_share_runs_of_other_lengths_begin_and_end_together() -> None:
    found = aligned_steps((run(1, [0.1] * 1000), run(7, [0.2] * 50)), "share", columns=25)

    assert found.at[0] == pytest.approx(2, abs=0.5)
    assert found.at[-1] == pytest.approx(98, abs=0.5)
    assert not any(np.isnan(values).any() for quantiles in found.runs for values in quantiles)


@pytest.mark.parametrize("axis", ["step", "share"])
def test_quantiles_lie_within_the_steps_of_their_column(axis: Axis) -> None:
    seconds = np.random.default_rng(0).gamma(5, 0.02, 5000)
    ((low, middle, high),) = aligned_steps((StepTimes(np.arange(5000), seconds),), axis).runs

    assert len(low) == 120
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert low.min() >= seconds.min()
    assert high.max() <= seconds.max()


def test_a_run_of_one_step_is_one_column() -> None:
    found = aligned_steps((run(5, [0.3]),))

    assert [float(values[0]) for values in found.runs[0]] == pytest.approx([0.3] * 3)
    assert (len(found.at), found.steps) == (1, 1)


def test_without_steps_there_is_nothing() -> None:
    found = aligned_steps((run(1, []), run(1, [])))

    assert found.steps == 0
    assert np.isnan(found.runs[0][1]).all()
