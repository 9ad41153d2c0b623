"""Tiers and durations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_slos import AVAILABILITY
from tachoscope_alerts.windows import FEASIBLE, TIERS, Timing, duration, seconds_of, tiers


def test_of_thirty_days_the_factors_are_those_of_the_workbook() -> None:
    assert [round(tier.factor(30 * 86400), 6) for tier in TIERS] == [14.4, 6, 3, 1]


def test_a_tier_spends_its_part_of_the_budget_within_its_long_window_whatever_the_period() -> None:
    for days in (7, 28, 30, 90):
        slo = replace(AVAILABILITY, period_days=days)
        for tier in TIERS:
            assert tier.threshold(slo) * tier.long_seconds == pytest.approx(tier.part * slo.budget * days * 86400)


def test_the_short_window_is_a_twelfth_of_the_long() -> None:
    assert {tier.long_seconds / tier.short_seconds for tier in TIERS} == {12}


@given(st.floats(0.5, 0.99999))
def test_every_tier_that_is_kept_can_fire_when_everything_is_bad(target: float) -> None:
    slo = replace(AVAILABILITY, target=target)

    assert all(tier.threshold(slo) <= FEASIBLE < 1 for tier in tiers(slo))
    assert all(tier.threshold(slo) > FEASIBLE for tier in TIERS if tier not in tiers(slo))


def test_an_objective_that_does_not_page_has_the_tickets_of_one_that_does() -> None:
    paging = tiers(AVAILABILITY)

    assert tiers(replace(AVAILABILITY, pages=False)) == [tier for tier in paging if tier.severity == "ticket"] != paging


@given(st.integers(1, 10**9))
def test_a_duration_means_the_time_that_it_was_made_from(milliseconds: int) -> None:
    assert round(seconds_of(duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "1.5h", "5m!", "-5m", "h1"])
def test_what_prometheus_would_not_take_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds_of(text)


def test_scaled_down_a_window_still_holds_two_evaluations() -> None:
    timing = Timing(interval=1, scrape=0.5, scale=0.01)

    assert [timing.scaled(seconds) for seconds in (3600, 300, 60)] == [36, 3, 2]
    assert timing.base == 2


@pytest.mark.parametrize("interval", [15, 30, 60, 300])
def test_a_wait_of_alertmanager_is_as_long_as_said_however_often_rules_are_evaluated(interval: float) -> None:
    assert [Timing(interval=interval).waited(seconds) for seconds in (30, 300)] == [30, 300]


def test_scaled_down_a_wait_still_lasts_two_evaluations() -> None:
    assert [Timing(interval=1, scale=0.001).waited(seconds) for seconds in (30, 86400)] == [2, 86.4]
