"""Sums of events over windows: halves make the whole, and what was not measured is not a number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slo_making import BEGIN, LATENCY, slo
from tachoscope_alerts.measure.evaluator import Events
from tachoscope_alerts.measure.events import Ask, EventSums, Measured, Window, add

numbers = st.one_of(st.just(float("nan")), st.floats(0, 1e6))


def events(rows: list[tuple[float, float]], first: int = 1) -> Events:
    times = np.array([round((BEGIN + 30 * (first + number)) * 1000) for number in range(len(rows))], dtype=np.int64)
    bad, total = (np.array([row[side] for row in rows], dtype=np.float64) for side in (0, 1))
    return Events(times, {("chat",): bad}, {("chat",): total})


def measured(*parts: Events, windows: tuple[Window, ...]) -> list[EventSums]:
    found: Measured = {}
    for part in parts:
        add(part, Ask(slo(LATENCY), windows), found)
    return found["chat",]


@given(rows=st.lists(st.tuples(numbers, numbers), min_size=2, max_size=60), data=st.data())
def test_two_halves_are_the_whole_as_stretches_and_as_windows(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(rows) - 1))
    middle, end = BEGIN + 30 * cut, BEGIN + 30 * len(rows)
    windows = (Window(BEGIN, end), Window(BEGIN, middle), Window(middle, end))

    whole, first, second = measured(events(rows), windows=windows)
    in_parts = measured(events(rows[:cut]), events(rows[cut:], cut + 1), windows=windows)

    assert (first + second).evaluations == whole.evaluations == sum(total == total for _, total in rows)
    for one, other in ((first + second, whole), (in_parts[0], whole), (in_parts[1], first), (in_parts[2], second)):
        assert (one.bad, one.total) == pytest.approx((other.bad, other.total), rel=1e-9)


def test_windows_that_follow_each_other_share_no_evaluation() -> None:
    one = events([(1.0, 1.0)] * 4)
    first, second = measured(one, windows=(Window(BEGIN, BEGIN + 60), Window(BEGIN + 60, BEGIN + 120)))
    assert (first.evaluations, second.evaluations) == (2, 2)


def test_without_events_there_is_no_ratio() -> None:
    assert EventSums().error_ratio is None
    assert EventSums(bad=0.0, total=0.0, evaluations=9).error_ratio is None
    assert EventSums(bad=float("nan"), total=1.0).error_ratio is None
    assert EventSums(bad=1.0, total=4.0).error_ratio == 0.25


def test_a_busy_hour_weighs_more_than_a_quiet_one() -> None:
    """Trap 4: 10 % of 100 a second and none of 1 a second are 9.9 %, not 5 %."""
    rows = [(10.0, 100.0)] * 10 + [(0.0, 1.0)] * 10
    (whole,) = measured(events(rows), windows=(Window(BEGIN, BEGIN + 600),))
    assert whole.error_ratio == pytest.approx(10 / 101)


def test_one_evaluation_without_events_poisons_nothing() -> None:
    """Trap 5."""
    (whole,) = measured(events([(1.0, 10.0), (float("nan"), float("nan")), (0.0, 10.0)]), windows=(Window(BEGIN, BEGIN + 90),))
    assert (whole.error_ratio, whole.evaluations) == (0.05, 2)


def test_bad_events_of_a_label_that_the_total_lacks_are_kept() -> None:
    times = np.array([round((BEGIN + 30) * 1000)], dtype=np.int64)
    found: Measured = {}
    add(
        Events(times, {("s-1",): np.array([2.0])}, {("",): np.array([5.0])}), Ask(slo(LATENCY), (Window(BEGIN, BEGIN + 30),)), found
    )
    assert found == {("s-1",): [EventSums(bad=2.0)], ("",): [EventSums(total=5.0, evaluations=1)]}
