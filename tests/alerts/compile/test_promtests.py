"""The generated tests: promtool passes them on the generated rules, and fails them on rules that are wrong in any one way."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from promtool_running import faults
from sample_slos import AVAILABILITY, CHECKPOINT_AGE, FIRST_TOKEN, FIRST_TOKEN_P95, GOODPUT, PLACES, SAMPLES
from tachoscope_alerts.compile.promtool_tests import of_pages, of_tickets
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo

TIMING = Timing()
Rules = list[dict[str, Any]]


def rules_of(*slos: Slo) -> dict[str, Any]:
    return {"groups": [group for slo in slos for group in groups(slo, PLACES, TIMING)]}


@pytest.mark.bar  # committed alerts pass theirs in test_build
def test_all_alerts_of_all_kinds_of_objectives_pass_their_tests(tmp_path: Path) -> None:
    rules, tests = {}, {}
    for slo in SAMPLES:
        file = f"{slo.name}.yaml"
        rules[file] = rules_of(slo)
        tests[f"{slo.name}_test.yaml"] = of_pages([slo], PLACES, TIMING, file)
        tests[f"{slo.name}_tickets_test.yaml"] = of_tickets([slo], PLACES, TIMING, file)

    assert faults(tmp_path, rules, tests) == {}


@pytest.mark.parametrize("days", [pytest.param(1, marks=pytest.mark.bar), pytest.param(3, marks=pytest.mark.bar), 7])
def test_alerts_of_short_periods_pass_their_tests(days: int, tmp_path: Path) -> None:
    slo = replace(AVAILABILITY, period_days=days)
    tests = {
        "pages_test.yaml": of_pages([slo], PLACES, TIMING, "own.yaml"),
        "tickets_test.yaml": of_tickets([slo], PLACES, TIMING, "own.yaml"),
    }

    assert faults(tmp_path, {"own.yaml": rules_of(slo)}, tests) == {}


@pytest.mark.bar  # so are those of inference-ttft, in test_build
def test_objectives_of_one_spec_are_tested_in_one_file(tmp_path: Path) -> None:
    both = (FIRST_TOKEN, FIRST_TOKEN_P95)

    assert faults(tmp_path, {"both.yaml": rules_of(*both)}, {"both_test.yaml": of_pages(both, PLACES, TIMING, "both.yaml")}) == {}


@pytest.mark.parametrize("slo", SAMPLES, ids=lambda slo: slo.name)
def test_each_severity_of_an_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(slo: Slo) -> None:
    severities = {rule["labels"]["severity"] for group in groups(slo, PLACES, TIMING) for rule in group["rules"] if "alert" in rule}
    blocks = of_pages([slo], PLACES, TIMING, "x")["tests"] + of_tickets([slo], PLACES, TIMING, "x")["tests"]
    expected = [alerts for block in blocks for test in block["alert_rule_test"] for alerts in [test["exp_alerts"]]]

    assert {alert["exp_labels"]["severity"] for alerts in expected for alert in alerts} == severities
    assert any(not any(test["exp_alerts"] for test in block["alert_rule_test"]) for block in blocks)


def every_expression(old: str, new: str) -> Callable[[Rules], None]:
    def change(rules: Rules) -> None:
        for rule in rules:
            rule["expr"] = re.sub(old, new, rule["expr"])

    return change


def without_condition(text: str) -> Callable[[Rules], None]:
    def change(rules: Rules) -> None:
        for rule in rules:
            if "alert" in rule:
                kept = [part for part in rule["expr"].split(" and ignoring (window)\n") if text not in part]
                rule["expr"] = " and ignoring (window)\n".join(kept)

    return change


def without_tier(long: str) -> Callable[[Rules], None]:
    def change(rules: Rules) -> None:
        rules[:] = [rule for rule in rules if rule.get("labels", {}).get("long") != long or "alert" not in rule]

    return change


def annotation(name: str, value: str) -> Callable[[Rules], None]:
    def change(rules: Rules) -> None:
        for rule in rules:
            if "alert" in rule:
                rule["annotations"][name] = value

    return change


def label(name: str, value: str) -> Callable[[Rules], None]:
    def change(rules: Rules) -> None:
        for rule in rules:
            if "alert" in rule:
                rule["labels"][name] = value

    return change


MISTAKES: dict[str, tuple[Slo, Callable[[Rules], None]]] = {
    "a metric's name is misspelt": (AVAILABILITY, every_expression("requests_total", "request_total")),
    "a label's value is misspelt": (AVAILABILITY, every_expression("server_error", "servererror")),
    "good events are taken for bad ones": (GOODPUT, every_expression(r"clamp_min\((.*) - \((.*)\), 0\)$", r"\2")),
    "the bucket is not a boundary": (FIRST_TOKEN, every_expression(r'le="2\.5"', 'le="2"')),
    "what has no value is not counted": (
        CHECKPOINT_AGE,
        every_expression("^count \\(", "count (tachoscope_checkpoint_verified_timestamp_seconds and "),
    ),
    "the gate is left open": (CHECKPOINT_AGE, every_expression(r"\) == 1", ") >= 0")),
    "thresholds are a tenth": (AVAILABILITY, every_expression(r"> 0\.0", "> 0.00")),
    "thresholds are tenfold": (FIRST_TOKEN, every_expression(r"> 0\.", "> 9.")),
    "little traffic is not looked at": (AVAILABILITY, without_condition(">= 5")),
    "history is not looked at": (AVAILABILITY, without_condition("present_over_time")),
    "the tier of an hour is missing": (AVAILABILITY, without_tier("1h")),
    "the tier of a day is missing": (AVAILABILITY, without_tier("1d")),
    "the tier of three days is missing": (AVAILABILITY, without_tier("3d")),
    "the runbook is another": (AVAILABILITY, annotation("runbook_url", "https://runbooks.example.com/Other.md")),
    "the summary has no number": (AVAILABILITY, annotation("summary", "errors")),
    "the owner is another": (AVAILABILITY, label("owner", "nobody")),
}

OF_DAYS = ("the tier of a day is missing", "the tier of three days is missing")
LIKE_OTHERS = ("the tier of three days is missing", "a label's value is misspelt", "the summary has no number")
"""Run by `make bars` only."""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> set[str]:
    """The mistakes that a test found."""
    left_out = LIKE_OTHERS if request.config.getoption("--bar-runs") < 10 else ()
    rules, tests, names = {}, {}, {}
    for number, (name, (slo, mistake)) in enumerate(MISTAKES.items()):
        if name in left_out:
            continue
        document = copy.deepcopy(rules_of(slo))
        for group in document["groups"]:
            mistake(group["rules"])
        assert document != rules_of(slo), f"{name}: nothing is changed"
        rules[f"{number}.yaml"] = document
        made = of_tickets if name in OF_DAYS else of_pages
        tests[f"{number}_test.yaml"] = made([slo], PLACES, TIMING, f"{number}.yaml")
        names[f"{number}_test.yaml"] = name
    found = faults(tmp_path_factory.mktemp("mistakes"), rules, tests)
    return {names[file] for file in found}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.bar(but=[name for name in MISTAKES if name not in LIKE_OTHERS])
def test_a_test_fails_if(name: str, failed: set[str]) -> None:
    assert name in failed
