"""What is built: files that the field's tools pass, the same bytes each time, nothing that was removed; and what is committed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_rule_manifests import refused
from test_rules import reads

from helpers import REPOSITORY
from promtool_running import faults
from sample_slos import AVAILABILITY, FIRST_TOKEN, FIRST_TOKEN_P95, GOODPUT
from tachoscope_alerts.build import HEADER, contents, has_manifests, stale, write
from tachoscope_alerts.compile import event_alerts, recordings
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, RAW_LIMIT_SECONDS, Timing
from tachoscope_core import yaml_text

ALERTS = REPOSITORY / "alerts"
GENERATED = ALERTS / "generated"
SLOS = (AVAILABILITY, FIRST_TOKEN, FIRST_TOKEN_P95, GOODPUT)
POLICY = policy.load(ALERTS / "policy.yaml")
EVENTS = event_alerts.load(ALERTS / "events")
TIMING = Timing()
UNITS = {"d": DAY, "h": HOUR, "m": 60.0, "s": 1.0}


def test_each_spec_and_each_group_of_events_has_its_rules_their_tests_and_a_manifest(tmp_path: Path) -> None:
    made = {str(path.relative_to(tmp_path)) for path in write(contents(SLOS, EVENTS, POLICY, TIMING, manifests=True), tmp_path)}

    for name in ("inference-availability", "inference-ttft", "training-goodput"):
        endings = (".rules.yaml", "_test.yaml", "_tickets_test.yaml")
        assert {f"prometheus/{name}{ending}" for ending in endings} | {f"kubernetes/{name}.yaml"} <= made
    for group in {event.group for event in EVENTS}:
        assert {
            f"prometheus/events-{group}.rules.yaml",
            f"prometheus/events-{group}_test.yaml",
            f"kubernetes/events-{group}.yaml",
        } <= made
    assert "alertmanager.yaml" in made
    assert all((tmp_path / name).read_text().startswith(HEADER) for name in made)


def test_a_build_gives_the_same_bytes_again_and_the_check_finds_nothing(tmp_path: Path) -> None:
    write(contents(SLOS, EVENTS, POLICY, TIMING), tmp_path)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    write(contents(tuple(SLOS), list(EVENTS), POLICY, TIMING), tmp_path)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")} == first
    assert stale(contents(SLOS, EVENTS, POLICY, TIMING), tmp_path) == []


def test_the_check_names_what_a_build_would_change_write_or_remove(tmp_path: Path) -> None:
    write(contents(SLOS, EVENTS, POLICY, TIMING, manifests=True), tmp_path)
    (tmp_path / "alertmanager.yaml").unlink()
    changed = [replace(AVAILABILITY, target=0.99), FIRST_TOKEN, FIRST_TOKEN_P95]

    names = {
        str(path.relative_to(tmp_path))
        for path in stale(contents(changed, EVENTS, POLICY, TIMING, manifests=has_manifests(tmp_path)), tmp_path)
    }

    of_target = {"prometheus/inference-availability.rules.yaml", "kubernetes/inference-availability.yaml"}
    assert of_target <= names and "alertmanager.yaml" in names
    assert {name for name in names if "goodput" in name} == {
        "prometheus/training-goodput.rules.yaml",
        "prometheus/training-goodput_test.yaml",
        "prometheus/training-goodput_tickets_test.yaml",
        "kubernetes/training-goodput.yaml",
    }
    assert not {name for name in names if "ttft" in name}


def test_rules_of_an_objective_that_is_no_more_are_removed_and_files_of_others_are_not(tmp_path: Path) -> None:
    write(contents(SLOS, EVENTS, POLICY, TIMING), tmp_path)
    own = tmp_path / "prometheus" / "own.rules.yaml"
    own.write_text("groups: []\n")
    write(contents([AVAILABILITY], EVENTS, POLICY, TIMING), tmp_path)

    there = {path.name for path in (tmp_path / "prometheus").iterdir()}
    assert "own.rules.yaml" in there and "inference-availability.rules.yaml" in there
    assert not {name for name in there if "goodput" in name or "ttft" in name}


# --- what is committed --------------------------------------------------------------------------------------------------------


def shipped(pattern: str) -> list[Path]:
    found = sorted(GENERATED.glob(pattern))
    assert found, f"{GENERATED} has no {pattern}: make generate"
    return found


def test_what_is_committed_is_what_its_sources_give() -> None:
    recorded = recordings.load(ALERTS / "recordings.yaml")

    assert stale(contents(slo_files.load([ALERTS / "slos"]), EVENTS, POLICY, TIMING, recorded), GENERATED) == []


def test_promtool_has_nothing_against_the_committed_rules() -> None:
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, shipped("prometheus/*.rules.yaml"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout + done.stderr


def test_amtool_takes_the_committed_configuration() -> None:
    done = subprocess.run(
        ["amtool", "check-config", *map(str, shipped("alertmanager.yaml"))], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


# Tickets of objectives take days of samples; those of each kind of objective are tested in test_promtests.py.
@pytest.mark.parametrize("tickets", [False, pytest.param(True, marks=pytest.mark.bar)])
def test_every_committed_alert_passes_its_tests(tickets: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    rules = {path.name: yaml_text.load(path.read_text()) for path in shipped("prometheus/*.rules.yaml")}
    files = [path for path in shipped("prometheus/*_test.yaml") if path.name.endswith("_tickets_test.yaml") == tickets]
    tests = {path.name: yaml_text.load(path.read_text()) for path in files}
    if request.config.getoption("--bar-runs") < 10:
        tests = {part: document for name, each in tests.items() for part, document in long_ones_evaluated_less_often(name, each)}

    assert faults(tmp_path, rules, tests) == {}


def long_ones_evaluated_less_often(name: str, document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tests of a file apart: of events whose tests last for hours, an evaluation in five minutes shows the same."""
    long = [block for block in document["tests"] if name.startswith("events-") and last_look(block) >= 4 * HOUR]
    parts = {
        name: (document["evaluation_interval"], [block for block in document["tests"] if block not in long]),
        f"long-{name}": ("5m", long),
    }
    for part, (interval, blocks) in parts.items():
        if blocks:
            yield part, {**document, "evaluation_interval": interval, "tests": blocks}


def last_look(block: dict[str, Any]) -> float:
    """Return the seconds from the begin of a test to its last look."""
    times = [look["eval_time"] for kind in ("alert_rule_test", "promql_expr_test") for look in block.get(kind, ())]
    return max(sum(int(count) * UNITS[unit] for count, unit in re.findall(r"(\d+)([dhms])", time)) for time in times)


def test_every_committed_alert_has_a_test_in_which_it_fires_and_one_in_which_it_is_quiet() -> None:
    alerts, fires, quiet = set(), set(), set()
    for path in shipped("prometheus/*.yaml"):
        document = yaml_text.load(path.read_text())
        alerts |= {rule["alert"] for group in document.get("groups", []) for rule in group["rules"] if "alert" in rule}
        for block in document.get("tests", []):
            for test in block.get("alert_rule_test", []):
                (fires if test["exp_alerts"] else quiet).add(test["alertname"])
            for test in block.get("promql_expr_test", []):
                fires |= set(re.findall(r'^ALERTS\{alertname="(\w+)"', test["expr"]))

    assert alerts == fires
    assert alerts - quiet <= {"Watchdog"}


def test_annotations_of_committed_event_alerts_say_in_a_number_what_is_wrong_and_who_is_affected(tmp_path: Path) -> None:
    """promtool prints what an alert carries where another was expected."""
    rules = {path.name: yaml_text.load(path.read_text()) for path in (GENERATED / "prometheus").glob("*.rules.yaml")}
    tests, names = {}, {}
    affected: dict[str, list[str]] = {}
    for group in dict.fromkeys(event.group for event in EVENTS):
        document = yaml_text.load((GENERATED / "prometheus" / f"events-{group}_test.yaml").read_text())
        blocks = []
        for event in (event for event in EVENTS if event.group == group):
            block = next(block for block in document["tests"] if block["name"].startswith(f"{event.alert} fires: "))
            affected[event.alert] = [
                value
                for label, value in next(test["labels"] for fires, test in event_alerts.tests_of(event) if fires).items()
                if label not in {"reason", "action", "state"}
            ]
            wanted = {"alertname": event.alert, "eval_time": block["promql_expr_test"][0]["eval_time"], "exp_alerts": []}
            blocks.append({**block, "promql_expr_test": [], "alert_rule_test": [wanted]})
            names[event.alert] = f"events-{group}_test.yaml"
        tests[f"events-{group}_test.yaml"] = {**document, "tests": blocks}
    said = faults(tmp_path, rules, tests)

    for alert, file in names.items():
        got = re.findall(rf"alertname: {alert},.*?got:\[(.*?)\]\s*(?=\n|$)", said[file], flags=re.DOTALL)
        assert got, f"{alert}: {said[file]}"
        for text in got:
            assert all(f'{name}="' in text for name in ("summary", "description", "runbook_url", "dashboard_url")), text
            assert "error expanding" not in text and "<no value>" not in text, text
            assert f"/{alert}.md" in text
            (summary,) = re.findall(r'summary="((?:[^"\\]|\\.)*)"', text)
            assert re.search(r"\d", summary) and len(summary) <= 200, summary
            assert not re.search(r"NaN|\{\{|%!|  ", summary), summary
            assert not affected[alert] or any(value in summary for value in affected[alert]), summary


def test_no_committed_rule_reads_raw_series_over_more_than_six_hours() -> None:
    for path in shipped("prometheus/*.rules.yaml"):
        for group in yaml_text.load(path.read_text())["groups"]:
            for rule in group["rules"]:
                raw = [(metric, seconds) for metric, seconds in reads(rule["expr"]) if seconds > RAW_LIMIT_SECONDS]
                assert all(metric.startswith("slo:") for metric, _ in raw), f"{path.name}: {rule}"


def test_the_operator_takes_every_manifest_of_what_is_shipped() -> None:
    slos, recorded = slo_files.load([ALERTS / "slos"]), recordings.load(ALERTS / "recordings.yaml")
    made = contents(slos, EVENTS, POLICY, TIMING, recorded, manifests=True)
    manifests = {name: text for name, text in made.items() if name.startswith("kubernetes/")}

    assert len(manifests) == len(shipped("prometheus/*.rules.yaml"))
    for name, text in manifests.items():
        assert refused(yaml_text.load(text)) == [], name


def test_manifests_are_written_on_demand_and_kept_current_from_then_on(tmp_path: Path) -> None:
    write(contents(SLOS, EVENTS, POLICY, TIMING), tmp_path)
    assert not (tmp_path / "kubernetes").exists()

    write(contents(SLOS, EVENTS, POLICY, TIMING, manifests=True), tmp_path)
    write(contents([AVAILABILITY], (), POLICY, TIMING, manifests=has_manifests(tmp_path)), tmp_path)
    assert [path.name for path in (tmp_path / "kubernetes").iterdir()] == ["inference-availability.yaml"]


@pytest.mark.parametrize("objective", slo_files.load([ALERTS / "slos"]), ids=lambda slo: slo.name)
def test_each_shipped_objective_has_rules_of_its_own(objective: object) -> None:
    made = contents([objective], [], POLICY, TIMING)  # type: ignore[list-item]

    assert any(name.endswith(".rules.yaml") for name in made)
