"""What part of the time outside of all phases was a pause, by samples: also by those of a job that writes what it likes."""

import pytest

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_core.jobs.pause_rule import LEAST_SAMPLES, outside_samples, paused_ratio


def test_samples_that_belong_to_no_phase_count_wherever_the_clock_was() -> None:
    activity = {"other": {"other sleep": 6, "other cpu": 2, "data_wait sleep": 9}, "loss": {"other disk": 1, "loss cpu": 5}}

    assert outside_samples(activity) == (7, 9)


@pytest.mark.parametrize("counts", [{"other sleep": -5}, {"": 7, "other": 3}, {"other sleep": -5, "other cpu": 4}])
def test_foreign_samples_never_make_a_ratio_outside_of_0_to_1(counts: dict[str, int]) -> None:
    assert 0.0 <= paused_ratio(*outside_samples({"other": counts})) <= 1.0


def test_of_too_few_samples_nothing_is_concluded() -> None:
    assert paused_ratio(LEAST_SAMPLES - 1, LEAST_SAMPLES - 1) == 0.0
    assert paused_ratio(LEAST_SAMPLES, 2 * LEAST_SAMPLES) == 0.5
    assert threshold("minimum_samples") == LEAST_SAMPLES, "one number for the agent and the reports"
