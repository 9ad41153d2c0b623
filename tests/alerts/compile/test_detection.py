"""How soon somebody is told: the arithmetic, and promtool's Prometheus against it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.alert_times.detection import Case, Compared, measured, stand_in, stand_ins, tables
from hypothesis import given
from hypothesis import strategies as st

from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT, GPU_EFFICIENCY, SAMPLES
from tachoscope_alerts.compile.detection_time import NEVER, OUTAGES, detection, in_words, table
from tachoscope_alerts.spec.burn_rate_windows import Timing, tiers
from tachoscope_alerts.spec.slo import Severity, Slo

TIMING = Timing()
TOTAL, TENTH, DOUBLE = OUTAGES


def bar(slo: Slo, severity: Severity) -> object:
    return pytest.param(slo, severity, marks=pytest.mark.bar, id=f"{slo.name}-{severity}")


@pytest.mark.parametrize(
    ("slo", "severity"),
    [
        bar(AVAILABILITY, "page"),  # without a least number of events also in test_backtest.py
        bar(FIRST_TOKEN, "ticket"),
        bar(GPU_EFFICIENCY, "ticket"),
        bar(FIRST_TOKEN, "page"),
        bar(GOODPUT, "page"),
        bar(CHECKPOINT_AGE, "page"),
        bar(replace(CHECKPOINT_AGE, target=0.9), "page"),
        bar(AVAILABILITY, "ticket"),
        bar(GOODPUT, "ticket"),
        bar(replace(AVAILABILITY, target=0.9999, period_days=7), "page"),
    ],
)
def test_promtool_fires_and_clears_when_theory_says_within_a_tenth_and_an_evaluation(slo: Slo, severity: Severity) -> None:
    case = Case(stand_in(slo), severity)
    seen = measured([case])

    for outage in OUTAGES:
        expected = case.computed(outage)
        if expected.fires == NEVER:
            assert (slo.name, severity, outage.title) not in seen
            continue
        fires, clears = seen[slo.name, severity, outage.title]
        assert fires == pytest.approx(expected.fires, rel=0.1, abs=case.interval), outage
        assert clears == pytest.approx(expected.clears, rel=0.1, abs=case.interval), outage


@given(st.floats(0.5, 0.9999))
def test_twice_the_budget_wakes_nobody_and_is_a_ticket(target: float) -> None:
    slo = replace(AVAILABILITY, target=target)

    assert detection(slo, "page", DOUBLE.bad(slo), TIMING).fires == NEVER
    assert detection(slo, "ticket", DOUBLE.bad(slo), TIMING).fires < 2 * 86400


def test_a_fleet_that_hangs_pages_after_forty_minutes_and_by_the_next_tier_after_a_hundred() -> None:
    """Hence the alerts that do not wait for a budget."""
    hour, six_hours = (tier for tier in tiers(GOODPUT) if tier.severity == "page")

    assert detection(GOODPUT, "page", 1.0, TIMING).tier == hour
    assert detection(GOODPUT, "page", 1.0, TIMING).fires / 60 == pytest.approx(41, abs=1)
    assert six_hours.threshold(GOODPUT) * 6 * 60 == pytest.approx(101, abs=1)


@given(st.floats(0.9, 0.9999), st.floats(0.01, 1.0))
def test_a_worse_outage_is_told_no_later(target: float, bad: float) -> None:
    slo = replace(AVAILABILITY, target=target)

    assert detection(slo, "page", 1.0, TIMING).fires <= detection(slo, "page", bad, TIMING).fires


def test_of_gauges_nothing_is_smeared() -> None:
    of_time = replace(CHECKPOINT_AGE, target=AVAILABILITY.target)

    gap = detection(AVAILABILITY, "page", 1.0, TIMING).fires - detection(of_time, "page", 1.0, TIMING).fires
    assert gap == TIMING.base / 2


def test_in_a_drill_it_takes_minutes_or_less() -> None:
    drill = Timing(interval=1, scrape=0.5, scale=1 / 100)

    assert detection(AVAILABILITY, "page", 0.1, drill).fires == pytest.approx(13.44 * 0.001 / 0.1 * 36 + 1.25 + 0.5)


def test_the_table_has_each_objective_and_outage_and_says_never() -> None:
    lines = table(SAMPLES).splitlines()[2:]

    assert len(lines) == len(SAMPLES) * len(OUTAGES)
    assert all(line.count("|") == 10 for line in lines)
    assert all("never" in line for line in lines if DOUBLE.title in line)
    assert any("| 1h/5m |" in line for line in lines if TOTAL.title in line)


def test_objectives_that_share_their_times_are_measured_once() -> None:
    names = stand_ins([AVAILABILITY, replace(AVAILABILITY, name="again"), GOODPUT])

    assert list(names) == ["`inference-availability`, `again`", "`training-goodput`"]


def test_times_are_written_as_exactly_as_they_are_known() -> None:
    assert [in_words(s) for s in (78.4, 519.0, 121_000, 900_000, NEVER)] == ["78 s", "8.7 min", "33.6 h", "10.4 d", "never"]


def test_a_time_is_as_computed_within_a_tenth_or_one_evaluation_and_others_are_named() -> None:
    found = [
        Compared("`slow`", "100 %", "page", 6000.0, 6590.0, 30.0),
        Compared("`fast`", "100 %", "page", 60.0, 90.0, 30.0),
        Compared("`never`", "10 %", "page", NEVER, NEVER, 30.0),
        Compared("`late`", "10 %", "page", 60.0, 120.0, 30.0),
        Compared("`silent`", "10 %", "page", 6000.0, NEVER, 30.0),
    ]
    lines = tables(found).splitlines()

    assert "| page | 4 | 2 | 1 | 1 |" in lines
    assert [line.split()[1] for line in lines if "`" in line] == ["`late`", "`silent`"]
