"""Rule groups of objectives: what promtool thinks of them, what they read, and what an alert carries."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from promtool_running import faults, lint
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, GPU_EFFICIENCY, PLACES, SAMPLES
from tachoscope_alerts.compile.rules import Rule, groups, least_bad
from tachoscope_alerts.compile.sli_expressions import (
    BAD,
    BUDGET_REMAINING,
    ERROR_RATIO,
    LEVELS,
    LONG_SUMS,
    MOMENTS,
    OBJECTIVE,
    PARTS,
    SUMS,
    TOTAL,
    UNMEASURED,
)
from tachoscope_alerts.spec.burn_rate_windows import RAW_LIMIT_SECONDS, Timing, duration, seconds_of, tiers
from tachoscope_alerts.spec.slo import Slo

TIMING = Timing()
DRILL = Timing(interval=1, scrape=0.5, scale=1 / 100)
RECORDED = {UNMEASURED, *PARTS, *(name for level in LEVELS for name in level)}
EACH = pytest.mark.parametrize("slo", SAMPLES, ids=lambda slo: slo.name)


def rules_of(slo: Slo, timing: Timing = TIMING) -> list[Rule]:
    return [rule for group in groups(slo, PLACES, timing) for rule in group["rules"]]


def alerts_of(slo: Slo, timing: Timing = TIMING) -> list[Rule]:
    return [rule for rule in rules_of(slo, timing) if "alert" in rule]


def reads(expression: str) -> list[tuple[str, float]]:
    """Return the range selectors of an expression: metric and seconds."""
    found = re.findall(r"([a-zA-Z_:][\w:]*)(?:\{(?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*\})?\[(\w+)", expression)
    return [(metric, seconds_of(window)) for metric, window in found]


@pytest.mark.parametrize("timing", [TIMING, DRILL], ids=["real", "drill"])
def test_promtool_has_nothing_against_the_rules_of_all_objectives_in_one_file(timing: Timing, tmp_path: Path) -> None:
    document = {"groups": [group for slo in SAMPLES for group in groups(slo, PLACES, timing)]}

    assert lint(tmp_path, {"all.rules.yaml": document}) == ""


def test_promtool_would_have_something_against_two_rules_that_are_alike(tmp_path: Path) -> None:
    document = {"groups": [{"name": "twice", "rules": [{"record": "a:b", "expr": "vector(1)"}] * 2}]}

    assert "duplicate" in lint(tmp_path, {"twice.rules.yaml": document})


@EACH
def test_no_rule_above_six_hours_reads_raw_series(slo: Slo) -> None:
    ranges = [one for rule in rules_of(slo) for one in reads(rule["expr"])]

    assert max(seconds for _, seconds in ranges) == 28 * 86400
    assert {metric for metric, seconds in ranges if seconds > RAW_LIMIT_SECONDS} == {*SUMS, *LONG_SUMS}
    assert all(metric in RECORDED or seconds == TIMING.base for metric, seconds in ranges)


def test_the_ranges_of_an_expression_are_found_behind_any_label() -> None:
    found = reads('a{x="]}[1d]",y=~"\\"}"}[7d] + sum(b[5m:30s]) / c:d[90s] offset 1h')

    assert found == [("a", 7 * 86400), ("b", 300), ("c:d", 90)]


@EACH
def test_windows_are_summed_after_the_events_that_they_sum_in_one_group(slo: Slo) -> None:
    fast, slow, budget = groups(slo, PLACES, TIMING)
    names = [[rule.get("record", "alert") for rule in group["rules"]] for group in (fast, slow, budget)]

    made = [name for name in names[0] if name not in PARTS]
    assert made[:2] == [TOTAL, BAD] and names[0][-len(made) :] == made, "events are made of the parts that were just recorded"
    assert set(names[1][:2]) == {*SUMS}
    assert set(names[2]) == {*LONG_SUMS}
    for some in names[:2]:
        assert "alert" not in some[: len(some) - some[::-1].index(ERROR_RATIO)]
    assert [group["interval"] for group in (fast, slow, budget)] == ["30s", "4m", "30m"]


@EACH
def test_what_is_read_at_an_instant_is_recorded_again_a_minute_before_it_is_out_of_sight(slo: Slo) -> None:
    looked_at = {ERROR_RATIO, BUDGET_REMAINING, OBJECTIVE, *MOMENTS}
    intervals = {
        name: seconds_of(group["interval"])
        for group in groups(slo, PLACES, TIMING)
        for name in looked_at & {rule.get("record") for rule in group["rules"]}
    }

    assert intervals.keys() == looked_at
    assert max(intervals.values()) <= 300 - 60


def samples_read(slo: Slo, timing: Timing) -> list[tuple[str, float]]:
    """Return the recorded series that each window and condition reads, and how many samples of them."""
    made = groups(slo, PLACES, timing)
    every = {rule["record"]: seconds_of(group["interval"]) for group in made for rule in group["rules"] if "record" in rule}
    rules = [rule for rule in rules_of(slo, timing) if rule.get("record") not in RECORDED]
    return [(name, seconds / every[name]) for rule in rules for name, seconds in reads(rule["expr"])]


@EACH
def test_an_evaluation_of_all_rules_reads_some_thousand_recorded_samples_of_a_set_of_labels(slo: Slo) -> None:
    """Prometheus takes some 0.1 us for one. Summed from what is recorded every 30 s it would be 200,000."""
    assert sum(count for _, count in samples_read(slo, TIMING)) < 8_000


@EACH
def test_a_day_is_made_of_sums_of_minutes_and_longer_windows_of_half_hours(slo: Slo) -> None:
    of = {rule["labels"]["window"]: {name for name, _ in reads(rule["expr"])} for rule in rules_of(slo) if is_ratio(rule)}
    alerts = {rule["labels"]["long"]: {name for name, _ in reads(rule["expr"])} for rule in alerts_of(slo)}

    assert of["1d"] == {*SUMS}
    assert of["3d"] == {*LONG_SUMS}
    assert all(names == {*MOMENTS} for window, names in of.items() if window not in {"1d", "3d"})
    assert all(names <= of[window] for window, names in alerts.items())


def is_ratio(rule: Rule) -> bool:
    return rule.get("record") == ERROR_RATIO


@pytest.mark.parametrize("scale", [1.0, 1 / 20, 1 / 100, 1 / 720, 1 / 7200])
def test_in_a_drill_a_window_is_made_of_what_is_fine_enough_for_its_length(scale: float) -> None:
    drill = Timing(interval=0.5, scrape=1.0, scale=scale)
    of_sums = [count for name, count in samples_read(AVAILABILITY, drill) if name not in MOMENTS]

    assert min(of_sums, default=72) >= 54, "72, of which the condition on history reads three quarters"


def test_where_a_day_is_twelve_seconds_it_is_made_of_the_moments() -> None:
    drill = Timing(interval=0.5, scrape=1.0, scale=1 / 7200)
    ratios = [rule["expr"] for rule in rules_of(AVAILABILITY, drill) if is_ratio(rule)]

    assert {name for expression in ratios for name, _ in reads(expression)} == {*MOMENTS}


def test_each_evaluation_is_in_one_sum_and_each_sum_in_one_of_half_an_hour(tmp_path: Path) -> None:
    """Here there is a sample at both ends of each range: promtool evaluates all in the same moment."""
    _, slow, budget = groups(AVAILABILITY, PLACES, TIMING)
    labels = f'{{slo="{AVAILABILITY.name}",area="inference"}}'
    rules, tests = {}, {}
    for name, group, source, into, every in (("slow", slow, MOMENTS, SUMS, "30s"), ("budget", budget, SUMS, LONG_SUMS, "4m")):
        at = 480 * seconds_of(every)
        asked = [
            {
                "expr": f"sum_over_time({one}[{duration(at - 1)}])",
                "eval_time": duration(at),
                "exp_samples": [{"labels": labels, "value": 480}],
            }
            for one in into
        ]
        block = {
            "interval": every,
            "input_series": [{"series": f"{one}{labels}", "values": "1x480"} for one in source],
            "promql_expr_test": asked,
        }
        rules[f"{name}.yaml"] = {"groups": [{**group, "rules": [rule for rule in group["rules"] if rule.get("record") in into]}]}
        tests[f"{name}_test.yaml"] = {
            "rule_files": [f"{name}.yaml"],
            "evaluation_interval": group["interval"],
            "tests": [block],
        }

    assert faults(tmp_path, rules, tests) == {}


@EACH
def test_events_are_made_of_parts_of_one_evaluation_or_of_raw_series(slo: Slo) -> None:
    """vmalert writes what it records elsewhere, and finds it at the next evaluation: no part may be newer than another."""
    parts = {rule["record"]: rule["expr"] for rule in rules_of(slo) if rule.get("record") in PARTS}
    events = [rule["expr"] for rule in rules_of(slo) if rule.get("record") in {BAD, TOTAL, UNMEASURED}]
    read = {name for expression in events for name in re.findall(r"slo:\w+:\w+", expression)}

    assert len(events) >= 2
    assert read == parts.keys()
    assert not any("slo:" in expression for expression in parts.values())
    assert not parts or not any("tachoscope_" in expression for expression in events), "a fleet has many raw series"


@EACH
def test_no_raw_series_is_read_over_a_window_twice_for_the_same(slo: Slo) -> None:
    expressions = [rule["expr"] for rule in rules_of(slo) if rule.get("record") in {*PARTS, BAD, TOTAL, UNMEASURED}]
    rates = [one for expression in expressions for one in re.findall(r"rate\(([^\[]+\[\w+\])\)", expression)]

    assert all(rates.count(one) <= 2 for one in rates), "once with its bucket, and once by itself"


def test_numbers_are_as_exact_as_they_are_meant() -> None:
    slo = replace(AVAILABILITY, target=0.99991234)
    thresholds = [float(text) for alert in alerts_of(slo) for text in re.findall(r"> ([\d.e-]+) and", alert["expr"])]
    said = [rule["expr"] for rule in rules_of(slo)]

    assert thresholds == pytest.approx([tier.threshold(slo) for tier in tiers(slo) for _ in range(2)], rel=1e-11)
    assert "vector(0.99991234)" in said
    assert any(text.endswith("/ 8.766e-05") for text in said), "and not / 8.766000000001686e-05"


@EACH
def test_each_alert_finds_its_windows_recorded_no_later_than_itself(slo: Slo) -> None:
    recorded: set[str] = set()
    for rule in rules_of(slo):
        if rule.get("record") == ERROR_RATIO:
            recorded.add(rule["labels"]["window"])
        elif "alert" in rule:
            assert {rule["labels"]["long"], rule["labels"]["short"]} <= recorded


@EACH
def test_an_objective_records_itself_and_what_is_left_of_its_budget(slo: Slo) -> None:
    records = {rule["record"]: rule for rule in rules_of(slo) if "record" in rule}

    assert float(records[OBJECTIVE]["expr"].removeprefix("vector(").removesuffix(")")) == pytest.approx(slo.target)
    assert records[BUDGET_REMAINING]["expr"].startswith("1 - (") and "[28d]" in records[BUDGET_REMAINING]["expr"]
    assert all(rule["labels"]["slo"] == slo.name and rule["labels"]["area"] == slo.area for rule in records.values())


@EACH
def test_there_is_one_alert_for_each_tier_under_one_name_with_all_that_a_person_needs(slo: Slo) -> None:
    alerts = alerts_of(slo)
    wanted = {(tier.severity, duration(tier.long_seconds), duration(tier.short_seconds)) for tier in tiers(slo)}

    assert {(a["labels"]["severity"], a["labels"]["long"], a["labels"]["short"]) for a in alerts} == wanted
    assert len(alerts) == len(wanted)
    for alert in alerts:
        assert alert["alert"] == slo.alert
        assert alert["labels"].keys() == {"severity", "area", "slo", "owner", "long", "short"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
        assert alert["annotations"]["runbook_url"] == f"{PLACES.runbook_base}/{slo.alert}.md"
        assert "for" not in alert and alert["keep_firing_for"] == "5m"


def test_scaled_down_windows_shrink_and_thresholds_names_and_labels_stay() -> None:
    real, drill = alerts_of(AVAILABILITY), alerts_of(AVAILABILITY, DRILL)

    assert [alert["labels"] for alert in real] == [alert["labels"] for alert in drill]
    assert [re.findall(r"> ([\d.]+)", alert["expr"]) for alert in real] == [
        re.findall(r"> ([\d.]+)", alert["expr"]) for alert in drill
    ]
    longest = {
        timing: max(s for rule in rules_of(AVAILABILITY, timing) for _, s in reads(rule["expr"])) for timing in (TIMING, DRILL)
    }
    assert longest[DRILL] == longest[TIMING] / 100
    assert {alert["keep_firing_for"] for alert in drill} == {"3s"}


def test_events_are_as_few_in_a_drill_and_minutes_are_shorter() -> None:
    timed = replace(GPU_EFFICIENCY, least_bad_events=10)

    assert least_bad(AVAILABILITY, DRILL) == least_bad(AVAILABILITY, TIMING) == 5
    assert least_bad(timed, TIMING) == 600
    assert least_bad(timed, DRILL) == 6


def test_the_least_of_bad_time_is_in_minutes_of_entities(tmp_path: Path) -> None:
    """Two jobs are bad: 10 minutes of time are reached after 5, whatever the interval of the evaluations is."""
    slo = replace(CHECKPOINT_AGE, least_bad_events=10)
    series: list[dict[str, Any]] = []
    for job in ("a", "b"):
        series.append({"series": f'tachoscope_job_active{{training_job="{job}"}}', "values": "1x600"})
    rules, tests = {}, {}
    for seconds in (30, 60):
        timing = Timing(interval=seconds)
        rules[f"{seconds}.yaml"] = {"groups": groups(slo, PLACES, timing)[:1]}
        count = f'count(ALERTS{{alertname="{slo.alert}",severity="page"}})'
        asked = [
            {"expr": count, "eval_time": at, "exp_samples": [{"labels": "{}", "value": n}] if n else []}
            for at, n in (("62m", 0), ("66m", 2))
        ]
        block = {"interval": "15s", "input_series": series, "promql_expr_test": asked}
        tests[f"{seconds}_test.yaml"] = {"rule_files": [f"{seconds}.yaml"], "evaluation_interval": f"{seconds}s", "tests": [block]}

    assert faults(tmp_path, rules, tests) == {}
