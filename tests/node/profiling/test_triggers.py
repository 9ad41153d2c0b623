"""When a job is profiled by itself: planted regressions and idle GPUs are noticed, and what only looks like one is not."""

from __future__ import annotations

import random

from tachoscope_node.profiling.automatic import LEAST_RECENT, LEAST_SECONDS, Automatic, Measured, idle, regression


def noisy(seconds: float, count: int = 32) -> list[float]:
    chance = random.Random(count)
    return [seconds * chance.uniform(0.95, 1.05) for _ in range(count)]


def test_steps_that_became_slower_are_a_regression_and_say_by_how_much() -> None:
    assert "1.50 times the usual 0.1 s" in regression([0.15] * 32, 0.1)
    assert regression(noisy(0.13), 0.1)


def test_noise_a_few_slow_steps_and_faster_steps_are_none() -> None:
    assert regression(noisy(0.1), 0.1) == ""
    assert regression([0.1] * 20 + [5.0] * 12, 0.1) == "", "a checkpoint, or an evaluation"
    assert regression(noisy(0.05), 0.1) == ""


def test_what_is_not_known_is_no_regression() -> None:
    assert regression([], 0.1) == ""
    assert regression([9.0] * (LEAST_RECENT - 1), 0.1) == ""
    assert regression([9.0] * 32, 0.0) == ""


def series(*shares: float, every: float = 60.0) -> list[tuple[float, float]]:
    return [(number * every, share) for number, share in enumerate(shares)]


def test_15_minutes_below_70_percent_are_idle() -> None:
    assert "at most 65%" in idle(series(*[0.65] * 17))
    assert idle(series(*[0.9] * 30, *[0.65] * 15))


def test_less_time_one_busy_minute_or_a_gap_is_not() -> None:
    assert idle(series(*[0.65] * 14)) == ""
    assert idle(series(*[0.9] * 30, *[0.65] * 14)) == ""
    assert idle(series(*[0.65] * 8, 0.7, *[0.65] * 8)) == ""
    gap = [*series(*[0.65] * 8), *((at + 600, share) for at, share in series(*[0.65] * 8))]
    assert idle(gap) == "", "nobody knows what it did meanwhile"
    assert idle([]) == ""


def minutes(automatic: Automatic, count: int, begin: int = 0) -> list[str]:
    return [why for minute in range(begin, begin + count) if (why := automatic.reason("job", minute * 60.0))]


def test_a_regression_is_said_once_in_six_hours() -> None:
    automatic = Automatic(lambda: {"job": Measured(recent=(0.2,) * 32, usual=0.1)})
    hours = int(LEAST_SECONDS // 60)

    assert len(minutes(automatic, hours)) == 1
    assert len(minutes(automatic, 1, begin=hours)) == 1
    assert automatic.reason("other", 0.0) == ""


def test_activity_is_the_mean_of_what_was_counted_since_the_last_look() -> None:
    total = [0.0, 0.0]

    def measured() -> dict[str, Measured]:
        total[0], total[1] = total[0] + 6, total[1] + 6 * share
        return {"job": Measured(activity=(total[0], total[1]))}

    share = 0.9
    automatic = Automatic(measured)
    assert minutes(automatic, 30) == []
    share = 0.5
    assert minutes(automatic, 14, begin=30) == []
    assert "at most 50%" in minutes(automatic, 3, begin=44)[0]


def test_a_job_that_does_no_steps_is_not_idle() -> None:
    """Its GPUs are looked at only while it does steps: the counts stand still."""
    automatic = Automatic(lambda: {"job": Measured(activity=(6.0, 0.6))})

    assert minutes(automatic, 60) == []
