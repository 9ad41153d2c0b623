"""A fault in one cluster or namespace, beside a healthy workload of the same name in another: told once, and of the right one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers import REPOSITORY
from promtool_running import faults
from sample_slos import PLACES
from tachoscope_alerts import promql
from tachoscope_alerts.compile import event_alerts, recordings
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.planted_series import PlantedStretch, labels_of, of_events, of_slices
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import quoted
from tachoscope_alerts.lint import rule_expressions
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing, seconds_of, tiers
from tachoscope_alerts.spec.slo import Slices, Slo

TIMING = Timing()
A, B = {"cluster": "a", "workload_namespace": "x"}, {"cluster": "b", "workload_namespace": "x"}
OTHER_NAMESPACE = {"cluster": "a", "workload_namespace": "y"}
RECORDINGS = recordings.load(REPOSITORY / "alerts" / "recordings.yaml")
PAGES = [event for event in event_alerts.load(REPOSITORY / "alerts" / "events") if event.severity == "page"]
SLOS = [slo for slo in slo_files.load([REPOSITORY / "alerts" / "slos"]) if any(tier.severity == "page" for tier in tiers(slo))]
HEALTHY = {
    "tachoscope_job_active": [({}, "1x{n}")],
    "tachoscope_job_ranks": [({"state": "working"}, "8x{n}"), ({"state": "hung"}, "0x{n}"), ({"state": "silent"}, "0x{n}")],
    "tachoscope_step_seconds_count": [({}, "0+60x{n}")],
    "tachoscope_hangs_total": [({}, "0x{n}")],
    "tachoscope_worker_failures_total": [({"host": "n9"}, "0x{n}")],
    "tachoscope_restarts_total": [({}, "0x{n}")],
    "tachoscope_checkpoint_verified_timestamp_seconds": [({}, "0+{interval}x{n}")],
    "tachoscope_checkpoint_age_seconds": [({}, "30x{n}")],
    "tachoscope_integrity_events_total": [({"kind": "checksum"}, "0x{n}")],
    "tachoscope_bottleneck_ratio": [({"class": "comm_exposed"}, "0.1x{n}")],
    "tachoscope_nccl_communicators": [({"state": "hung"}, "0x{n}"), ({"state": "ok"}, "4x{n}")],
    "tachoscope_server_up": [({}, "1x{n}")],
}
"""What each metric that a page reads says of a workload that is well."""
_SERIES = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def labelled(series: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    found = _SERIES.fullmatch(series["series"])
    assert found is not None, series
    return {"series": named(found["name"], dict(_LABEL.findall(found["labels"] or "")) | more), "values": series["values"]}


def named(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={quoted(value)}' for label, value in labels.items())}}}"


def healthy(event: EventAlert, place: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield series of a workload by the name that fails elsewhere, on nodes of the same names; of a node that fails the same."""
    test = event.tests["fires"]
    who = {label: value for label, value in test["labels"].items() if label in {"training_job", "service", "instance"}}
    scrapes = round(seconds_of(test["at"]) / seconds_of(test["interval"])) + 1
    for metric in raw(event):
        for labels, values in HEALTHY[metric]:
            own = {"instance": "n1"} | who | labels | place
            yield {"series": named(metric, own), "values": values.format(n=scrapes, interval=seconds_of(test["interval"]))}


def raw(event: EventAlert) -> set[str]:
    """Return the raw metrics that an alert reads, also by way of what is recorded."""
    known = {one.name: one for one in RECORDINGS}
    read = {series.metric for series, _ in promql.read(promql.parse(event.expr))} - {"ALERTS"}
    return (read | {name for one in recordings.needed([event.expr], RECORDINGS) for name in one.reads}) - known.keys()


def told(alert: str, at: str, *places: Mapping[str, str]) -> dict[str, Any]:
    by = named("ALERTS", {"alertname": alert, "alertstate": "firing", "severity": "page"})
    samples = [{"labels": named("", place), "value": 1} for place in places]
    return {"expr": f"group by (cluster, workload_namespace) ({by})", "eval_time": at, "exp_samples": samples}


def block(name: str, interval: str, series: list[dict[str, str]], asked: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "interval": interval, "input_series": series, "promql_expr_test": [asked]}


def of_event(event: EventAlert) -> dict[str, Any]:
    test = event.tests["fires"]
    node = "instance" in test["labels"]  # it has no namespace
    twins = (B,) if node else (B, OTHER_NAMESPACE)
    series = [labelled(one, A) for one in test["series"]] + [one for twin in twins for one in healthy(event, twin)]
    asked = told(event.alert, test["at"], {"cluster": "a"} if node else A)
    made = [*recordings.groups(recordings.needed([event.expr], RECORDINGS), TIMING), *event_alerts.groups([event], PLACES, TIMING)]
    return document(event.alert, made, block(event.alert, test["interval"], series, asked))  # type: ignore[arg-type]


def of_slo(slo: Slo) -> dict[str, Any]:
    series = planted(slo, A, bad=True) + planted(slo, B, bad=False) + planted(slo, OTHER_NAMESPACE, bad=False)
    asked = block(slo.name, "15s", series, told(slo.alert, "100m", A))
    return document(slo.name, groups(slo, PLACES, TIMING)[:1], asked)  # type: ignore[arg-type]


def planted(slo: Slo, place: Mapping[str, str], *, bad: bool) -> list[dict[str, str]]:
    if isinstance(slo.indicator, Slices):
        found = of_slices(slo, 400, 15.0, bad=bad)
    else:
        found = of_events(slo, [PlantedStretch(400, 1000, 1000 if bad else 0)], labels_of(slo))
    return [labelled(one, {"team": "t"} | dict(place)) for one in found]


def document(name: str, made: list[dict[str, Any]], asked: dict[str, Any]) -> dict[str, Any]:
    file = f"{name}.rules"
    order = [group["name"] for group in made]
    test = {"rule_files": [file], "evaluation_interval": "30s", "group_eval_order": order, "tests": [asked]}
    return {"file": file, "rules": {"groups": made}, "test": test}


@pytest.mark.bar  # the lint rule is tested for each expression
def test_the_same_fault_is_told_of_its_own_cluster_and_namespace_beside_a_healthy_twin(tmp_path: Path) -> None:
    made = [*map(of_event, PAGES), *map(of_slo, SLOS)]
    assert len(made) >= 13

    said = faults(tmp_path, {one["file"]: one["rules"] for one in made}, {f"{one['file']}_test": one["test"] for one in made})

    assert said == {}


def test_each_page_reads_only_metrics_of_which_this_test_knows_what_healthy_is() -> None:
    assert {metric for event in PAGES for metric in raw(event)} <= HEALTHY.keys()


def test_no_generated_rule_drops_a_label_of_the_identity() -> None:
    """The lint runs over what is built too, so that a rule that is made, and not written, cannot drop one either."""
    known = catalogue(slo_files.load([REPOSITORY / "alerts" / "slos"]))
    found = rule_expressions.check(REPOSITORY / "alerts" / "generated" / "prometheus", known)

    assert [fault for fault in found if "drops" in fault.fault.what] == []
