"""The time of a page, and the points in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grafana_preview.times import at_least, moment, span, words

NOW = 1_700_000_000.0


def test_times_are_written_as_in_grafana() -> None:
    assert moment("now", NOW) == NOW
    assert moment("now-6h", NOW) == NOW - 21_600
    assert moment("now-30d", NOW) == NOW - 30 * 86_400
    assert moment("1700000000500", NOW) == NOW + 0.5


@pytest.mark.parametrize("words", ["", "now-", "now-6", "yesterday", "now-1h; drop", "-5", "1e3"])
def test_what_is_no_time_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        moment(words, NOW)


def test_points_are_as_far_apart_as_in_grafana() -> None:
    steps = {
        (hours, width): span(NOW - hours * 3600, NOW, width).step for hours, width in ((1, 780), (6, 780), (24, 780), (720, 780))
    }
    assert steps == {(1, 780): 15.0, (6, 780): 30.0, (24, 780): 120.0, (720, 780): 3600.0}


@given(st.floats(1.0, 5 * 365 * 86_400.0), st.integers(-5, 10**6))
def test_no_series_has_more_points_than_a_prometheus_gives_and_rates_have_two_samples(seconds: float, points: int) -> None:
    found = span(NOW - seconds, NOW, points)

    assert len(found.times()) <= 11_000
    assert found.rate_seconds >= 60.0
    assert found.rate_seconds > found.step
    assert all(time % found.step == 0 for time in found.times()[:3])
    assert found.times()[-1] <= NOW < found.times()[-1] + found.step


def test_a_range_that_ends_before_it_starts_or_is_endless_is_refused() -> None:
    for start, end in ((NOW, NOW), (NOW, NOW - 1.0), (0.0, NOW)):
        with pytest.raises(ValueError, match="has to end after it starts"):
            span(start, end, 100)


def test_lengths_of_time_are_written_as_promql_reads_them() -> None:
    assert (words(60.0), words(604_800.0), words(0.25)) == ("60s", "604800s", "250ms")


def test_a_panel_may_ask_for_longer_steps_and_never_for_shorter_ones() -> None:
    fine, coarse = span(0.0, 3600.0, 800), span(0.0, 30 * 86_400.0, 800)

    assert (fine.step, at_least(fine, "1m").step, at_least(fine, "1m").rate_seconds) == (15.0, 60.0, 75.0)
    assert at_least(coarse, "1m") == coarse
    assert at_least(fine, "") == fine
