"""PromQL of objectives, as Prometheus understands it: values of the events that rules record for planted series, and of those that
a report counts from the same raw series.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promtool_running import faults
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, GOODPUT, GPU_EFFICIENCY, PLACES, RECOVERY, SM_ACTIVE
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import (
    BAD,
    ERROR_RATIO,
    PARTS,
    TOTAL,
    UNMEASURED,
    bad_events,
    bound_matcher,
    bound_text,
    error_ratio,
    number,
    recorded,
    total_events,
)
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import AtMost, Ratio, Selector, Slo

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
    "above a bound are all that its bucket does not hold": (
        SM_ACTIVE,
        [
            ('tachoscope_job_sm_active_ratio_bucket{training_job="a",le="0.7"}', "0+5x40"),
            ('tachoscope_job_sm_active_ratio_bucket{training_job="a",le="0.8"}', EVERY_MINUTE),
            ('tachoscope_job_sm_active_ratio_bucket{training_job="a",le="+Inf"}', "0+60x40"),
            ('tachoscope_job_sm_active_ratio_count{training_job="a"}', "0+60x40"),
        ],
        {"bad": 1, "total": 4, "ratio": 0.25},
    ),
    "without the bucket of the bound nothing is good or bad": (
        SM_ACTIVE,
        [
            ('tachoscope_job_sm_active_ratio_bucket{training_job="a",le="0.75"}', "0+5x40"),
            ('tachoscope_job_sm_active_ratio_count{training_job="a"}', "0+60x40"),
        ],
        {"unmeasured": 4},
    ),
    "of two servers the one without the bucket is not measured, and the other is": (
        FIRST_TOKEN,
        [
            ('tachoscope_request_first_token_seconds_bucket{service="s",model="m",instance="a",le="2.5"}', "0+45x40"),
            ('tachoscope_request_first_token_seconds_count{service="s",model="m",instance="a"}', "0+60x40"),
            ('tachoscope_request_first_token_seconds_bucket{service="s",model="m",instance="b",le="2"}', "0+15x40"),
            ('tachoscope_request_first_token_seconds_count{service="s",model="m",instance="b"}', "0+15x40"),
        ],
        {"bad": 1, "total": 4, "ratio": 0.25, "unmeasured": 1},
    ),
    "without the other metric that counts the good ones nothing is good or bad": (
        replace(GOODPUT, indicator=Ratio(total=Selector("a_total"), good=Selector("b_total"))),
        [("a_total", EVERY_MINUTE)],
        {"unmeasured": 1},
    ),
    "without the other metric that counts the bad ones nothing is good or bad": (
        replace(GOODPUT, indicator=Ratio(total=Selector("a_total"), bad=Selector("b_total", {"code": ("500",)}))),
        [("a_total", EVERY_MINUTE)],
        {"unmeasured": 1},
    ),
    "where the other metric is there, a value that it never had is 0": (
        replace(GOODPUT, indicator=Ratio(total=Selector("a_total"), bad=Selector("b_total", {"code": ("500",)}))),
        [("a_total", EVERY_MINUTE), ('b_total{code="404"}', "0x40")],
        {"bad": 0, "total": 1, "ratio": 0},
    ),
    "a job that does no steps has no looks": (
        SM_ACTIVE,
        [
            ('tachoscope_job_sm_active_ratio_bucket{training_job="a",le="0.8"}', "5x40"),
            ('tachoscope_job_sm_active_ratio_count{training_job="a"}', "7x40"),
        ],
        {"bad": 0, "total": 0},
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
    "a value that is not a number is not good": (
        GPU_EFFICIENCY,
        [
            ('tachoscope_gpu_active_ratio{gpu="0",uuid="u0",mig="",unit="sm"}', " ".join(["NaN"] * 61)),
            ('tachoscope_gpu_active_ratio{gpu="1",uuid="u1",mig="",unit="sm"}', "0.9x60"),
            *((f'tachoscope_gpu_workload_info{{gpu="{n}",uuid="u{n}",mig="",training_job="a"}}', "1x60") for n in (0, 1)),
        ],
        {"bad": 1, "total": 2, "ratio": 0.5},
    ),
    "where all are good none is bad": (
        GPU_EFFICIENCY,
        [
            ('tachoscope_gpu_active_ratio{gpu="0",uuid="u0",mig="",unit="sm"}', "0.8x60"),
            ('tachoscope_gpu_workload_info{gpu="0",uuid="u0",mig="",training_job="a"}', "1x60"),
        ],
        {"bad": 0, "total": 1, "ratio": 0},
    ),
}


FROM_RAW = {TOTAL: "raw:total", BAD: "raw:bad"}


def rules_of(slo: Slo) -> dict[str, Any]:
    """Return the rules of an objective's events and their ratio, and the events from raw series alone."""
    labels = {"slo": slo.name, "area": slo.area}
    rules = [rule for rule in groups(slo, PLACES, TIMING)[0]["rules"] if rule.get("record") in {*PARTS, TOTAL, BAD, UNMEASURED}]
    rules.append({"record": ERROR_RATIO, "expr": error_ratio(slo, 120), "labels": {**labels, "window": "2m"}})
    raw = {TOTAL: total_events(slo, TIMING), BAD: bad_events(slo, TIMING)}
    rules += [{"record": FROM_RAW[name], "expr": expression, "labels": labels} for name, expression in raw.items()]
    return {"groups": [{"name": "g", "rules": rules}]}


def document_of(file: str, case: Case) -> dict[str, Any]:
    slo, series, expected = case[0], case[1], dict(case[2])
    minutes = "14m" if slo is GPU_EFFICIENCY else "10m"  # its gate opens after ten minutes
    queries = {"bad": recorded(BAD, slo), "total": recorded(TOTAL, slo), "ratio": recorded(ERROR_RATIO, slo)}
    queries["unmeasured"] = recorded(UNMEASURED, slo)
    queries |= {"bad from raw series": recorded(FROM_RAW[BAD], slo), "total from raw series": recorded(FROM_RAW[TOTAL], slo)}
    expected |= {f"{name} from raw series": expected[name] for name in ("bad", "total") if name in expected}
    tests = []
    for name, query in queries.items():
        wanted = [{"labels": "{}", "value": 1}] if name in expected else []
        asked = f"count(abs({query} - {expected.get(name, 0)}) < 1e-9)" if name in expected else f"count({query})"
        tests.append({"expr": asked, "eval_time": minutes, "exp_samples": wanted})
    block = {"interval": "15s", "input_series": [{"series": s, "values": v} for s, v in series], "promql_expr_test": tests}
    return {"rule_files": [file], "evaluation_interval": "30s", "tests": [block]}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("expressions")
    rules, tests, names = {}, {}, {}
    for place, (name, case) in enumerate(CASES.items()):
        rules[f"{place}.yaml"] = rules_of(case[0])
        tests[f"{place}_test.yaml"] = document_of(f"{place}.yaml", case)
        names[f"{place}_test.yaml"] = name
    return {names[file]: said for file, said in faults(folder, rules, tests).items()}


@pytest.mark.parametrize("name", CASES)
def test_recorded_events(name: str, wrong: dict[str, str]) -> None:
    assert wrong.get(name, "") == ""


def test_a_bound_is_matched_as_exporters_write_it() -> None:
    slo = replace(GOODPUT, indicator=AtMost(Selector("x"), 0.25))

    assert 'le="0.25"' in bad_events(slo, TIMING)
    assert bound_matcher(600) == r'le=~"600(\\.0)?"'


@pytest.mark.parametrize(
    ("bound", "written"),
    [
        (0.1234567, "0.1234567"),
        (123456.5, "123456.5"),
        (1e6, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (2.5e9, "2.5e+09"),
        (1e-5, "1e-05"),
        (1e15, "1e+15"),
    ],
)
def test_a_bound_has_all_its_digits_and_an_exponent_where_exporters_write_one(bound: float, written: str) -> None:
    assert bound_text(bound) == written


@given(st.integers(0, 10**9), st.integers(-6, 6))
def test_of_a_number_that_somebody_wrote_no_digit_is_lost(digits: int, exponent: int) -> None:
    meant = float(f"{digits}e{exponent}")

    assert float(number(meant)) == meant


def test_what_is_left_of_one_is_what_was_meant() -> None:
    assert [number(1 - target) for target in (0.99, 0.999, 0.9999, 0.975)] == ["0.01", "0.001", "0.0001", "0.025"]
