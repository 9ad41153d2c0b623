"""The traps of burn-rate alerting, each with series in which the usual rule falls into it; our real rules, through promtool.

A block asks two things of the same series: what the usual expression says, which is wrong, and what our rules say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers import REPOSITORY
from promtool_running import faults
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT, PLACES, RECOVERY, REQUESTS, SAMPLES
from tachoscope_alerts import events, openslo
from tachoscope_alerts.expressions import BAD, ERROR_RATIO, TOTAL, error_ratio, quoted, recorded
from tachoscope_alerts.planted_series import Stretch, of_events
from tachoscope_alerts.promtests import of_pages, of_tickets
from tachoscope_alerts.rules import Rule, groups
from tachoscope_alerts.slo import AtMost, Selector, Slo
from tachoscope_alerts.windows import DAY, TIERS, Timing, duration, seconds_of, tiers
from tachoscope_core.names import METRICS
from tachoscope_core.serving_metrics import OUTCOMES
from tachoscope_node.service_state import Requests

TIMING = Timing()
EVENTS = events.load(REPOSITORY / "alerts" / "events")
Trap = tuple[dict[str, Any], list[dict[str, Any]]]
"""Rules, and blocks of a test."""
TRAPS: dict[str, Callable[[], Trap]] = {}
ANY = replace(AVAILABILITY, least_bad_events=0)
"""An objective whose alerts look at no number of events."""


def trap(make: Callable[[], Trap]) -> Callable[[], Trap]:
    TRAPS[make.__name__] = make
    return make


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    rules, tests = {}, {}
    for name, make in TRAPS.items():
        document, blocks = make()
        rules[f"{name}.yaml"] = document
        order = [group["name"] for group in document["groups"]]
        tests[f"{name}_test.yaml"] = {
            "rule_files": [f"{name}.yaml"],
            "evaluation_interval": "30s",
            "group_eval_order": order,
            "tests": blocks,
        }
    return faults(tmp_path_factory.mktemp("traps"), rules, tests)


# --- words for the traps ------------------------------------------------------------------------------------------------------


def rules_of(*slos: Slo, more: tuple[Rule, ...] = (), before: tuple[Rule, ...] = (), days: bool = False) -> dict[str, Any]:
    """Return the rules of objectives up to six hours, or all; with rules evaluated `before` them or after."""
    found = [group for slo in slos for group in groups(slo, PLACES, TIMING)[: 2 if days else 1]]
    found = [{"name": "before", "rules": list(before)}, *found, {"name": "more", "rules": list(more)}]
    return {"groups": [group for group in found if group["rules"]]}


def block(series: list[dict[str, str]], *asked: dict[str, Any]) -> dict[str, Any]:
    return {"interval": "15s", "input_series": series, "promql_expr_test": list(asked)}


def some(expression: str, at: str) -> dict[str, Any]:
    return {"expr": f"count({expression}) > bool 0", "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}


def nothing(expression: str, at: str) -> dict[str, Any]:
    return {"expr": expression, "eval_time": at, "exp_samples": []}


def about(expression: str, value: float, at: str, off: float = 0.02) -> dict[str, Any]:
    """Ask that an expression has a value within a part of it."""
    return some(f"abs({expression} - {value:g}) <= {off * value:g}", at)


def firing(slo: Slo, **labels: str) -> str:
    wanted = {"alertname": slo.alert, "alertstate": "firing", "slo": slo.name, **labels}
    return f"ALERTS{{{','.join(f'{name}={quoted(value)}' for name, value in wanted.items())}}}"


def ratio(slo: Slo, window: str) -> str:
    return recorded(ERROR_RATIO, slo, window=window)


def minutes(count: float, total: float, bad: float, *, restart: bool = False) -> Stretch:
    """Return minutes with so many events each."""
    return Stretch(round(4 * count), total / 4, bad / 4, restart=restart)


def one(series: str, values: str) -> dict[str, str]:
    return {"series": series, "values": values}


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
    slo = replace(ANY, target=0.99, period_days=7)
    naive = f"{ratio(slo, '1h')} > {14.4 * 0.01:g}"
    outage = of_events(slo, [minutes(20, 1000, 50)])
    return rules_of(slo), [block(outage, nothing(naive, "20m"), some(firing(slo, severity="page", long="1h"), "20m"))]


@trap
def short_history_in_which_days_are_as_long_as_an_hour() -> Trap:
    day = TIERS[2]
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


def of_event(name: str) -> dict[str, Any]:
    return {"groups": groups_of_events([event for event in EVENTS if event.alert == name])}


def groups_of_events(chosen: list[events.EventAlert]) -> list[dict[str, Any]]:
    assert chosen, "the alert is not among alerts/events"
    return events.groups(chosen, PLACES, TIMING)


@trap
def a_service_that_is_all_down_and_therefore_counts_as_nothing() -> Trap:
    series = [one(f'tachoscope_server_up{{service="chat",instance="n{n}"}}', "1x280 stale") for n in (1, 2)]
    naive = "count by (service) (tachoscope_server_up == 1) < 2"
    asked = (nothing(naive, "85m"), some('ALERTS{alertname="InferenceDown",alertstate="firing",service="chat"}', "85m"))
    return of_event("InferenceDown"), [block(series, *asked)]


@trap
def a_bucket_that_no_histogram_has() -> Trap:
    """An alert on it would be dead; ours takes all for bad, so that its first test shows it (and the lint before)."""
    metric = "tachoscope_request_first_token_seconds"
    slo = replace(FIRST_TOKEN, name="no-boundary", indicator=AtMost(Selector(metric), 2.0))
    labels = 'service="s",model="m"'
    series = [one(f'{metric}_bucket{{{labels},le="{le}"}}', f"0+{n}x60") for le, n in (("1", 60), ("2.5", 90), ("+Inf", 100))]
    series.append(one(f"{metric}_count{{{labels}}}", "0+100x60"))
    naive = f'1 - sum(rate({metric}_bucket{{le="2"}}[1m])) / sum(rate({metric}_count[1m])) > 0.01'
    return rules_of(slo, FIRST_TOKEN), [
        block(series, nothing(naive, "10m"), about(ratio(slo, "5m"), 1, "10m"), about(ratio(FIRST_TOKEN, "5m"), 0.1, "10m"))
    ]


# --- 11 to 16: time -----------------------------------------------------------------------------------------------------------


@trap
def faults_that_come_and_go_faster_than_an_alert_waits() -> Trap:
    naive = ({"alert": "Naive", "expr": f"{BAD} / {TOTAL} > 0.01344", "for": "5m"},)
    flapping = of_events(ANY, [part for _ in range(8) for part in (minutes(3, 1000, 100), minutes(2, 1000, 0))])
    ours = f"count_over_time({firing(ANY, long='1h')}[20m]) >= 40"
    never = 'count_over_time(ALERTS{alertname="Naive",alertstate="firing"}[40m])'
    return rules_of(ANY, more=naive), [block(flapping, nothing(never, "40m"), some(ours, "40m"))]


@trap
def one_long_window_that_fires_on_long_after_the_fault_is_mended() -> Trap:
    """10 % at 99.9 %: 8.6 minutes by theory. Only the tier of an hour is looked at: there is no more history than that."""
    traffic = of_events(ANY, [minutes(60, 1000, 0), minutes(20, 1000, 100), minutes(45, 1000, 0)])
    ours, naive = firing(ANY, long="1h"), f"{ratio(ANY, '1h')} > {TIERS[0].threshold(ANY):g}"
    asked = (
        nothing(ours, "66m"),
        some(ours, "70m"),
        some(ours, "80m"),
        nothing(ours, "91m"),
        some(naive, "91m"),
        some(naive, "121m"),
    )
    return rules_of(ANY), [block(traffic, *asked)]


@trap
def little_traffic_in_which_one_error_is_a_third_of_all() -> Trap:
    every_third_minute = [part for _ in range(10) for part in (Stretch(1, 1, 0), Stretch(11, 0, 0))]
    with_an_error = [*every_third_minute, Stretch(1, 1, 1), Stretch(11, 0, 0)]
    threshold = f"{TIERS[0].threshold(AVAILABILITY):g}"
    naive = f"{ratio(AVAILABILITY, '1h')} > {threshold} and ignoring (window) {ratio(AVAILABILITY, '5m')} > {threshold}"
    traffic = of_events(AVAILABILITY, with_an_error)
    return rules_of(AVAILABILITY), [block(traffic, some(naive, "32m"), nothing(firing(AVAILABILITY), "32m"))]


@trap
def rules_that_read_what_another_group_has_not_written_yet() -> Trap:
    naive = ({"record": "naive:error:ratio", "expr": error_ratio(ANY, 300)},)
    traffic = of_events(ANY, [minutes(5, 1000, 10)])
    return rules_of(ANY, before=naive), [block(traffic, nothing("naive:error:ratio", "30s"), about(ratio(ANY, "5m"), 0.01, "30s"))]


@trap
def a_slice_whose_series_vanishes_and_which_is_then_no_bad_time() -> Trap:
    gate = replace(CHECKPOINT_AGE.indicator.gate, since_seconds=0.0)  # type: ignore[union-attr]
    slo = replace(CHECKPOINT_AGE, indicator=replace(CHECKPOINT_AGE.indicator, gate=gate))
    metric = "tachoscope_checkpoint_verified_timestamp_seconds"
    series = [one('tachoscope_job_active{training_job="a"}', "1x80"), one(f'{metric}{{training_job="a"}}', "0+15x40 stale")]
    naive = f"1 - avg_over_time((time() - {metric} < bool 3600)[20m:30s])"
    asked = (some(f"{naive} == 0", "20m"), about(ratio(slo, "1h"), 0.5, "20m", off=0.05), some(firing(slo), "20m"))
    return rules_of(slo), [block(series, *asked)]


@trap
def scrapes_that_are_lost() -> Trap:
    values = " ".join("_" if n % 2 == 0 else str(100 * n) for n in range(81))
    series = [one(f'{REQUESTS}{{service="s",model="m",outcome="{outcome}"}}', values) for outcome in ("ok", "server_error")]
    naive = f"count_over_time(rate({REQUESTS}[30s])[10m:30s]) >= 10"
    return rules_of(ANY), [
        block(
            series,
            nothing(naive, "20m"),
            some(f"count_over_time({recorded(TOTAL, ANY)}[10m]) >= 20", "20m"),
            some(firing(ANY), "20m"),
        )
    ]


# --- 17 to 22: what is counted ------------------------------------------------------------------------------------------------


@trap
def a_gauge_of_the_last_xid_on_which_the_second_of_a_kind_is_not_to_be_seen() -> Trap:
    labels = 'gpu="3",uuid="GPU-3",instance="n1"'
    series = [
        one(f"DCGM_FI_DEV_XID_ERRORS{{{labels}}}", "0x20 79x100"),
        one(f'tachoscope_gpu_xid_errors_total{{{labels},xid="79"}}', "_x20 1x20 2x80"),
        one(f'tachoscope_gpu_health_reason_info{{{labels},reason="xid_79",action="reboot_node"}}', "_x20 1x40 stale"),
    ]
    ours = 'ALERTS{alertname="GpuXidError",alertstate="firing",reason="xid_79"}'
    asked = (
        some("changes(DCGM_FI_DEV_XID_ERRORS[29m]) == 1", "29m"),
        some("tachoscope_gpu_xid_errors_total == 2", "29m"),
        some(ours, "8m"),
        some("DCGM_FI_DEV_XID_ERRORS > 0", "29m"),
        nothing(ours, "29m"),
    )
    return of_event("GpuXidError"), [block(series, *asked)]


@trap
def samples_that_are_deleted_before_the_period_is_over() -> Trap:
    def prometheus(instance: str, kept: float) -> list[dict[str, str]]:
        return [
            one(f'prometheus_tsdb_lowest_timestamp_seconds{{instance="{instance}"}}', f"{-kept:.0f}x40"),
            one(f'prometheus_tsdb_time_retentions_total{{instance="{instance}"}}', "3x40"),
            one(f'prometheus_tsdb_size_retentions_total{{instance="{instance}"}}', "0x40"),
        ]

    longest = max(slo.period_days * DAY for slo in SAMPLES)
    ours = 'ALERTS{alertname="PrometheusRetentionShort",alertstate="firing",instance="%s"}'
    series = prometheus("default", 15 * DAY) + prometheus("just", longest) + prometheus("long", 40 * DAY)
    return of_event("PrometheusRetentionShort"), [
        block(series, some(ours % "default", "8m"), some(ours % "just", "8m"), nothing(ours % "long", "8m"))
    ]


@trap
def a_hung_job_that_hides_itself_because_its_denominator_hangs_too() -> Trap:
    metric = "tachoscope_time_seconds_total"
    series = [
        one(f'{metric}{{training_job="a",rank="0",state="compute"}}', "0+14x40 560x40"),
        one(f'{metric}{{training_job="a",rank="0",state="data_wait"}}', "0+1x40 40x40"),
        # The agent counts this one, which lives.
        one(f'{metric}{{training_job="a",rank="0",state="hung"}}', "0x40 0+15x40"),
    ]
    of_job = f'sum(rate({metric}{{state!="hung"}}[5m]))'
    naive = f'(1 - sum(rate({metric}{{state="compute"}}[5m])) / ({of_job} > 0)) > 0.5'
    asked = (nothing(naive, "20m"), about(ratio(GOODPUT, "5m"), 1, "20m"), some(f"{ratio(GOODPUT, '1h')} > 0.5", "20m"))
    return rules_of(GOODPUT), [block(series, *asked)]


@trap
def latencies_of_the_successful_that_get_better_as_requests_fail() -> Trap:
    answered = of_events(FIRST_TOKEN, [minutes(20, 500, 0)])
    requests = of_events(ANY, [minutes(20, 1000, 500)])
    return rules_of(FIRST_TOKEN, ANY), [
        block(
            answered + requests,
            about(f"{ratio(FIRST_TOKEN, '1h')} + 1", 1, "20m"),
            nothing(firing(FIRST_TOKEN), "20m"),
            some(firing(ANY), "20m"),
        )
    ]


@pytest.mark.parametrize("name", TRAPS)
def test_we_do_not_fall_into(name: str, wrong: dict[str, str]) -> None:
    assert wrong.get(f"{name}_test.yaml", "") == ""


def left_open(document: dict[str, Any]) -> dict[str, Any]:
    """Return rules whose windows lack the sample at their beginning, as those of Prometheus 3 do."""

    def shorter(match: re.Match[str]) -> str:
        return f"[{duration(seconds_of(match[1]) - 0.001)}]"

    changed = [
        {**group, "rules": [{**rule, "expr": re.sub(r"\[(\w+)\]", shorter, rule["expr"])} for rule in group["rules"]]}
        for group in document["groups"]
    ]
    return {"groups": changed}


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
    for slo in openslo.load([REPOSITORY / "alerts" / "slos"]):
        rules = [rule for group in groups(slo, PLACES, TIMING) for rule in group["rules"]]
        assert tiers(slo) and all(tier.threshold(slo) < 0.9 for tier in tiers(slo))
        assert not any("for" in rule for rule in rules)


def test_every_shipped_latency_has_an_objective_on_failures_beside_it() -> None:
    slos = openslo.load([REPOSITORY / "alerts" / "slos"])
    latencies = [slo for slo in slos if slo.area == "inference" and isinstance(slo.indicator, AtMost)]
    on_requests = {slo.by for slo in slos if slo.name == "inference-availability"}

    assert latencies and {slo.by for slo in latencies} <= on_requests
