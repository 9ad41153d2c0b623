"""What a fire drill holds an alert against: each thing that a person would miss at 3 a.m. fails its check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tachoscope_alerts.spec import policy
from tachoscope_cli.drill import checks as drill_checks
from tachoscope_cli.drill.webhook_receiver import Arrival

POLICY = policy.load(Path(__file__).parents[3] / "alerts" / "policy.yaml")
RUNBOOK = "input_workers"  # a page that exists
GOOD = Arrival(
    time=10.0,
    receiver="storage-page",
    status="firing",
    labels={"alertname": RUNBOOK, "severity": "page", "owner": "storage"},
    annotations={
        "summary": "12.3 % of reads failed",
        "dashboard_url": f"{POLICY.dashboard_base}/storage?var-slo=reads",
        "runbook_url": f"{POLICY.runbook_base}/{RUNBOOK}.md",
    },
    starts_at=9.0,
    ends_at=0.0,
)


def failed(arrival: Arrival) -> list[str]:
    checks = [*drill_checks.of_message(arrival, POLICY), drill_checks.of_route(arrival, POLICY)]
    return [check.what for check in checks if not check.passed]


def test_an_alert_that_says_all_and_reaches_its_owner_passes() -> None:
    assert failed(GOOD) == []


@pytest.mark.parametrize(
    ("annotation", "value", "check"),
    [
        ("summary", "reads fail", "summary with numbers"),
        ("summary", "", "summary with numbers"),
        ("summary", "<no value> of 12 reads failed", "summary with numbers"),
        ("summary", "NaN % of 12 reads failed", "summary with numbers"),
        ("summary", "{{ $value }} of 12 reads failed", "summary with numbers"),
        ("dashboard_url", "", "dashboard"),
        ("dashboard_url", "https://elsewhere.example.com/d/storage", "dashboard"),
        ("runbook_url", "", "runbook"),
        ("runbook_url", f"{POLICY.runbook_base}/another.md", "runbook"),
    ],
)
def test_what_an_alert_lacks_fails_its_check_only(annotation: str, value: str, check: str) -> None:
    assert failed(replace(GOOD, annotations=dict(GOOD.annotations) | {annotation: value})) == [check]


def test_a_runbook_that_does_not_exist_fails_though_its_address_is_right() -> None:
    labels = dict(GOOD.labels) | {"alertname": "NoSuchAlert"}
    annotations = dict(GOOD.annotations) | {"runbook_url": f"{POLICY.runbook_base}/NoSuchAlert.md"}

    assert failed(replace(GOOD, labels=labels, annotations=annotations)) == ["runbook"]


@pytest.mark.parametrize("receiver", ["storage-ticket", "observability-page"])
def test_an_alert_that_reaches_somebody_else_fails(receiver: str) -> None:
    assert failed(replace(GOOD, receiver=receiver)) == ["reached its owner"]


@pytest.mark.parametrize(("measured", "passed"), [(None, False), (0.9, False), (1.0, True), (2.0, True), (2.1, False)])
def test_a_time_passes_within_what_was_computed(measured: float | None, passed: bool) -> None:
    check = drill_checks.check_time("fires", measured, 1.0, 2.0)

    assert check.passed is passed
    assert "1.0 to 2.0 s" in check.found
