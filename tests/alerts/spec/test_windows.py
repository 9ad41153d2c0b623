"""Tiers and durations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_slos import AVAILABILITY
from tachoscope_alerts.spec.burn_rate_windows import DAY, FEASIBLE, LEAST_PAGING_BURN_RATE, Timing, duration, seconds_of, tiers
from tachoscope_alerts.spec.slo import Slo
from trying import each

PERIODS = (1, 3, 7, 28, 30, 90)
TARGETS = (0.9, 0.95, 0.99, 0.999, 0.9999)


def of(days: float, target: float) -> Slo:
    return replace(AVAILABILITY, period_days=days, target=target)


def test_of_thirty_days_the_windows_and_burn_rates_are_those_of_the_workbook() -> None:
    found = [(duration(tier.long_seconds), round(tier.burn_rate, 6), tier.severity) for tier in tiers(of(30, 0.999))]

    assert found == [("1h", 14.4, "page"), ("6h", 6, "page"), ("1d", 3, "ticket"), ("3d", 1, "ticket")]


@each("days", PERIODS)
@each("target", TARGETS)
def test_half_the_allowed_errors_never_alert_and_twice_as_many_always_do(days: float, target: float) -> None:
    slo = of(days, target)

    assert all(tier.threshold(slo) > 0.5 * slo.budget for tier in tiers(slo))
    assert any(tier.threshold(slo) < 2 * slo.budget for tier in tiers(slo))
    assert all(tier.burn_rate >= LEAST_PAGING_BURN_RATE for tier in tiers(slo) if tier.severity == "page")


@each("days", PERIODS)
@each("target", TARGETS)
def test_a_page_comes_before_an_eighth_of_the_budget_is_spent_and_a_ticket_before_a_sixth(days: float, target: float) -> None:
    slo = of(days, target)

    for severity, most in (("page", 1 / 8), ("ticket", 1 / 6)):
        assert min(tier.budget_part(days * DAY) for tier in tiers(slo) if tier.severity == severity) < most


@given(st.floats(1, 366), st.floats(0.5, 0.99999))
def test_a_longer_window_never_needs_a_higher_burn_rate(days: float, target: float) -> None:
    found = tiers(of(days, target))

    for severity in ("page", "ticket"):
        rates = [tier.burn_rate for tier in found if tier.severity == severity]
        assert rates == sorted(rates, reverse=True)
    assert [tier.long_seconds for tier in found] == sorted(tier.long_seconds for tier in found)


def test_the_short_window_is_a_twelfth_of_the_long_and_holds_two_evaluations() -> None:
    for slo in (of(days, target) for days in PERIODS for target in TARGETS):
        assert {tier.long_seconds / tier.short_seconds for tier in tiers(slo)} == {12}
        assert all(tier.short_seconds >= 2 * Timing().interval for tier in tiers(slo))


@given(st.floats(0.15, 0.99999))
def test_every_tier_can_fire_when_everything_is_bad(target: float) -> None:
    slo = of(28, target)

    assert tiers(slo)
    assert all(tier.threshold(slo) <= FEASIBLE * (1 + 1e-12) < 1 for tier in tiers(slo))


def test_an_objective_that_does_not_page_has_the_tickets_of_one_that_does() -> None:
    paging = tiers(AVAILABILITY)

    assert tiers(replace(AVAILABILITY, pages=False)) == [tier for tier in paging if tier.severity == "ticket"] != paging


@given(st.integers(1, 10**9))
def test_a_duration_means_the_time_that_it_was_made_from(milliseconds: int) -> None:
    assert round(seconds_of(duration(milliseconds / 1000)) * 1000) == milliseconds


@each("text", ["", "5", "m", "5 m", "1.5h", "5m!", "-5m", "h1"])
def test_what_prometheus_would_not_take_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds_of(text)


def test_scaled_down_a_window_still_holds_two_evaluations() -> None:
    timing = Timing(interval=1, scrape=0.5, scale=0.01)

    assert [timing.scaled(seconds) for seconds in (3600, 300, 60)] == [36, 3, 2]
    assert (timing.base, timing.least_window) == (2.5, 2)


@each("interval", [15, 30, 60, 300])
def test_a_wait_of_alertmanager_is_as_long_as_said_however_often_rules_are_evaluated(interval: float) -> None:
    assert [Timing(interval=interval).waited(seconds) for seconds in (30, 300)] == [30, 300]


def test_scaled_down_a_wait_still_lasts_two_evaluations() -> None:
    assert [Timing(interval=1, scale=0.001).waited(seconds) for seconds in (30, 86400)] == [2, 86.4]
