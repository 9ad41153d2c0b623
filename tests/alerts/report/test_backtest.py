"""Pages and tickets replayed on planted outages: against the arithmetic of windows, and against promtool's Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.alert_times.detection import Case, measured, stand_in
from hypothesis import given
from hypothesis import strategies as st

from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT
from slo_making import BEGIN, Planted, write_store
from tachoscope_alerts.compile.detection_time import NEVER, OUTAGES, Outage, detection
from tachoscope_alerts.measure import from_samples as samples_source
from tachoscope_alerts.measure.evaluator import Events, evaluations
from tachoscope_alerts.report.alert_replay import FiredAlert, lead_seconds, replay
from tachoscope_alerts.report.backtest import backtest, changed, threshold_of, thresholds, window
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, Timing, tiers
from tachoscope_alerts.spec.slo import AtMost, Selector, Severity, Slices, Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.storage.store import Store

TIMING = Timing()
RATE = 1000.0
TOTAL, TENTH, DOUBLE = OUTAGES
NOWHERE = ("",) * len(AVAILABILITY.by)


def planted(slo: Slo, bad: float, *, clean: float, lasts: float, after: float = 0.0) -> Events:
    """Return steady events, of which a ratio is bad from `clean` seconds on, as a rate sees them over its base window."""
    times = evaluations(BEGIN, BEGIN + clean + lasts + after, TIMING)
    since = times / 1000 - BEGIN - clean
    smear = 0.0 if isinstance(slo.indicator, Slices) else TIMING.base
    reached = np.clip(since / smear, 0, 1) - np.clip((since - lasts) / smear, 0, 1) if smear else ((since > 0) & (since <= lasts))
    group = tuple(f"a {label}" for label in slo.by)
    return Events(times, {group: RATE * bad * reached}, {group: np.full(len(times), RATE)})


def told(slo: Slo, events: Events, severity: Severity) -> list[FiredAlert]:
    (found,) = replay(slo, events, BEGIN, float(events.times_ms[-1]) / 1000, TIMING)
    return found.by_severity(severity)


@pytest.mark.parametrize("slo", [AVAILABILITY, FIRST_TOKEN, GOODPUT, CHECKPOINT_AGE, replace(AVAILABILITY, target=0.9999)])
@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("severity", ["page", "ticket"])
def test_an_outage_is_told_and_clears_when_the_arithmetic_says(slo: Slo, outage: Outage, severity: Severity) -> None:
    slo = replace(slo, least_bad_events=0.0)
    bad = outage.bad(slo)
    expected = detection(slo, severity, bad, TIMING)
    within = [tier for tier in tiers(slo) if tier.severity == severity]
    clean = max((tier.long_seconds for tier in within), default=HOUR)
    if expected.fires == NEVER:
        assert not told(slo, planted(slo, bad, clean=clean, lasts=clean), severity)
        return
    lasts = np.ceil((expected.fires + expected.interval / 2) / expected.interval) * expected.interval

    (one,) = told(slo, planted(slo, bad, clean=clean, lasts=lasts, after=expected.clears + DAY / 2), severity)

    assert one.start - BEGIN - clean == pytest.approx(expected.fires, rel=0.1, abs=expected.interval)
    assert one.end - BEGIN - clean - lasts == pytest.approx(expected.clears, rel=0.1, abs=expected.interval)
    assert not one.still


def test_promtools_prometheus_pages_at_the_same_evaluation_or_the_next_and_when_theory_says() -> None:
    case = Case(stand_in(replace(AVAILABILITY, least_bad_events=0.0)), "page")
    seen = measured([case])

    for outage in (TOTAL, TENTH):
        lasts = case.lasts(outage)
        events = planted(case.slo, outage.bad(case.slo), clean=case.history, lasts=lasts, after=2 * HOUR)
        (one,) = told(case.slo, events, "page")
        fires, clears = seen[case.slo.name, "page", outage.title]
        expected = case.computed(outage)
        assert fires == pytest.approx(expected.fires, rel=0.1, abs=case.interval), outage
        assert clears == pytest.approx(expected.clears, rel=0.1, abs=case.interval), outage
        assert one.start - BEGIN - case.history == pytest.approx(fires, abs=case.interval)
        assert one.end - BEGIN - case.history - lasts == pytest.approx(clears, abs=case.interval)
    assert case.computed(DOUBLE).fires == NEVER
    assert (case.slo.name, "page", DOUBLE.title) not in seen


@given(st.floats(0.9, 0.999), st.floats(0.0, 1.0), st.floats(0.001, 1.0), st.floats(60.0, 6 * HOUR))
def test_a_tighter_target_pages_no_later_and_for_no_shorter(target: float, tighter: float, bad: float, lasts: float) -> None:
    loose = replace(AVAILABILITY, target=target, least_bad_events=0.0)
    tight = changed(loose, target=target + (0.9999 - target) * tighter)
    events = planted(loose, bad, clean=2 * HOUR, lasts=lasts, after=2 * HOUR)

    for one in told(loose, events, "page"):
        assert any(other.start <= one.start and one.end <= other.end for other in told(tight, events, "page"))


def test_attainment_and_budget_are_those_of_the_events() -> None:
    slo = replace(AVAILABILITY, target=0.99)
    (found,) = replay(slo, planted(slo, 0.5, clean=HOUR, lasts=HOUR), BEGIN, BEGIN + 2 * HOUR, TIMING)

    assert found.attainment == pytest.approx(0.75, abs=0.01)
    assert found.left == pytest.approx(1 - 0.25 / 0.01, abs=1)
    assert found.line[0].left == 1.0
    assert found.line[-1].left == pytest.approx(found.left)
    assert found.coverage == 1.0
    assert all(before.left >= after.left for before, after in zip(found.line, found.line[1:], strict=False))


def test_no_events_are_neither_met_nor_told() -> None:
    times = evaluations(BEGIN, BEGIN + HOUR, TIMING)
    nothing = np.full(len(times), np.nan)
    (found,) = replay(AVAILABILITY, Events(times, {NOWHERE: nothing}, {NOWHERE: nothing}), BEGIN, BEGIN + HOUR, TIMING)

    assert (found.attainment, found.left, found.told, found.line, found.coverage) == (None, None, (), (), 0.0)
    assert replay(AVAILABILITY, Events(times[:0], {}, {}), BEGIN, BEGIN + HOUR, TIMING) == []


def test_a_ticket_waits_for_a_quarter_of_its_window_and_few_bad_events_tell_nobody() -> None:
    young = planted(GOODPUT, 1.0, clean=60.0, lasts=5 * HOUR)
    assert not told(replace(GOODPUT, least_bad_events=0.0), young, "ticket")
    assert told(replace(GOODPUT, least_bad_events=0.0), planted(GOODPUT, 1.0, clean=60.0, lasts=10 * HOUR), "ticket")

    few = replace(AVAILABILITY, least_bad_events=1e9)
    assert not told(few, planted(few, 1.0, clean=HOUR, lasts=HOUR), "page")


def test_what_fires_when_the_records_end_has_not_ended() -> None:
    events = planted(AVAILABILITY, 1.0, clean=HOUR, lasts=HOUR)

    (one,) = told(AVAILABILITY, events, "page")

    assert one.still and one.end == float(events.times_ms[-1]) / 1000


def test_what_was_before_the_window_counts_for_alerts_and_not_for_the_budget() -> None:
    events = planted(AVAILABILITY, 1.0, clean=HOUR, lasts=600.0, after=HOUR)
    begin = BEGIN + HOUR + 660.0

    (found,) = replay(AVAILABILITY, events, begin, BEGIN + 2 * HOUR, TIMING)

    assert found.attainment == 1.0
    assert found.by_severity("page")[0].start < begin
    assert lead_seconds(AVAILABILITY, TIMING) > 3 * DAY


def test_a_threshold_is_a_boundary_of_the_histogram_and_a_target_between_none_and_all() -> None:
    assert threshold_of(FIRST_TOKEN) == 2.5 and 1.0 in thresholds(FIRST_TOKEN)
    assert threshold_of(changed(FIRST_TOKEN, threshold=1.0)) == 1.0
    assert threshold_of(changed(CHECKPOINT_AGE, threshold=77.0)) == 77.0
    for slo, change in ((FIRST_TOKEN, {"threshold": 0.77}), (AVAILABILITY, {"threshold": 1.0}), (AVAILABILITY, {"target": 1.0})):
        with pytest.raises(TachoscopeError):
            changed(slo, **change)


def test_of_a_store_the_same_samples_are_judged_by_another_target_and_threshold(tmp_path: Path) -> None:
    """Six hours of ten requests a second, of which all fail for a quarter of an hour."""
    times = [round((BEGIN + 15 * n) * 1000) for n in range(6 * 240 + 1)]
    since = [time / 1000 - BEGIN for time in times]
    labels = {"service": "chat", "model": "m", "version": "v1"}
    counts = {"ok": [10.0 * (at - min(max(at - 4 * HOUR, 0.0), 900.0)) for at in since]}
    counts["server_error"] = [10.0 * min(max(at - 4 * HOUR, 0.0), 900.0) for at in since]
    rows = [
        Planted(
            BY_NAME["tachoscope_requests_total"], labels | {"outcome": outcome}, "node-1", dict(zip(times, values, strict=True))
        )
        for outcome, values in counts.items()
    ]
    store = Store(str(tmp_path / "store"))
    write_store(store, rows)
    start, end = window(BEGIN + 6 * HOUR, 0.25, TIMING)

    found = backtest(AVAILABILITY, samples_source.of_store(store.url), start, end, target=0.9)

    (kept,), (changed_to,) = found.committed.budgets, found.changed.budgets
    assert kept.labels == {"service": "chat", "model": "m"}
    assert found.recorded_since == pytest.approx(BEGIN, abs=60)
    assert kept.attainment == changed_to.attainment == pytest.approx(1 - 0.25 / 6, abs=1e-3)
    assert kept.by_severity("page")[0].start == pytest.approx(BEGIN + 4 * HOUR + 78, abs=60)
    assert (found.committed.target, found.changed.target) == (AVAILABILITY.target, 0.9)
    assert changed_to.left == pytest.approx(1 - 0.25 / 6 / 0.1, abs=0.01)
    assert not changed_to.by_severity("page") or changed_to.by_severity("page")[0].start > kept.by_severity("page")[0].start


def test_a_threshold_at_which_nothing_was_counted_is_refused_also_of_a_metric_that_is_not_of_the_catalogue() -> None:
    class Counted:
        name, notes = "a Prometheus", ()

        def moments(self, slo: Slo, start: float, end: float, timing: Timing) -> Events:
            found = planted(slo, 0.5, clean=HOUR, lasts=HOUR)
            return found if threshold_of(slo) == 2.5 else Events(found.times_ms, {}, {})

    assert isinstance(FIRST_TOKEN.indicator, AtMost)
    own = replace(FIRST_TOKEN, indicator=replace(FIRST_TOKEN.indicator, histogram=Selector("own_seconds")))

    with pytest.raises(TachoscopeError, match="a Prometheus has nothing that was counted at 0.75"):
        backtest(own, Counted(), BEGIN, BEGIN + 2 * HOUR, threshold=0.75)


def test_the_line_of_a_budget_has_its_points_where_something_was_recorded() -> None:
    events = planted(AVAILABILITY, 1.0, clean=HOUR, lasts=HOUR)

    (found,) = replay(AVAILABILITY, events, BEGIN - 10 * DAY, BEGIN + 2 * HOUR, TIMING)

    assert found.line[0].time == BEGIN - 10 * DAY
    assert found.line[1].time == pytest.approx(BEGIN, abs=TIMING.interval)
    assert [found.line[1].measured, found.line[-1].measured] == [False, True]
    assert found.line[-1].left == pytest.approx(found.left)
