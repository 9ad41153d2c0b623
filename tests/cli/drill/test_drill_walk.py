"""A walk through a planted runbook: what it runs, what it leaves alone, and what it calls wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_cli.drill import walk as drill_walk
from tachoscope_cli.drill.walk import Expected, RunbookStep, Walk
from tachoscope_cli.drill.webhook_receiver import Arrival
from tachoscope_cli.runbooks.parts import Row

PAGE = """
## 1 Is it real?
```promql
# Q1 shows it; healthy: above 0
rate(tachoscope_steps_total{training_job="${training_job}",cluster="${cluster}"}[1h])
# Q2 another cause; healthy: no row
tachoscope_gpu_up == 0
# Q3 of a node that Q1 names; healthy: 1
up{instance="${instance}"}
```
```sh
ls "${training_job}"
kubectl get nodes
ls "${gateway}"
```
## 3 Stop it
1. `kill -9 "${pid}"`.
## 5 Verify
Q1 above 0.
## 6 Escalate
"""


@dataclass
class PlantedAgent:
    folder: Path
    spool: Path

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TACHOSCOPE_SPOOL": str(self.spool)}


class Prometheus:
    """Answers by what a query holds; remembers what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[Row]]) -> None:
        self.asked: list[str] = []
        self.answers = answers
        monkeypatch.setattr(drill_walk, "samples", self._samples)
        monkeypatch.setattr(drill_walk, "page_of", lambda _: PAGE)
        monkeypatch.setattr(drill_walk, "PATIENCE_SECONDS", 0.0)

    def _samples(self, _: str, query: str) -> list[Row]:
        self.asked.append(query)
        return next((rows for part, rows in self.answers.items() if part in query), [])


def walk(folder: Path, expected: Expected, *, job: str = ".", **known: str) -> Walk:
    labels = {"alertname": "Planted", "training_job": job}
    arrival = Arrival(0.0, "r", "firing", labels, {"runbook_url": "https://x/Planted.md"}, 0.0, 0.0)
    agent = PlantedAgent(folder, folder / "spool")
    timing = Timing(interval=0.5, scrape=1.0, scale=1 / 100)
    return Walk(arrival, expected, timing, "http://unused", agent, known, lambda _: None)  # type: ignore[arg-type]


def by_what(steps: list[RunbookStep]) -> dict[str, RunbookStep]:
    return {step.what.partition(" ")[0] if step.what.startswith("Q") else step.what: step for step in steps}


def test_what_is_not_as_the_page_says_is_wrong_and_what_cannot_be_asked_or_run_is_never_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_go_on: list[Row] = [({"instance": "node-1:9465"}, 2.0)]
    prometheus = Prometheus(monkeypatch, {"tachoscope_steps_total": steps_go_on, "up{": [({}, 1.0)]})
    made = walk(tmp_path, Expected(shows=frozenset({1}), takes={"instance": (1, "instance")}))
    made.run_diagnosis()
    found = by_what(made.steps)

    assert (found["Q1"].verdict, found["Q1"].answer) == ("WRONG", "2 (healthy: above 0)")  # the page says that it shows the fault
    assert (found["Q2"].verdict, found["Q2"].answer) == ("not run", "needs tachoscope_gpu_up, which nothing here measures")
    assert found["Q3"].verdict == "right"
    assert found['ls "${training_job}"'].verdict == "right"
    assert (found["kubectl get nodes"].verdict, found["kubectl get nodes"].answer) == ("not run", "needs kubectl")
    assert (found['ls "${gateway}"'].verdict, found['ls "${gateway}"'].answer) == ("not run", "needs gateway")
    assert 'rate(tachoscope_steps_total{training_job=".",cluster=""}[36s])' in prometheus.asked  # scaled as the rules
    assert 'up{instance="node-1:9465"}' in prometheus.asked


def test_after_the_fault_what_section_5_names_has_to_be_healthy_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus = Prometheus(monkeypatch, {"tachoscope_steps_total": [({}, 0.0)]})
    made = walk(tmp_path, Expected(shows=frozenset({1})))
    made.run_diagnosis()
    made.after()
    prometheus.answers = {"tachoscope_steps_total": [({}, 1.0)]}
    made.after()

    of_steps = [(step.when, step.verdict) for step in made.steps if step.what.startswith("Q1")]
    assert of_steps == [("fault", "right"), ("after", "WRONG"), ("after", "right")]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_label_runs_nothing_whatever_stands_in_it_and_its_answer_is_a_variable_of_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Prometheus(monkeypatch, {})
    made = walk(tmp_path, Expected(answers={"ls ": r"access '(?P<gateway>[^']+)'"}), job=f"$(touch {tmp_path}/ran); touch ran")
    made.run_diagnosis()
    found = by_what(made.steps)

    assert found['ls "${training_job}"'].verdict == "right"
    assert found['ls "${gateway}"'].verdict == "right"
    assert not list(tmp_path.rglob("ran"))


def test_no_process_but_the_drills_own_is_sent_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Prometheus(monkeypatch, {})
    sleeping = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    for spool, verdict in ((tmp_path / "other", "not run"), (tmp_path / "spool", "right")):
        environ = os.environ | {"TACHOSCOPE_SPOOL": str(spool)}
        process = subprocess.Popen(sleeping, env=environ, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        try:
            made = walk(tmp_path, Expected(), pid=str(process.pid))
            made.run_diagnosis()
            assert by_what(made.steps)['kill -9 "${pid}"'].verdict == verdict
            if verdict == "right":
                assert process.wait(timeout=60) == -9
            else:
                assert process.poll() is None
        finally:
            process.kill()
            process.communicate()


def test_a_walk_waits_for_an_answer_that_comes_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus = Prometheus(monkeypatch, {"tachoscope_steps_total": [({}, 1.0)]})
    monkeypatch.setattr(drill_walk, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(time, "sleep", lambda _: prometheus.answers.update({"tachoscope_steps_total": [({}, 0.0)]}))
    made = walk(tmp_path, Expected(shows=frozenset({1})))
    made._do("fault", made._parts[0])

    assert made.steps[0].verdict == "right"
