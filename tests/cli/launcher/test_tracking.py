from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import making
from tachoscope_cli.launcher import experiment_trackers as tracking
from tachoscope_cli.launcher import mlflow as mlflow_log
from tachoscope_cli.launcher import wandb as wandb_log
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.records.records import LAUNCHER_RANK
from tachoscope_core.report.report import load
from tachoscope_core.storage.store import Store

SECRET = "hunter2" * 3


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a job of two ranks that spends 40 % of each step waiting for data."""
    url = str(tmp_path / "store")
    lines = making.job([[{"data_wait": 0.4, "forward": 0.2, "backward": 0.4}] * 2] * 60, data_cpu=0.0)
    launcher = making.envelope(LAUNCHER_RANK, writer="0000000a-0000-4000-8000-000000000000", host="node-1")
    started = records.JobStarted(**launcher | {"time": 1.7e9 - 2, "monotonic_ns": 0}, world_size=0, pid=1)
    ended = records.JobEnded(
        **launcher | {"seq": 1, "time": 1.7e9 + 62, "monotonic_ns": 64 * 10**9}, status="completed", exit_code=0
    )
    write(Store(url), lines + records.encode(started) + records.encode(ended))
    return url


def write(store: Store, lines: bytes) -> None:
    by_writer: dict[str, list[bytes]] = {}
    for line in lines.splitlines(keepends=True):
        by_writer.setdefault(json.loads(line)["writer"], []).append(line)
    for writer, own in by_writer.items():
        store.write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=b"".join(own))


def test_goodput_states_and_findings_are_the_metrics(store: str, tmp_path: Path) -> None:
    results = tracking.results_of(store, "planted", tmp_path)

    life, report = load(tmp_path / "life.json"), load(tmp_path / "report.json")
    assert results.metrics["tachoscope/goodput"] == life.goodput
    states = {
        name: value for name, value in results.metrics.items() if name.endswith("_seconds") and name != "tachoscope/step_seconds"
    }
    assert sum(states.values()) == pytest.approx(life.ledgers[0].wall_seconds, rel=0.01)
    worst = max(report.findings, key=lambda finding: finding.share)
    assert results.metrics[f"tachoscope/finding/{worst.class_}_share"] == worst.share == pytest.approx(0.4, abs=0.02)
    assert results.tags["tachoscope.worst_finding"] == worst.class_
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "life.json", "life.html", "report.json", "report.html"
    }  # fmt: skip


def test_a_tracker_that_is_not_installed_here_is_one_line() -> None:
    assert importlib.util.find_spec("mlflow") is None, "it conflicts with what the tests pin"
    lines = tracking.log("/nowhere", "planted", {"mlflow_run": "abc", "mlflow_tracking_uri": "http://127.0.0.1:5000"})
    assert lines == ["not logged to MLflow run abc: mlflow is not installed (pip install mlflow)"]


def test_a_job_that_cannot_be_analysed_is_one_line(tmp_path: Path) -> None:
    (line,) = tracking.log(str(tmp_path), "planted", {"wandb_run": "abc"})
    assert line.startswith("not logged to Weights & Biases: store ")


def test_a_tracker_that_fails_is_one_line_without_secrets(tmp_path: Path) -> None:
    def fails(runs: Mapping[str, str], results: tracking.Results) -> str:
        raise ConnectionError(f"no answer from\nhttps://user:{SECRET}@tracker.example.org/api")

    line = tracking._line("MLflow", "abc", fails, {}, tracking.Results({}, {}, tmp_path))
    assert line == "not logged to MLflow run abc: no answer from https://***@tracker.example.org/api (--no-track: do not try)"


def test_a_server_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr(wandb_log, "_INIT_SECONDS", 0.5)
    runs = {"wandb_run": "abc", "wandb_mode": "online", "wandb_directory": str(tmp_path)}
    line = tracking._line("Weights & Biases", "abc", wandb_log.log, runs, tracking.Results({}, {}, tmp_path))
    assert line.startswith("not logged to Weights & Biases run abc: ")
    assert "\n" not in line


def test_credentials_of_a_tracking_server_come_from_the_environment_only() -> None:
    own = f"https://user:{SECRET}@mlflow.example.org"
    assert mlflow_log._usable("https://***@mlflow.example.org", own) == own
    assert mlflow_log._usable("sqlite:////data/mlflow.db", own) == "sqlite:////data/mlflow.db"
    with pytest.raises(TachoscopeError, match="set MLFLOW_TRACKING_URI"):
        mlflow_log._usable("https://***@mlflow.example.org", "https://another.example.org")
