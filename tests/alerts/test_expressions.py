"""PromQL of objectives, as Prometheus understands it: values of recorded events for planted series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from promtool_running import faults
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT, GPU_EFFICIENCY, RECOVERY
from tachoscope_alerts.expressions import BAD, ERROR_RATIO, TOTAL, bad_events, error_ratio, recorded, total_events
from tachoscope_alerts.slo import AtMost, Ratio, Selector, Slo
from tachoscope_alerts.windows import Timing

TIMING = Timing()
Case = tuple[Slo, list[tuple[str, str]], dict[str, float]]
"""An objective, its series at every 15 s, and after 10 minutes the recorded bad and total events and the ratio, if any."""

EVERY_MINUTE = "0+15x40"  # 15 events in 15 s: one a second
ODD = Selector("tachoscope_requests_total", labels={"outcome": ('a"b', "c\\d", "e.f")})
CASES: dict[str, Case] = {
    "bad events are those of the selector, of all that are not excluded": (
        AVAILABILITY,
        [
            ('tachoscope_requests_total{service="s",model="m",outcome="ok"}', "0+135x40"),
            ('tachoscope_requests_total{service="s",model="m",outcome="shed"}', EVERY_MINUTE),
            ('tachoscope_requests_total{service="s",model="m",outcome="client_error"}', "0+999x40"),
        ],
        {"bad": 1, "total": 10, "ratio": 0.1},
    ),
    "without a series of bad events none was bad": (
        AVAILABILITY,
        [('tachoscope_requests_total{service="s",model="m",outcome="ok"}', EVERY_MINUTE)],
        {"bad": 0, "total": 1, "ratio": 0},
    ),
    "without events there is no ratio": (
        AVAILABILITY,
        [
            ('tachoscope_requests_total{service="s",model="m",outcome="ok"}', "7x40"),
            ('tachoscope_requests_total{service="s",model="m",outcome="shed"}', "7x40"),
        ],
        {"bad": 0, "total": 0},
    ),
    "without series there is nothing": (AVAILABILITY, [], {}),
    "without a series of good events all were bad": (
        GOODPUT,
        [('tachoscope_time_seconds_total{state="hung",rank="0"}', EVERY_MINUTE)],
        {"bad": 1, "total": 1, "ratio": 1},
    ),
    "good events are taken from all": (
        GOODPUT,
        [
            ('tachoscope_time_seconds_total{state="compute",rank="0"}', "0+45x40"),
            ('tachoscope_time_seconds_total{state="data_wait",rank="0"}', EVERY_MINUTE),
            ('tachoscope_time_seconds_total{state="queued",rank="0"}', "0+999x40"),
        ],
        {"bad": 1, "total": 4, "ratio": 0.25},
    ),
    "more good events than events are no negative bad ones": (
        replace(GOODPUT, indicator=Ratio(total=Selector("a_total"), good=Selector("b_total"))),
        [("a_total", EVERY_MINUTE), ("b_total", "0+30x40")],
        {"bad": 0, "total": 1, "ratio": 0},
    ),
    "a bucket holds what is at most its bound": (
        FIRST_TOKEN,
        [
            ('tachoscope_request_first_token_seconds_bucket{service="s",model="m",le="2.5"}', "0+45x40"),
            ('tachoscope_request_first_token_seconds_bucket{service="s",model="m",le="5"}', "0+60x40"),
            ('tachoscope_request_first_token_seconds_bucket{service="s",model="m",le="+Inf"}', "0+60x40"),
            ('tachoscope_request_first_token_seconds_count{service="s",model="m"}', "0+60x40"),
        ],
        {"bad": 1, "total": 4, "ratio": 0.25},
    ),
    "a bound may be written with and without a fraction, and is no other that begins so": (
        RECOVERY,
        [
            ('tachoscope_recovery_seconds_bucket{instance="go",le="600"}', EVERY_MINUTE),
            ('tachoscope_recovery_seconds_bucket{instance="python",le="600.0"}', EVERY_MINUTE),
            ('tachoscope_recovery_seconds_bucket{instance="go",le="6000"}', EVERY_MINUTE),
            ('tachoscope_recovery_seconds_bucket{instance="go",le="600.5"}', EVERY_MINUTE),
            ('tachoscope_recovery_seconds_count{instance="go"}', EVERY_MINUTE),
            ('tachoscope_recovery_seconds_count{instance="python"}', "0+45x40"),
        ],
        {"bad": 2, "total": 4, "ratio": 0.5},
    ),
    "values of labels are taken literally": (
        replace(GOODPUT, indicator=Ratio(total=Selector(ODD.metric), bad=ODD)),
        [
            (f'tachoscope_requests_total{{outcome="{value}"}}', EVERY_MINUTE)
            for value in ('a\\"b', "c\\\\d", "e.f", "exf", "a", "e.f.g")
        ],
        {"bad": 3, "total": 6, "ratio": 0.5},
    ),
    "an entity without a value is bad where that is what counts, once its gate is open long enough": (
        replace(
            CHECKPOINT_AGE,
            indicator=replace(CHECKPOINT_AGE.indicator, gate=replace(CHECKPOINT_AGE.indicator.gate, since_seconds=300)),
        ),
        [
            *((f'tachoscope_job_active{{training_job="{job}",instance="n1"}}', "1x40") for job in ("sound", "never", "old")),
            ('tachoscope_job_active{training_job="sound",instance="n2"}', "1x40"),
            ('tachoscope_job_active{training_job="ended",instance="n1"}', "0x40"),
            ('tachoscope_job_active{training_job="new",instance="n1"}', "0x30 1x10"),
            ('tachoscope_checkpoint_verified_timestamp_seconds{training_job="sound",instance="n1"}', "0+15x40"),
            ('tachoscope_checkpoint_verified_timestamp_seconds{training_job="old",instance="n1"}', "0+15x40"),
            ('tachoscope_checkpoint_verified_timestamp_seconds{training_job="old",instance="n2"}', "-9999x40"),
            ('tachoscope_checkpoint_verified_timestamp_seconds{training_job="ended",instance="n1"}', "-9999x40"),
        ],
        {"bad": 2, "total": 3, "ratio": 2 / 3},
    ),
    "an entity whose gate is shut or unknown does not count, nor one without a value": (
        GPU_EFFICIENCY,
        [
            ('tachoscope_gpu_active_ratio{gpu="0",uuid="u0",mig="",unit="sm"}', "0.5x60"),
            ('tachoscope_gpu_active_ratio{gpu="0",uuid="u0",mig="",unit="tensor"}', "0.9x60"),
            ('tachoscope_gpu_active_ratio{gpu="1",uuid="u1",mig="",unit="sm"}', "0.8x60"),
            ('tachoscope_gpu_active_ratio{gpu="2",uuid="u2",mig="",unit="sm"}', "0.1x60"),
            ('tachoscope_gpu_active_ratio{gpu="3",uuid="u3",mig="",unit="sm"}', "0.1x60"),
            ('tachoscope_gpu_workload_info{gpu="0",uuid="u0",mig="",training_job="a"}', "1x60"),
            ('tachoscope_gpu_workload_info{gpu="1",uuid="u1",mig="",training_job="a"}', "1x60"),
            ('tachoscope_gpu_workload_info{gpu="2",uuid="u2",mig="",training_job=""}', "1x60"),
            ('tachoscope_gpu_workload_info{gpu="4",uuid="u4",mig="",training_job="a"}', "1x60"),
        ],
        {"bad": 1, "total": 2, "ratio": 0.5},
    ),
}


def rules_of(slo: Slo) -> dict[str, Any]:
    labels = {"slo": slo.name, "area": slo.area}
    rules = [
        {"record": TOTAL, "expr": total_events(slo, TIMING), "labels": labels},
        {"record": BAD, "expr": bad_events(slo, TIMING), "labels": labels},
        {"record": ERROR_RATIO, "expr": error_ratio(slo, 120), "labels": {**labels, "window": "2m"}},
    ]
    return {"groups": [{"name": "g", "rules": rules}]}


def document_of(number: int, case: Case) -> dict[str, Any]:
    slo, series, expected = case
    minutes = "14m" if slo is GPU_EFFICIENCY else "10m"  # its gate opens after ten minutes
    queries = {"bad": recorded(BAD, slo), "total": recorded(TOTAL, slo), "ratio": recorded(ERROR_RATIO, slo)}
    tests = []
    for name, query in queries.items():
        wanted = [{"labels": "{}", "value": 1}] if name in expected else []
        asked = f"count(abs({query} - {expected.get(name, 0)}) < 1e-9)" if name in expected else f"count({query})"
        tests.append({"expr": asked, "eval_time": minutes, "exp_samples": wanted})
    block = {"interval": "15s", "input_series": [{"series": s, "values": v} for s, v in series], "promql_expr_test": tests}
    return {"rule_files": [f"{number}.yaml"], "evaluation_interval": "30s", "tests": [block]}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("expressions")
    rules = {f"{number}.yaml": rules_of(case[0]) for number, case in enumerate(CASES.values())}
    tests = {f"{number}_test.yaml": document_of(number, case) for number, case in enumerate(CASES.values())}
    found = faults(folder, rules, tests)
    return {name: found.get(f"{number}_test.yaml", "") for number, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_recorded_events(name: str, wrong: dict[str, str]) -> None:
    assert wrong[name] == ""


def test_a_bound_is_matched_as_exporters_write_it() -> None:
    slo = replace(GOODPUT, indicator=AtMost(Selector("x"), 0.25))

    assert 'le="0.25"' in bad_events(slo, TIMING)
