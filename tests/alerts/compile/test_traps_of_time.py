"""Traps of alerting in which time plays a part, or what is counted, as those of test_traps.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT, REQUESTS, SAMPLES
from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events
from tachoscope_alerts.compile.sli_expressions import BAD, TOTAL, error_ratio, recorded
from tachoscope_alerts.spec.burn_rate_windows import DAY, tiers
from trap_making import (
    ANY,
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
    ours, naive = firing(ANY, long="1h"), f"{ratio(ANY, '1h')} > {tiers(ANY)[0].threshold(ANY):g}"
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
    every_third_minute = [part for _ in range(10) for part in (PlantedStretch(1, 1, 0), PlantedStretch(11, 0, 0))]
    with_an_error = [*every_third_minute, PlantedStretch(1, 1, 1), PlantedStretch(11, 0, 0)]
    threshold = f"{tiers(AVAILABILITY)[0].threshold(AVAILABILITY):g}"
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
    assert wrong.get(name, "") == ""
