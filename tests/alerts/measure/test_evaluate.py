"""The indicators over series known by hand, and what must hold for any series. Equality with Prometheus: test_parity.py."""

from __future__ import annotations

import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from slo_making import ACTIVITY, AGE, BAD, BEGIN, GOOD, LATENCY, USE, series, slo
from tachoscope_alerts.compile.sli_expressions import bad_events, total_events
from tachoscope_alerts.measure.evaluator import bad_and_total, evaluations, history_seconds, instant, needed_metrics, rate
from tachoscope_alerts.measure.stored_samples import Series
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Gate, Ratio, Selector, Slices

TIMING = Timing()
REQUESTS = "tachoscope_requests_total"


def at(*seconds: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([round((BEGIN + second) * 1000) for second in seconds], dtype=np.int64)


def counter(*values: float, every: float = 15.0, first: float = 0.0, **labels: str) -> Series:
    return series(REQUESTS, [(BEGIN + first + every * number, value) for number, value in enumerate(values)], **labels)


def by_metric(*some: Series) -> dict[str, list[Series]]:
    found: dict[str, list[Series]] = {}
    for one in some:
        found.setdefault(one.metric, []).append(one)
    return found


# --- rate ---------------------------------------------------------------------------------------------------------------------


def test_a_steady_counter_has_its_rate() -> None:
    assert rate(counter(*range(100, 200, 3)), at(60, 120), 60_000) == pytest.approx([0.2, 0.2])


def test_one_sample_gives_no_rate_and_neither_do_two_that_are_not_in_the_window() -> None:
    assert np.isnan(rate(counter(1.0), at(0, 30), 60_000)).all()
    assert np.isnan(rate(counter(1.0, 2.0), at(90, 1000), 60_000)).all()
    assert np.isnan(rate(counter(), at(0), 60_000)).all()


def test_the_window_is_closed_on_both_sides() -> None:
    both_ends = counter(0.0, 60.0, every=60.0)
    assert rate(both_ends, at(60), 60_000) == pytest.approx([1.0])
    assert np.isnan(rate(both_ends, at(60.001), 60_000)).all()


def test_after_a_reset_what_the_counter_had_is_not_lost_and_not_counted_twice() -> None:
    # 10 -> 20, then a restart from 0 to 5: it rose by 15 in 30 s.
    assert rate(counter(10.0, 20.0, 5.0), at(30), 30_000) == pytest.approx([0.5])


def test_what_is_missing_at_the_ends_is_continued_by_half_an_interval_unless_another_sample_was_due() -> None:
    # Samples at 20, 30, 40 of a window from 0 to 60: 20 s before and after are more than 1.1 intervals, so 5 s each.
    assert rate(counter(100.0, 110.0, 120.0, every=10.0, first=20.0), at(60), 60_000) == pytest.approx([30.0 / 60])
    # At 10, 20, ..., 50: the 10 s at both ends are within 1.1 intervals.
    assert rate(counter(100, 110, 120, 130, 140, every=10.0, first=10.0), at(60), 60_000) == pytest.approx([1.0])


def test_a_counter_is_not_continued_to_below_zero() -> None:
    # 2 at 10 s, and 10 more every 10 s: it was 0 at 8 s, so 8 s are not counted.
    assert rate(counter(2, 12, 22, 32, 42, 52, every=10.0, first=10.0), at(60), 60_000) == pytest.approx([52.0 / 60])


@given(
    values=st.lists(st.integers(0, 10**6), min_size=2, max_size=40),
    every=st.sampled_from([5.0, 15.0, 40.0]),
    scale=st.floats(1e-3, 1e6),
)
def test_a_rate_is_never_negative_and_grows_with_the_counter(values: list[int], every: float, scale: float) -> None:
    """Any fall is a reset."""
    times = at(*range(0, 1200, 30))
    found = rate(counter(*values, every=every), times, 60_000)
    there = ~np.isnan(found)

    assert (found[there] >= -1e-6 * max(values, default=0.0)).all()
    scaled = rate(counter(*(value * scale for value in values), every=every), times, 60_000)
    assert scaled[there] == pytest.approx(found[there] * scale, rel=1e-6, abs=1e-6 * scale * max(values))


# --- gauges -------------------------------------------------------------------------------------------------------------------


def test_a_value_holds_for_five_minutes_and_not_before_it_is_there() -> None:
    gauge = series("g", [(BEGIN, 7.0)])
    values, there = instant(gauge, at(-1, 0, 300, 300.001))
    assert there.tolist() == [False, True, True, False]
    assert values[there].tolist() == [7.0, 7.0]


def test_a_series_that_is_known_to_be_gone_has_no_value_from_then_on_until_it_is_back() -> None:
    gauge = series("g", [(BEGIN, 7.0), (BEGIN + 15, 8.0), (BEGIN + 60, 9.0)], ends=[BEGIN + 30])
    _, there = instant(gauge, at(15, 29.999, 30, 59, 60))
    assert there.tolist() == [True, True, False, False, True]


def test_a_series_that_is_gone_is_so_for_prometheus_too(tmp_path: Path) -> None:
    """Judged by promtool, whose tests can say that a series is stale."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    one = slo(replace(USE, by=("gpu",)), by=("gpu",))
    labels = {"gpu": "0", "unit": "sm"}
    gone = series("tachoscope_gpu_active_ratio", [(t, 0.5) for t in (0, 30, 60)] + [(150, 0.9)], ends=[90], **labels)
    stays = series("tachoscope_gpu_active_ratio", [(t, 0.9) for t in range(0, 181, 30)], **{**labels, "gpu": "1"})
    found = bad_and_total(one, by_metric(gone, stays), -30.0, 180.0, TIMING)
    tests = [
        {"expr": expression(one, TIMING), "eval_time": f"{time // 1000}s", "exp_samples": samples}
        for events, expression in ((found.bad, bad_events), (found.total, total_events))
        for number, time in enumerate(found.times_ms.tolist())
        for samples in [
            [
                {"labels": f'{{gpu="{group[0]}"}}', "value": float(values[number])}
                for group, values in sorted(events.items())
                if not np.isnan(values[number])
            ]
        ]
    ]
    inputs = [
        {"series": 'tachoscope_gpu_active_ratio{gpu="0",unit="sm"}', "values": "0.5 0.5 0.5 stale stale 0.9 0.9"},
        {"series": 'tachoscope_gpu_active_ratio{gpu="1",unit="sm"}', "values": "0.9x6"},
    ]
    path = tmp_path / "stale_test.yaml"
    path.write_text(yaml.safe_dump({"tests": [{"interval": "30s", "input_series": inputs, "promql_expr_test": tests}]}))
    judged = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)

    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert found.total["0",].tolist()[:6] == pytest.approx([1, 1, 1, np.nan, np.nan, 1], nan_ok=True)


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ({"seconds_bucket": {"le": "2.5"}, "seconds_count": {}}, (40, 42, 80)),
        ({"good_total": {}, "all_total": {}}, (40, 80)),
    ],
    ids=["a histogram", "two counters"],
)
def test_good_events_that_end_before_all_events_make_none_bad(parts: dict[str, dict[str, str]], ends: tuple[int, ...]) -> None:
    """All events are good. The traps of the same names are judged by promtool."""
    ratio = Ratio(total=Selector("all_total"), good=Selector("good_total"))
    indicator = ratio if "all_total" in parts else replace(LATENCY, histogram=Selector("seconds"))

    totals = []
    for end in ends:
        some = [
            series(metric, [(BEGIN + 15 * n, 300.0 * n) for n in range(count)], ends=[BEGIN + 15 * count], **labels)
            for (metric, labels), count in zip(parts.items(), (40, end), strict=True)
        ]
        bad, total = sums(indicator, some, end=900.0)[()]
        totals.append(total)
        assert bad == 0.0
    assert totals == pytest.approx([totals[0]] * len(totals), rel=0.1)


# --- ratios -------------------------------------------------------------------------------------------------------------------


def outcomes(rates: dict[str, float], count: int = 41, **labels: str) -> list[Series]:
    """Return a counter for each outcome that rises so much a second."""
    return [counter(*(15.0 * number * each for number in range(count)), outcome=name, **labels) for name, each in rates.items()]


def sums(
    indicator: object, some: list[Series], *, by: tuple[str, ...] = (), end: float = 600.0
) -> dict[tuple[str, ...], tuple[float, float]]:
    found = bad_and_total(slo(indicator, by=by), by_metric(*some), BEGIN + 60, BEGIN + end, TIMING)
    return {group: (float(np.nansum(found.bad[group])) / 18, float(np.nansum(total)) / 18) for group, total in found.total.items()}


def test_bad_and_total_are_told_by_their_labels_and_what_is_excluded_is_in_neither() -> None:
    some = outcomes({"ok": 9.0, "server_error": 1.0, "client_error": 5.0}, service="chat")
    some += outcomes({"ok": 4.0}, service="code")
    assert sums(BAD, some, by=("service",)) == {("chat",): pytest.approx((1.0, 10.0)), ("code",): pytest.approx((0.0, 4.0))}
    assert sums(BAD, some) == {(): pytest.approx((1.0, 14.0))}


def test_what_is_not_good_is_bad_and_never_less_than_nothing() -> None:
    assert sums(GOOD, outcomes({"ok": 9.0, "shed": 1.0})) == {(): pytest.approx((1.0, 10.0))}
    more_good = Ratio(total=Selector(REQUESTS, {"outcome": ("shed",)}), good=Selector(REQUESTS, {"outcome": ("ok",)}))
    assert sums(more_good, outcomes({"ok": 9.0, "shed": 1.0})) == {(): pytest.approx((0.0, 1.0))}


def test_of_a_histogram_those_above_the_bound_are_bad_however_the_bound_is_written() -> None:
    name = LATENCY.histogram.metric
    some = [replace(counter(*range(0, 410, 10)), metric=f"{name}_count")]
    assert sums(LATENCY, some) == {}, "no bucket: nothing is known to be good or bad"
    for text in ("2.5", "2.50"):
        bucket = replace(counter(*range(41)), metric=f"{name}_bucket", labels={"le": text})
        assert sums(LATENCY, [*some, bucket]) == {(): pytest.approx((9 / 15, 10 / 15))}


def test_of_a_histogram_those_at_most_the_bound_are_bad_where_more_is_good() -> None:
    name = ACTIVITY.histogram.metric
    some = [replace(counter(*range(0, 410, 10)), metric=f"{name}_count")]
    assert sums(ACTIVITY, some) == {}, "no bucket: nothing is known to be good or bad"
    bucket = replace(counter(*range(41)), metric=f"{name}_bucket", labels={"le": "0.8"})
    other = replace(counter(*range(0, 205, 5)), metric=f"{name}_bucket", labels={"le": "0.9"})
    assert sums(ACTIVITY, [*some, bucket, other]) == {(): pytest.approx((1 / 15, 10 / 15))}


def test_idle_counters_give_zero_events_and_missing_ones_give_none() -> None:
    idle = bad_and_total(slo(BAD), by_metric(*outcomes({"ok": 0.0})), BEGIN + 60, BEGIN + 600, TIMING)
    assert (idle.total[()].tolist(), idle.bad[()].tolist()) == ([0.0] * 18, [0.0] * 18)
    missing = bad_and_total(slo(BAD), {}, BEGIN + 60, BEGIN + 600, TIMING)
    assert (missing.total, missing.bad, len(missing.times_ms)) == ({}, {}, 18)


def test_a_new_label_set_that_begins_above_zero_gives_no_rate_at_its_first_sample() -> None:
    """Trap 6: counters must be made with 0."""
    late = series(REQUESTS, [(BEGIN + 300, 5.0)], outcome="server_error")
    assert sums(BAD, [*outcomes({"ok": 1.0}), late]) == {(): pytest.approx((0.0, 1.0))}


@given(
    rows=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**4)), min_size=3, max_size=30),
    factor=st.floats(1e-2, 1e3),
)
def test_scaling_all_counters_scales_bad_and_total_alike(rows: list[tuple[int, int]], factor: float) -> None:
    def found(scale: float) -> tuple[float, float]:
        some = [
            counter(*(row[number] * scale for row in rows), outcome=outcome)
            for number, outcome in enumerate(("ok", "server_error"))
        ]
        events = bad_and_total(slo(BAD), by_metric(*some), BEGIN, BEGIN + 600, TIMING)
        return float(np.nansum(events.bad[()])), float(np.nansum(events.total[()]))

    assert found(factor) == pytest.approx([value * factor for value in found(1.0)], rel=1e-6, abs=1e-6)


# --- slices -------------------------------------------------------------------------------------------------------------------

ACTIVE = "tachoscope_job_active"
SAVED = "tachoscope_checkpoint_verified_timestamp_seconds"


def steady(metric: str, value: float, *, since: float = -4000.0, until: float = 600.0, **labels: str) -> Series:
    return series(metric, [(BEGIN + at, value) for at in np.arange(since, until + 1, 15.0)], **labels)


def counts(indicator: Slices, *some: Series, by: tuple[str, ...] = ()) -> tuple[list[float], list[float]]:
    """Return the bad and the total entities at 0, 300 and 600 s."""
    found = bad_and_total(slo(indicator, by=by), by_metric(*some), BEGIN - 300, BEGIN + 600, Timing(interval=300.0))
    nothing = np.full(3, np.nan)
    return found.bad.get((), nothing).tolist(), found.total.get((), nothing).tolist()


def test_an_age_is_the_time_since_the_value_and_becomes_bad_when_it_reaches_the_bound() -> None:
    # Saved 1500 s before the begin: 1500, 1800 and 2100 s old; good is less than 1800.
    saved = steady(SAVED, BEGIN - 1500, training_job="a")
    assert counts(AGE, saved, steady(ACTIVE, 1.0, training_job="a")) == ([0, 1, 1], [1, 1, 1])


def test_a_job_without_a_checkpoint_is_bad_or_left_out_as_the_objective_says() -> None:
    active = steady(ACTIVE, 1.0, training_job="a")
    assert counts(AGE, active) == ([1, 1, 1], [1, 1, 1])
    bad, total = counts(replace(AGE, missing="ignored"), active)
    assert np.isnan(bad).all()
    assert np.isnan(total).all()


def test_only_while_the_gate_is_open_and_has_been_for_long_enough_does_time_count() -> None:
    saved = steady(SAVED, BEGIN - 9000, training_job="a")
    young = steady(ACTIVE, 1.0, since=-1500.0, training_job="a")
    for found in counts(AGE, saved, young):
        assert found == pytest.approx([np.nan, 1, 1], nan_ok=True)
    shut = steady(ACTIVE, 0.0, training_job="a")
    assert np.isnan(counts(AGE, saved, shut)[1]).all()
    other = steady(ACTIVE, 1.0, training_job="b")
    assert counts(replace(AGE, missing="ignored"), saved, other)[1] == pytest.approx([np.nan] * 3, nan_ok=True)


def test_of_an_entitys_series_the_least_or_the_most_counts() -> None:
    some = [
        steady("tachoscope_gpu_active_ratio", value, gpu="0", uuid="u", unit="sm", instance=f"n{value}") for value in (0.9, 0.5)
    ]
    assert counts(USE, *some) == ([1, 1, 1], [1, 1, 1])
    assert counts(replace(USE, reduce="max"), *some) == ([0, 0, 0], [1, 1, 1])


def test_a_value_that_is_not_a_number_is_there_and_not_good() -> None:
    """So it is in PromQL: no comparison holds for it."""
    assert counts(USE, steady("tachoscope_gpu_active_ratio", float("nan"), gpu="0", uuid="u", unit="sm")) == ([1, 1, 1], [1, 1, 1])


@pytest.mark.parametrize(("comparison", "bad"), [("lt", 1), ("lte", 0), ("gt", 1), ("gte", 0)])
def test_good_is_what_compares_with_the_bound(comparison: str, bad: int) -> None:
    at_bound = steady("tachoscope_gpu_active_ratio", 0.8, gpu="0", uuid="u", unit="sm")
    assert counts(replace(USE, comparison=comparison), at_bound)[0] == [bad] * 3  # type: ignore[arg-type]


def test_bounds_of_ages_and_gates_shrink_with_the_drill_and_others_do_not() -> None:
    scaled = Timing(interval=1.0, scale=0.01)
    saved, active = steady(SAVED, BEGIN - 20, training_job="a"), steady(ACTIVE, 1.0, training_job="a")
    found = bad_and_total(slo(AGE), by_metric(saved, active), BEGIN - 5, BEGIN, scaled)
    assert found.bad[()].tolist() == [0, 0, 1, 1, 1], "1800 s are 18 s"
    assert history_seconds(slo(AGE), scaled) == 318.0


# --- what is needed -----------------------------------------------------------------------------------------------------------


def test_evaluations_are_multiples_of_the_interval_after_the_start_up_to_the_end() -> None:
    assert evaluations(BEGIN, BEGIN + 90, TIMING).tolist() == at(30, 60, 90).tolist()
    assert evaluations(BEGIN - 1, BEGIN + 29, TIMING).tolist() == at(0).tolist()
    assert evaluations(BEGIN, BEGIN + 1, Timing(interval=0.25)).tolist() == at(0.25, 0.5, 0.75, 1.0).tolist()


def test_all_metrics_of_an_indicator_are_asked_for_with_the_buckets_of_all_objectives() -> None:
    some = [
        slo(BAD),
        slo(LATENCY),
        slo(replace(LATENCY, bound=0.5)),
        slo(ACTIVITY),
        slo(AGE),
        slo(replace(USE, gate=Gate(Selector("g"), on=("gpu",)))),
    ]
    assert needed_metrics(some) == {
        REQUESTS: frozenset(),
        LATENCY.histogram.metric: frozenset({0.5, 2.5}),
        ACTIVITY.histogram.metric: frozenset({0.8}),
        SAVED: frozenset(),
        ACTIVE: frozenset(),
        "tachoscope_gpu_active_ratio": frozenset(),
        "g": frozenset(),
    }


@pytest.mark.parametrize(("before", "least"), [(100_000.0, 0.99), (0.0, 0.8)])
def test_a_burst_within_one_scrape_is_counted_whole_wherever_it_falls(before: float, least: float) -> None:
    """Of a counter that began at 0 Prometheus does not extend the first increase to the begin of the window."""
    chance = random.Random(1)
    counted = []
    for _ in range(500):
        phase, burst = chance.uniform(0.0, 14.5), chance.randrange(20, 60)
        points = [(BEGIN + 15 * n + phase + chance.uniform(0.0, 0.4), before + 692.0 * (n > burst)) for n in range(80)]
        times = np.arange(BEGIN + 120, BEGIN + 1200, TIMING.interval) * 1000
        rates = rate(series(REQUESTS, points), times.astype(np.int64), round(TIMING.base * 1000))
        counted.append(float(np.nansum(rates)) * TIMING.interval / 692.0)

    assert least <= min(counted) <= max(counted) <= 1.01
