"""Alerts on events fire in their fault and are quiet in what only looks like it, and tell whom they wake what is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from event_cases import RECORDINGS, Case, alerts, block, cases_of, files, promtool, promtool_test, write_rules
from tachoscope_alerts.compile import recordings
from tachoscope_core.metrics.agent import ERROR_PARTS
from tachoscope_core.metrics.catalogue import METRICS
from tachoscope_core.metrics.gpu import ACTIONS, GPU_UNITS, THROTTLE_REASONS
from tachoscope_core.metrics.metric import IDENTITY, PROMETHEUS_LABELS, Metric
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_node.gpu.health.rules import thresholds
from tachoscope_node.gpu.reading import FAULTS
from tachoscope_node.gpu.xid.counter import about
from trying import each

ALERTS = alerts()
PAGES = sorted(name for name, alert in ALERTS.items() if alert["severity"] == "page")
KEYS = {
    *("alert", "severity", "area", "owner", "slo", "expr", "keep_firing_for", "labels", "summary", "description", "dashboard"),
    *("source", "tests", "also"),
}
OWNERS = {"training-infrastructure", "gpu-fleet", "storage", "inference-serving", "observability"}
OF_OTHERS: dict[str, set[str]] = {
    "slo:unmeasured_events:base": {"slo", "area", "service", "model", *IDENTITY},
    "up": set(),
    "ALERTS": {"alertname", "alertstate", "training_job"},
    "node_uname_info": {"nodename"},
    "prometheus_tsdb_lowest_timestamp_seconds": set(),
    "prometheus_tsdb_retention_limit_seconds": set(),
    "prometheus_tsdb_size_retentions_total": set(),
    "prometheus_tsdb_time_retentions_total": set(),
    "slo:total_events:base": {"slo", "area", "service", "model", *IDENTITY},
    "slo:total_events:sum30m": {"slo", "area", "service", "training_job", *IDENTITY},
    **{one.name: set(one.labels) for one in RECORDINGS},
}
"""Series that are not the agent's: of Prometheus, of the node exporter, and what rules record."""
LANGUAGE = {
    *("and", "or", "unless", "offset", "count", "sum", "min", "max", "avg", "time", "vector", "rate", "increase", "predict_linear"),
    *("bool", "max_over_time", "min_over_time", "avg_over_time", "count_over_time", "absent_over_time", "label_replace"),
    *("last_over_time", "sum_over_time", "present_over_time"),
}
ENUMERATIONS: dict[tuple[str, str], set[str]] = {
    ("tachoscope_gpu_health_reason_info", "reason"): {*thresholds().rules, *FAULTS, "gpus_missing"},
    ("tachoscope_gpu_health_reason_info", "action"): set(ACTIONS),
    ("tachoscope_gpu_throttled", "reason"): set(THROTTLE_REASONS),
    ("tachoscope_gpu_active_ratio", "unit"): set(GPU_UNITS),
    ("tachoscope_agent_errors_total", "part"): set(ERROR_PARTS),
    ("tachoscope_bottleneck_ratio", "class"): set(BY_SLUG),
}
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


# --- what promtool says -------------------------------------------------------------------------------------------------------


@needs_promtool
def test_prometheus_takes_all_rules_without_a_complaint(tmp_path: Path) -> None:
    write_rules(tmp_path / "rules.yaml", ALERTS.values(), annotated=True)
    done = promtool(tmp_path, "check", "rules", "--lint=all", "rules.yaml")

    assert done.returncode == 0, done.stdout + done.stderr
    read = recordings.needed([alert["expr"] for alert in ALERTS.values()], RECORDINGS)
    assert f"{len(ALERTS) + len(read)} rules found" in done.stdout


@pytest.fixture(scope="module")
def firing() -> dict[str, list[Case]]:
    """Return the faults of each alert."""
    return {name: [case for case in cases_of(alert) if case.fires] for name, alert in ALERTS.items()}


@pytest.fixture(scope="module")
def said(firing: dict[str, list[Case]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return what each alert says in its faults: promtool shows it when it is told that nothing fires."""
    folder = tmp_path_factory.mktemp("said")
    blocks = [block(case, []) for cases in firing.values() for case in cases]
    output = promtool_test(folder, list(ALERTS.values()), blocks, annotated=True)
    found: dict[str, list[str]] = {}
    name = ""
    for line in (output.stdout + output.stderr).splitlines():
        if match := re.search(r"alertname: (\w+)", line):
            name = match[1]
        if match := re.search(r'summary="((?:[^"\\]|\\.)*)"', line):
            found.setdefault(name, []).append(match[1].replace('\\"', '"'))
    return found


@pytest.mark.bar  # of one fault of each alert test_build.py shows it
@needs_promtool
@each("name", ALERTS)
def test_the_summary_has_a_number_and_names_who_is_affected(
    name: str, firing: dict[str, list[Case]], said: dict[str, list[str]]
) -> None:
    assert len(said[name]) == len(firing[name])
    for summary, case in zip(said[name], firing[name], strict=True):
        assert re.search(r"\d", summary), summary
        assert not re.search(r"error expanding|no value|NaN|\{\{|%!|  ", summary), summary
        assert len(summary) <= 200, summary
        affected = [value for label, value in case.labels.items() if label not in {"reason", "action", "state"}]
        assert not affected or any(value in summary for value in affected), summary


# --- what whoever is woken needs ----------------------------------------------------------------------------------------------


@each("name", ALERTS)
def test_it_says_whose_it_is_what_is_lost_and_where_its_threshold_comes_from(name: str) -> None:
    alert = ALERTS[name]

    assert set(alert) <= KEYS
    assert re.fullmatch(r"([A-Z][a-z0-9]*)+", name)
    assert alert["severity"] in {"page", "ticket"} or name == "Watchdog"
    assert alert["area"] in {"infrastructure", "training", "inference"}
    assert alert["owner"] in OWNERS
    assert alert["source"].startswith(("https://", "judgement: "))
    assert len(alert["description"].split()) > 8
    assert alert["dashboard"]


@each("name", ALERTS)
def test_it_has_a_fault_and_a_look_alike_each_said_in_a_line(name: str) -> None:
    cases = cases_of(ALERTS[name])

    assert {case.fires for case in cases} == {True, False} or name == "Watchdog"
    assert len({case.what for case in cases}) == len(cases)
    assert all(case.what and (case.series or name == "Watchdog") for case in cases)


def test_a_file_is_named_after_its_group_and_no_alert_is_there_twice() -> None:
    assert all(content["group"] == stem for stem, content in files().items())
    assert sum(len(content["alerts"]) for content in files().values()) == len(ALERTS)


@each("name", PAGES)
def test_a_page_is_about_a_job_a_service_or_a_host_and_not_about_each_of_a_thousand_parts(name: str) -> None:
    assert all(len(case.labels) == 1 for case in cases_of(ALERTS[name]) if case.fires)
    assert {label for case in cases_of(ALERTS[name]) for label in case.labels} <= {"training_job", "service", "instance"}


def test_causes_are_never_pages() -> None:
    assert {ALERTS[name]["area"] for name in PAGES} == {"training", "inference"}
    assert not [name for name in PAGES if name.startswith(("Gpu", "Agent", "Collector"))]


# --- names --------------------------------------------------------------------------------------------------------------------


def series_of(metric: Metric) -> list[str]:
    return [f"{metric.name}{part}" for part in ("_bucket", "_sum", "_count")] if metric.type == "histogram" else [metric.name]


OURS = {series: metric for metric in METRICS for series in series_of(metric)}
LABELS = OF_OTHERS | {series: set(metric.labels) for series, metric in OURS.items()}


def matchers(expression: str) -> list[tuple[str, str, str]]:
    """Return metric, label and value of each matcher."""
    return [
        (metric, label, value)
        for metric, inside in re.findall(r"([\w:]+)\{((?:[^{}\"]|\"[^\"]*\")*)\}", expression)
        for label, value in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"", inside)
    ]


def lists_of_labels(expression: str) -> set[str]:
    """Return the labels that are grouped by or matched on."""
    lists = re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expression)
    return {label for inside in lists for label in re.findall(r"\w+", inside)}


def words(expression: str) -> set[str]:
    """Return what must be a metric or of the language: all words that are no label, text or duration."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(?:by|on|group_left)\s*\([^)]*\)", " ", bare)
    return set(re.findall(r"(?<![\w:])[a-zA-Z_:][\w:]*", bare))


@each("name", ALERTS)
def test_every_metric_and_label_of_its_expression_is_one_that_there_is(name: str) -> None:
    expression = ALERTS[name]["expr"]
    metrics = words(expression) - LANGUAGE

    assert metrics or name == "Watchdog"
    assert metrics <= set(LABELS), metrics - set(LABELS)
    known = set.union(set(PROMETHEUS_LABELS), set(IDENTITY), *(LABELS[metric] for metric in metrics))
    assert lists_of_labels(expression) <= known, lists_of_labels(expression) - known
    for metric, label, _ in matchers(expression):
        assert label in LABELS[metric] | {"job", "instance", *IDENTITY}, (metric, label)


@each("name", ALERTS)
def test_the_values_that_it_asks_labels_for_are_ones_that_they_can_have(name: str) -> None:
    for metric, label, value in matchers(ALERTS[name]["expr"]):
        if metric not in OURS:
            continue
        states = set(OURS[metric].states) if label == "state" else set()
        known = ENUMERATIONS.get((metric, label)) or states or set(re.findall(r"\w+", OURS[metric].help))
        for one in value.split("|"):
            if re.fullmatch(r"[a-z]\w*", one):
                assert one in known, (metric, label, one)


@each("name", ALERTS)
def test_the_queries_in_its_words_ask_for_metrics_that_there_are(name: str) -> None:
    alert = ALERTS[name]

    assert set(re.findall(r"\btachoscope_\w+", alert["summary"] + alert["description"])) <= set(OURS)


@each("name", ALERTS)
def test_the_series_of_its_tests_have_names_and_labels_that_there_are(name: str) -> None:
    extra: set[str] = {"job", "instance", "pod", "severity", "profile", *IDENTITY}
    for case in cases_of(ALERTS[name]):
        for one in case.series:
            metric, _, inside = one["series"].partition("{")
            assert metric in LABELS, metric
            labels = set(re.findall(r"(\w+)=\"", inside))
            assert labels <= LABELS[metric] | extra, (metric, labels)


def test_the_xid_errors_that_are_left_out_are_the_applications_own() -> None:
    left_out = {value for _, label, value in matchers(ALERTS["GpuXidError"]["expr"]) if label == "xid"}

    assert {about(int(code)).severity for value in left_out for code in value.split("|")} == {"none"}
