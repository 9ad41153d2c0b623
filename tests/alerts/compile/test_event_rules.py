"""Event alerts: what is read, what is refused and where, and the rules and tests that are made of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from promtool_running import faults, lint
from sample_slos import PLACES
from tachoscope_alerts.compile.annotations import CHOSEN_PLACE
from tachoscope_alerts.compile.event_alerts import EventAlert, groups, load
from tachoscope_alerts.compile.promtool_tests import of_event_alerts
from tachoscope_alerts.spec.burn_rate_windows import Timing, scaled_expression
from tachoscope_core.errors import TachoscopeError

TIMING = Timing()
DRILL = Timing(interval=1, scrape=0.5, scale=1 / 100)
GPU = """\
group: gpu
alerts:
  - alert: GpuLost
    severity: ticket
    area: infrastructure
    owner: gpu-fleet
    slo: training-goodput
    expr: |
      min by (gpu, instance) (tachoscope_gpu_up) == 0
    for: 1m
    summary: 'GPU {{ $labels.gpu }} of {{ $labels.instance }} is lost'
    description: >-
      Jobs on it fail.
    source: 'judgement: it answers or it does not'
    labels: {profile: auto}
    tests:
      fires:
        what: it does not answer
        interval: 30s
        series: [{series: 'tachoscope_gpu_up{gpu="0",instance="n1"}', values: '1x10 0x20'}]
        at: 10m
        labels: {gpu: "0", instance: n1}
      quiet:
        what: it answers, and once it could not be asked
        interval: 30s
        series: [{series: 'tachoscope_gpu_up{gpu="0",instance="n1"}', values: '1x10 0 1x20'}]
        at: 10m
    also:
      - what: one that is not there
        fires: false
        interval: 30s
        at: 10m
"""
WATCHDOG = """\
group: delivery
alerts:
  - alert: Watchdog
    severity: none
    area: infrastructure
    owner: observability
    expr: vector(1)
    summary: Alerts arrive
    description: It always fires.
    source: https://example.com
    tests: {fires: {what: always, interval: 1m, at: 1m}}
"""


def written(folder: Path, **files: str) -> list[EventAlert]:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return load(folder)


def test_alerts_are_read_with_the_place_where_they_stand(tmp_path: Path) -> None:
    watchdog, lost = written(tmp_path, gpu=GPU, delivery=WATCHDOG)

    assert (lost.alert, lost.severity, lost.slo, lost.group) == ("GpuLost", "ticket", "training-goodput", "gpu")
    assert (lost.path, lost.line) == (str(tmp_path / "gpu.yaml"), 3)
    assert (lost.for_seconds, lost.keep_firing_for_seconds) == (60, 300)
    assert (lost.description, lost.labels) == ("Jobs on it fail.", {"profile": "auto"})
    assert lost.tests["fires"]["series"][0]["values"] == "1x10 0x20"
    assert lost.tests["fires"]["labels"] == {"gpu": "0", "instance": "n1"}
    assert (watchdog.severity, watchdog.slo, watchdog.tests.keys()) == ("none", "", {"fires"})


def test_rules_and_tests_of_events_are_ones_that_promtool_passes(tmp_path: Path) -> None:
    events = written(tmp_path, gpu=GPU, delivery=WATCHDOG)
    rules = {"events.yaml": {"groups": groups(events, PLACES, TIMING)}}

    assert lint(tmp_path, rules) == ""
    assert faults(tmp_path, rules, {"events_test.yaml": of_event_alerts(events, TIMING, "events.yaml")}) == {}


@pytest.mark.parametrize("expr", ["tachoscope_gpu_up == 1", "tachoscope_gpu_up == 2", "vector(0)"])
def test_the_tests_of_events_fail_with_another_expression(expr: str, tmp_path: Path) -> None:
    (event,) = written(tmp_path, gpu=GPU)
    rules = {"events.yaml": {"groups": groups([replace(event, expr=expr)], PLACES, TIMING)}}

    assert faults(tmp_path, rules, {"events_test.yaml": of_event_alerts([event], TIMING, "events.yaml")}).keys() == {
        "events_test.yaml"
    }


def test_an_alert_leads_to_its_runbook_and_a_board_and_keeps_its_labels(tmp_path: Path) -> None:
    (group,) = groups([replace(event, dashboard="gpu-node") for event in written(tmp_path, gpu=GPU)], PLACES, TIMING)
    (rule,) = group["rules"]

    assert (group["name"], group["interval"]) == ("events-gpu-tickets", "2m")
    assert rule["labels"] == {
        "severity": "ticket",
        "area": "infrastructure",
        "owner": "gpu-fleet",
        "slo": "training-goodput",
        "profile": "auto",
    }
    assert (rule["for"], rule["keep_firing_for"]) == ("1m", "5m")
    assert rule["annotations"]["runbook_url"] == "https://runbooks.example.com/GpuLost.md"
    chosen = "var-gpu={{ $labels.gpu | urlquery }}&var-node={{ $labels.instance | urlquery }}"
    assert rule["annotations"]["dashboard_url"] == f"https://boards.example.com/d/tachoscope-gpu-node?{chosen}{CHOSEN_PLACE}"


def test_pages_are_evaluated_every_30_s_and_tickets_beside_them_less_often(tmp_path: Path) -> None:
    (ticket,) = written(tmp_path, gpu=GPU)
    page = replace(ticket, alert="GpuGone", severity="page")

    made = [(group["name"], group["interval"], len(group["rules"])) for group in groups([ticket, page], PLACES, TIMING)]
    assert made == [("events-gpu", "30s", 1), ("events-gpu-tickets", "2m", 1)]


def test_in_a_drill_waits_and_windows_are_short_and_hold_enough_scrapes(tmp_path: Path) -> None:
    (group,) = groups(written(tmp_path, gpu=GPU), PLACES, DRILL)
    expression = 'rate(a{x=~"[0-9]+"}[1h]) > 0 and b[10m:5m] offset 30m and c[1m] > 600'

    assert (group["interval"], group["rules"][0]["for"], group["rules"][0]["keep_firing_for"]) == ("4s", "2s", "3s")
    assert scaled_expression(expression, TIMING) == expression
    assert scaled_expression(expression, DRILL) == 'rate(a{x=~"[0-9]+"}[36s]) > 0 and b[6s:3s] offset 18s and c[2s] > 600'


REFUSED = {
    "no severity of ours": (("severity: ticket", "severity: critical"), 4, "there are page, ticket, none"),
    "no area of ours": (("area: infrastructure", "area: network"), 5, "there are"),
    "a name in small letters": (("alert: GpuLost", "alert: gpu_lost"), 3, "CamelCase"),
    "an unknown key": (("    for: 1m", "    forr: 1m"), 10, "did you mean for"),
    "no duration": (("for: 1m", "for: 1 minute"), 10, "no duration"),
    "no source": (("source: 'judgement: it answers or it does not'", "source: somewhere"), 14, "https://"),
    "no owner": (("    owner: gpu-fleet\n", ""), 3, "lacks owner"),
    "no expression": (("min by (gpu, instance) (tachoscope_gpu_up) == 0", ""), 8, "expr"),
    "no look-alike": (("      quiet:", "      loud:"), 23, "unknown key"),
    "a label that is not to be set": (("{profile: auto}", "{severity: page}"), 15, "the alert's own"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_said_where_an_alert_is_wrong_and_what_to_do(name: str, tmp_path: Path) -> None:
    (old, new), line, fix = REFUSED[name]
    assert old in GPU

    with pytest.raises(TachoscopeError, match=re.escape(f"gpu.yaml:{line}: ")) as refused:
        written(tmp_path, gpu=GPU.replace(old, new))
    assert fix in str(refused.value)


def test_an_alert_that_fires_in_its_fault_only_is_asked_for_its_look_alike(tmp_path: Path) -> None:
    text = GPU.partition("      quiet:")[0]

    with pytest.raises(TachoscopeError, match=r"gpu\.yaml:17: alerts\[0\]\.tests lacks quiet"):
        written(tmp_path, gpu=text)


def test_two_alerts_of_one_name_are_refused_and_two_files_of_one_group(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"other\.yaml:3: GpuLost is in .*gpu\.yaml:3 too"):
        written(tmp_path, gpu=GPU, other=GPU.replace("group: gpu", "group: other"))
    with pytest.raises(TachoscopeError, match=r"other\.yaml:1: group is 'gpu', as in .*gpu\.yaml"):
        written(tmp_path, gpu=GPU, other=GPU.replace("GpuLost", "GpuGone"))


def test_a_folder_without_alerts_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match=r"contains no \*\.yaml"):
        load(tmp_path)
