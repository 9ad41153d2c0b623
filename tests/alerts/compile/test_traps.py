"""The traps of burn-rate alerting, each with series in which the usual rule falls into it: tiers, arithmetic, what is not there.

Those of time are in test_traps_of_time.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers import REPOSITORY
from promtool_running import faults
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, PLACES, RECOVERY, REQUESTS, SAMPLES
from tachoscope_alerts.compile.planted_series import of_events
from tachoscope_alerts.compile.promtool_tests import of_pages, of_tickets
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL, UNMEASURED, recorded
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import FEASIBLE, duration, seconds_of, tiers
from tachoscope_alerts.spec.slo import AtMost, Ratio, Selector, Slo
from tachoscope_core.metrics.catalogue import METRICS
from tachoscope_core.metrics.serving import OUTCOMES
from tachoscope_node.services.state import Requests
from trap_making import (
    ANY,
    TIMING,
    Trap,
    Traps,
    about,
    block,
    failing,
    firing,
    minutes,
    nothing,
    of_event,
    one,
    ratio,
    rules_of,
    some,
)

TRAPS: Traps = {}


def trap(make: Callable[[], Trap]) -> Callable[[], Trap]:
    TRAPS[make.__name__] = make
    return make


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return failing(TRAPS, tmp_path_factory.mktemp("traps"))


# --- traps 1 to 3: tiers ------------------------------------------------------------------------------------------------------


@trap
def impossible_alerts_that_a_total_outage_cannot_reach() -> Trap:
    slo = replace(ANY, target=0.9)
    assert all(tier.threshold(slo) < 1 for tier in tiers(slo)), "more than everything cannot be bad"
    naive = f"{ratio(slo, '1h')} > {14.4 * 0.1:g}"
    outage = of_events(slo, [minutes(20, 1000, 1000)])
    return rules_of(slo), [block(outage, nothing(naive, "20m"), some(firing(slo, severity="page", long="6h"), "20m"))]


@trap
def factors_that_are_those_of_thirty_days() -> Trap:
    """6 % bad at 99 %, for 90 minutes: 5 % of the budget of a week is spent, and the windows of a month are silent."""
    slo = replace(ANY, target=0.99, period_days=7)
    naive = f"{ratio(slo, '1h')} > {14.4 * 0.01:g}"
    outage = of_events(slo, [minutes(90, 1000, 60)])
    return rules_of(slo), [block(outage, nothing(naive, "90m"), some(firing(slo, severity="page", long="90m"), "90m"))]


@trap
def short_history_in_which_days_are_as_long_as_an_hour() -> Trap:
    day = tiers(ANY)[2]
    naive = f"{ratio(ANY, '1d')} > {day.threshold(ANY):g} and ignoring (window) {ratio(ANY, '2h')} > {day.threshold(ANY):g}"
    new_service = of_events(ANY, [minutes(85, 1000, 1000)])
    asked = (some(naive, "85m"), nothing(firing(ANY, severity="ticket"), "85m"), some(firing(ANY, severity="page"), "85m"))
    return rules_of(ANY, days=True), [block(new_service, *asked)]


# --- 4 to 7: arithmetic -------------------------------------------------------------------------------------------------------


@trap
def averaged_ratios_in_which_a_quiet_hour_weighs_as_much_as_a_busy_one() -> Trap:
    naive = f"avg_over_time(({recorded(BAD, ANY)} / {recorded(TOTAL, ANY)})[2h:30s])"
    traffic = of_events(ANY, [minutes(60, 6000, 600), minutes(60, 60, 0)])
    return rules_of(ANY), [block(traffic, about(naive, 0.05, "2h", off=0.05), about(ratio(ANY, "2h"), 0.099, "2h"))]


@trap
def nothing_over_nothing_which_poisons_a_sum_for_a_month() -> Trap:
    naive = f"sum_over_time(({recorded(BAD, ANY)} / {recorded(TOTAL, ANY)})[1h:30s])"
    traffic = of_events(ANY, [minutes(20, 1000, 1), minutes(20, 0, 0)])
    asked = (some(f"{naive} != {naive}", "40m"), about(ratio(ANY, "1h"), 0.001, "40m"), nothing(ratio(ANY, "5m"), "40m"))
    return rules_of(ANY), [block(traffic, *asked)]


@trap
def a_counter_that_is_born_with_five_errors() -> Trap:
    """Nobody can count what a counter had when it was first seen: so ours begin at 0, see the test below."""

    def series(service: str, errors: str) -> list[dict[str, str]]:
        return [
            one(f'{REQUESTS}{{service="{service}",model="m",outcome="ok"}}', "0+100x40"),
            one(f'{REQUESTS}{{service="{service}",model="m",outcome="server_error"}}', errors),
        ]

    both = series("born", "_x20 5x20") + series("begun", "0x20 5x20")

    def errors(service: str) -> str:
        return f'{BAD}{{slo="{ANY.name}",service="{service}"}} > 0'

    return rules_of(ANY), [block(both, nothing(errors("born"), "5m30s"), some(errors("begun"), "5m30s"))]


@trap
def a_sum_of_counters_whose_rate_takes_a_restart_for_work() -> Trap:
    naive = ({"record": "naive:requests:sum", "expr": f"sum({REQUESTS})"},)
    series = [
        one(f'{REQUESTS}{{service="s",model="m",outcome="ok",instance="restarts"}}', "1000+15x20 0+15x20"),
        one(f'{REQUESTS}{{service="s",model="m",outcome="ok",instance="stays"}}', "50000+15x40"),
        one(f'{REQUESTS}{{service="s",model="m",outcome="ok",instance="leaves"}}', "7000+0x20 stale"),
    ]
    total = f"avg_over_time({recorded(TOTAL, ANY)}[5m])"
    return rules_of(ANY, more=naive), [
        block(series, some("rate(naive:requests:sum[5m]) > 100", "8m"), about(total, 2, "8m", off=0.1))
    ]


# --- 8 to 10: series that are not there ---------------------------------------------------------------------------------------


@trap
def a_service_that_is_all_down_and_therefore_counts_as_nothing() -> Trap:
    series = [one(f'tachoscope_server_up{{service="chat",instance="n{n}"}}', "1x280 stale") for n in (1, 2)]
    naive = "count by (service) (tachoscope_server_up == 1) < 2"
    asked = (nothing(naive, "85m"), some('ALERTS{alertname="InferenceDown",alertstate="firing",service="chat"}', "85m"))
    return of_event("InferenceDown"), [block(series, *asked)]


@trap
def a_bucket_that_no_histogram_has() -> Trap:
    """An alert on it would be dead, or take all for bad; ours has no ratio, and says that nothing is measured."""
    metric = "tachoscope_request_first_token_seconds"
    slo = replace(FIRST_TOKEN, name="no-boundary", indicator=AtMost(Selector(metric), 2.0))
    labels = 'service="s",model="m"'
    series = [one(f'{metric}_bucket{{{labels},le="{le}"}}', f"0+{n}x60") for le, n in (("1", 60), ("2.5", 90), ("+Inf", 100))]
    series.append(one(f"{metric}_count{{{labels}}}", "0+100x60"))
    naive = f'1 - sum(rate({metric}_bucket{{le="2"}}[1m])) / sum(rate({metric}_count[1m])) > 0.01'
    return rules_of(slo, FIRST_TOKEN), [
        block(
            series,
            nothing(naive, "10m"),
            nothing(ratio(slo, "5m"), "10m"),
            about(recorded(UNMEASURED, slo), 100 / 15, "10m"),
            about(ratio(FIRST_TOKEN, "5m"), 0.1, "10m"),
        )
    ]


def a_bucket_that_is_not_always_there(count: str, bucket: str, total_at: str) -> Trap:
    """All requests meet the threshold, but for some time the page has only their count."""
    metric, labels = "tachoscope_request_first_token_seconds", 'service="s",model="m"'
    series = [
        one(f"{metric}_count{{{labels}}}", count),
        one(f'{metric}_bucket{{{labels},le="+Inf"}}', count),
        one(f'{metric}_bucket{{{labels},le="2.5"}}', bucket),
    ]
    naive = f'rate({metric}_count[75s]) - ignoring (le) rate({metric}_bucket{{le="2.5"}}[75s]) > 1'
    return rules_of(FIRST_TOKEN), [
        block(
            series,
            some(naive, "10m45s"),
            nothing(f"max_over_time({recorded(BAD, FIRST_TOKEN)}[20m]) > 0", "19m"),
            some(recorded(UNMEASURED, FIRST_TOKEN), "11m"),
            about(recorded(TOTAL, FIRST_TOKEN), 20, total_at),
        )
    ]


@trap
def a_bucket_that_a_server_has_since_its_restart() -> Trap:
    return a_bucket_that_is_not_always_there("0+300x40 200+300x40", "_x41 200+300x40", "19m")


@trap
def a_bucket_that_a_server_has_lost() -> Trap:
    return a_bucket_that_is_not_always_there("0+300x80", "0+300x40 stale", "9m")


@trap
def a_bucket_that_ends_just_before_its_server() -> Trap:
    return a_bucket_that_is_not_always_there("0+300x42 stale", "0+300x40 stale", "9m")


def a_counter_of_good_events_that_ends(total: str, good: str) -> tuple[Slo, list[dict[str, str]], str]:
    """All events are good. Return an objective on two metrics, their series, and what takes some for bad."""
    slo = replace(ANY, name="two-metrics", indicator=Ratio(total=Selector("a_total"), good=Selector("b_total")))
    labels = 'service="s",model="m"'
    return (
        slo,
        [one(f"a_total{{{labels}}}", total), one(f"b_total{{{labels}}}", good)],
        "rate(a_total[75s]) - rate(b_total[75s]) > 1",
    )


@trap
def a_counter_of_good_events_that_ends_while_all_go_on() -> Trap:
    slo, series, naive = a_counter_of_good_events_that_ends("0+300x80", "0+300x40 stale")
    return rules_of(slo), [
        block(
            series,
            some(naive, "10m45s"),
            nothing(f"max_over_time({recorded(BAD, slo)}[20m]) > 0", "19m"),
            some(recorded(UNMEASURED, slo), "10m45s"),
            about(recorded(TOTAL, slo), 20, "9m"),
        )
    ]


@trap
def both_counters_of_a_server_that_ends() -> Trap:
    slo, series, _ = a_counter_of_good_events_that_ends("0+300x40 stale", "0+300x40 stale")
    return rules_of(slo), [
        block(
            series,
            nothing(f"max_over_time({recorded(BAD, slo)}[20m]) > 0", "19m"),
            nothing(f"max_over_time({recorded(UNMEASURED, slo)}[20m]) > 0", "19m"),
            some(recorded(TOTAL, slo), "10m30s"),
        )
    ]


@pytest.mark.parametrize("name", TRAPS)
def test_we_do_not_fall_into(name: str, wrong: dict[str, str]) -> None:
    assert wrong.get(name, "") == ""


def left_open(document: dict[str, Any]) -> dict[str, Any]:
    """Return rules whose windows lack the sample at their beginning, as those of Prometheus 3 do."""

    def shorter(match: re.Match[str]) -> str:
        return f"[{duration(seconds_of(match[1]) - 0.001)}]"

    changed = [
        {**group, "rules": [{**rule, "expr": re.sub(r"\[(\w+)\]", shorter, rule["expr"])} for rule in group["rules"]]}
        for group in document["groups"]
    ]
    return {"groups": changed}


@pytest.mark.bar
def test_our_tests_stay_off_the_edges_of_windows_which_prometheus_3_draws_otherwise(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rules, tests = {}, {}
    for slo in (AVAILABILITY, CHECKPOINT_AGE, RECOVERY):
        file = f"{slo.name}.yaml"
        rules[file] = left_open(rules_of(slo, days=True))
        tests[f"{slo.name}_test.yaml"] = of_pages([slo], PLACES, TIMING, file)
        tests[f"{slo.name}_tickets_test.yaml"] = of_tickets([slo], PLACES, TIMING, file)

    assert faults(tmp_path_factory.mktemp("edges"), rules, tests) == {}


# --- what needs no series -----------------------------------------------------------------------------------------------------


def test_our_exporters_begin_their_counters_at_zero() -> None:
    assert Requests().outcomes == dict.fromkeys(OUTCOMES, 0)


def test_names_in_rules_are_those_that_exporters_show_with_their_endings() -> None:
    """`vllm:num_preemptions` is exposed as `vllm:num_preemptions_total`: a rule on the name in the source never fires."""
    parts = {"histogram": ("_bucket", "_count", "_sum")}
    shown = {f"{metric.name}{part}" for metric in METRICS for part in parts.get(metric.type, ("",))}
    used = {
        name
        for slo in SAMPLES
        for group in groups(slo, PLACES, TIMING)
        for rule in group["rules"]
        for name in re.findall(r"\btachoscope_\w+", rule["expr"])
    }

    assert used and used <= shown
    assert all(metric.name.endswith("_total") == (metric.type == "counter") for metric in METRICS)


def test_no_shipped_objective_has_a_tier_that_cannot_fire_or_waits_with_for() -> None:
    for slo in slo_files.load([REPOSITORY / "alerts" / "slos"]):
        rules = [rule for group in groups(slo, PLACES, TIMING) for rule in group["rules"]]
        assert tiers(slo) and all(tier.threshold(slo) <= FEASIBLE for tier in tiers(slo))
        assert not any("for" in rule for rule in rules)


def test_every_shipped_latency_has_an_objective_on_failures_beside_it() -> None:
    slos = slo_files.load([REPOSITORY / "alerts" / "slos"])
    latencies = [slo for slo in slos if slo.area == "inference" and isinstance(slo.indicator, AtMost)]
    on_requests = {slo.by for slo in slos if slo.name == "inference-availability"}

    assert latencies and {slo.by for slo in latencies} <= on_requests
