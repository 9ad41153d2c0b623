"""Fire drills end to end: a fault becomes an alert that reaches its receiver in time, says enough, and ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import command
from tachoscope_cli.commands import drill
from tachoscope_cli.drill import run as drill_run
from tachoscope_core.report.taxonomy import BY_SLUG

ALERTS = Path(__file__).parents[3] / "alerts"
COMMAND = [sys.executable, "-m", "tachoscope_cli.main", "drill"]
CHECKS = (
    "quiet before the fault",
    "fires",
    "notification arrives",
    "reached its owner",
    "summary with numbers",
    "dashboard",
    "runbook",
    "resolved notification arrives",
)

installed = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None, reason="Prometheus is not installed"
)


def held(*words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, env=os.environ | environment, timeout=480, cwd=cwd)


@installed
@pytest.mark.parametrize(
    "fault",
    [
        "agent_down",
        *(
            pytest.param(name, marks=pytest.mark.bar)
            for name in (
                *("hang", "straggler", "recompilation", "failed_checkpoint"),
                *("memory_leak", "queue_saturation", "input_workers"),
            )
        ),
    ],
)
def test_a_fault_becomes_an_alert_that_reaches_its_owner_in_time_says_enough_and_ends(fault: str, tmp_path: Path) -> None:
    done = held(fault, "--format", "json", TMPDIR=str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    for check in CHECKS:
        (one,) = [one for one in found["checks"] if one["what"].startswith(check)]
        assert one["passed"]
    assert next(one["measured_seconds"] for one in found["checks"] if one["what"] == "fires") > 0
    assert not left_over(str(tmp_path))


@installed
@pytest.mark.bar
@pytest.mark.parametrize(
    ("fault", "right"),
    [
        ("hang", 12),
        ("input_workers", 7),
        ("failed_checkpoint", 9),
        ("queue_saturation", 6),
        ("agent_down", 6),
        ("straggler", 8),
        ("memory_leak", 4),
        ("recompilation", 5),
    ],
)
def test_each_query_and_command_of_the_alerts_runbook_answers_as_the_page_says(fault: str, right: int, tmp_path: Path) -> None:
    """`right`: at least so many; what needs a cluster or a GPU is said not to have run."""
    done = held(fault, "--walk", TMPDIR=str(tmp_path), COLUMNS="400")

    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.split("query or command", 1)[1].splitlines()[1:]
    assert not [row for row in rows if "  WRONG  " in row]
    assert len([row for row in rows if "  right  " in row]) >= right
    assert all("needs kubectl" in row for row in rows if " kubectl " in row)
    assert not left_over(str(tmp_path))


@installed
@pytest.mark.bar
def test_a_drill_whose_alert_says_too_little_fails_and_says_what(tmp_path: Path) -> None:
    alerts = shutil.copytree(ALERTS, tmp_path / "alerts", ignore=shutil.ignore_patterns("tachoscope_alerts", "generated"))
    text, summary = (alerts / "events/agents.yaml").read_text(), "Agents are down"
    begin = text.index("summary:", text.index("alert: AgentDown"))
    end = text.index("description:", begin)
    (alerts / "events/agents.yaml").write_text(f"{text[:begin]}summary: {summary}\n    {text[end:]}")
    done = held("agent_down", cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    assert [row.split("  ")[0] for row in done.stdout.splitlines() if " NO " in row] == ["summary with numbers"]


def test_each_class_has_a_drill_and_each_drill_breaks_what_an_alert_of_ours_is_about() -> None:
    specs = drill_run.shipped()

    assert set(drill.FAULTS) == set(drill_run.DRILLS)
    for one in drill_run.DRILLS.values():
        assert specs.source_of(one.alert).alert == one.alert
    listed = command("drill", "--list").stdout
    assert all(name in listed for name in drill.FAULTS)


def test_seconds_in_an_expression_are_scaled_with_its_windows_and_those_of_no_other_alert() -> None:
    drilled = drill_run.DRILLS["failed_checkpoint"]
    specs = drill_run.shipped()
    scaled = specs.scaled_numbers(drilled.alert, drilled.numbers, drilled.timing)
    changed = [one.alert for one, before in zip(scaled.events, specs.events, strict=True) if one != before]

    assert changed == [drilled.alert]
    before, after = specs.source_of(drilled.alert), scaled.source_of(drilled.alert)
    assert before.expr.replace("7200", "36") == after.expr  # type: ignore[union-attr]


def test_an_alert_is_known_by_the_labels_that_a_drill_asks_for() -> None:
    classes = {name: dict(one.labels) for name, one in drill_run.DRILLS.items() if one.labels}

    assert classes == {"straggler": {"class": "compute_straggler"}, "unscraped_hang": {"training_job": "drill"}}
    assert set(classes["straggler"].values()) <= BY_SLUG.keys()


@installed
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.bar)])
def test_a_drill_that_is_interrupted_leaves_nothing_running(number: signal.Signals, code: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "agent_down"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None
    while "without a fault" not in (line := process.stdout.readline()):  # all servers run by then
        assert line, process.communicate()
    assert left_over(str(tmp_path))
    process.send_signal(number)
    _, said = process.communicate(timeout=60)

    assert process.returncode == code
    assert said.count("\n") == 1
    assert not left_over(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_without_prometheus_it_says_which_packages_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("drill", "agent_down")

    assert done.returncode == 2
    assert "apt-get install prometheus" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_class_or_with_another_it_says_which_there_are() -> None:
    for words in ([], ["disk_full"]):
        done = command("drill", *words)
        assert done.returncode == 2
        assert done.stderr.startswith("tachoscope: ") and done.stderr.count("\n") == 1
        assert all(name in done.stderr for name in drill.FAULTS)


def left_over(folder: str) -> list[str]:
    """Return the commands of living processes that name a folder: that of the test's own drill, beside which others may run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in command:
            found.append(command)
    return found
