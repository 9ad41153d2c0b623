"""Trainings that have a run of a real tracker open, under `tachoscope run`; the run is read back as the tracker's users read it."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import helpers
from layered_environment import python_with

SCRIPT = str(helpers.REPOSITORY / "tests" / "trainings" / "tracked_training.py")
MLFLOW = ("mlflow-skinny==3.17.2", "sqlalchemy==2.1.9", "alembic==1.20.1")
READ_BACK = """
import json, sys
from mlflow.tracking import MlflowClient
client, run = MlflowClient(sys.argv[1]), sys.argv[2]
found = client.get_run(run)
files = sorted(one.path for one in client.list_artifacts(run, "tachoscope"))
print(json.dumps({"metrics": found.data.metrics, "tags": found.data.tags, "files": files, "status": found.info.status}))
"""


def run_tracked(tmp_path: Path, python: str, *words: str, **extra: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the training under `tachoscope run` of the same environment; return that and the tracker's run id."""
    command = (python, "-m", "tachoscope_cli.main", "run", "--job", "tracked", "--", python, SCRIPT, *words)
    done = helpers.execute(tmp_path, *command, **extra)
    assert done.returncode == 0, done.stderr
    return done, done.stdout.partition("run ")[2].split()[0]


def check_mlflow(tmp_path: Path, kind: str, uri: str, **extra: str) -> None:
    python = str(python_with(*MLFLOW))
    done, run_id = run_tracked(tmp_path, python, kind, **extra)
    assert f"goodput, findings and report are in MLflow run {run_id}" in done.stderr

    read = helpers.execute(tmp_path, python, "-c", READ_BACK, uri, run_id, **extra)
    assert read.returncode == 0, read.stderr
    found = json.loads(read.stdout)
    assert 0 < found["metrics"]["tachoscope/goodput"] <= 1
    assert found["metrics"]["tachoscope/compute_seconds"] > 0
    assert found["tags"]["tachoscope.job"] == "tracked"
    assert found["files"] == [f"tachoscope/{name}" for name in ("life.html", "life.json", "report.html", "report.json")]
    assert found["status"] == "FINISHED"

    lineage = {name: value for start in helpers.records_of(tmp_path, "tracked").starts for name, value in start.lineage.items()}
    lineage |= {name: value for end in helpers.records_of(tmp_path, "tracked").ends for name, value in end.lineage.items()}
    assert (lineage["mlflow_run"], lineage["mlflow_tracking_uri"]) == (run_id, uri)


@pytest.mark.bar  # MLflow wants older packages than ours: an environment of its own takes a minute to make
def test_the_open_run_of_mlflow_gets_goodput_findings_and_report(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/mlruns"
    check_mlflow(tmp_path, "mlflow", uri, MLFLOW_TRACKING_URI=uri, MLFLOW_ALLOW_FILE_STORE="true")


@pytest.mark.bar
def test_a_run_of_mlflow_that_was_opened_after_the_training_gets_them_too(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/mlruns"
    check_mlflow(tmp_path, "late", uri, MLFLOW_TRACKING_URI=uri, MLFLOW_ALLOW_FILE_STORE="true")


@pytest.mark.bar
def test_the_default_store_of_mlflow_is_found_without_any_setting(tmp_path: Path) -> None:
    check_mlflow(tmp_path, "mlflow", f"sqlite:///{tmp_path}/work/mlflow.db")


@pytest.mark.bar  # test_tracking.py tells a stand-in the same
def test_the_offline_run_of_weights_and_biases_gets_goodput_findings_and_report(tmp_path: Path) -> None:
    done, run_id = run_tracked(tmp_path, str(helpers.BIN / "python"), "wandb", WANDB_MODE="offline")
    assert f"goodput, findings and report are in Weights & Biases run {run_id}" in done.stderr

    own, resumed = sorted((tmp_path / "work" / "wandb").glob(f"offline-run-*-{run_id}"), key=lambda path: path.stat().st_ctime)
    summary: dict[str, Any] = {}
    artifacts = []
    for record in transaction_log(resumed / f"run-{run_id}.wandb"):
        for item in record.summary.update:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if record.request.log_artifact.artifact.name or record.artifact.name:
            artifacts.append(record.artifact if record.artifact.name else record.request.log_artifact.artifact)
        if record.run.run_id:
            assert (record.run.run_id, record.run.project) == (run_id, "example")
    assert 0 < summary["tachoscope/goodput"] <= 1
    assert summary["tachoscope.job"] == "tracked"
    assert [one.name for one in artifacts] == [f"tachoscope-{run_id}"]
    assert {entry.path for entry in artifacts[0].manifest.contents} == {"life.html", "life.json", "report.html", "report.json"}
    assert (own / f"run-{run_id}.wandb").is_file()


@pytest.mark.bar
def test_without_tracking_no_run_is_touched(tmp_path: Path) -> None:
    python = str(helpers.BIN / "python")
    command = (python, "-m", "tachoscope_cli.main", "run", "--job", "j", "--no-track", "--", python, SCRIPT, "wandb")
    done = helpers.execute(tmp_path, *command, WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    assert "Weights & Biases" not in done.stderr
    assert len(list((tmp_path / "work" / "wandb").glob("offline-run-*"))) == 1


def transaction_log(path: Path) -> Iterator[Any]:
    """Yield the records of a `.wandb` file: protobuf messages in a log of LevelDB's format, after a header of 7 bytes.

    The format: https://github.com/google/leveldb/blob/main/doc/log_format.md.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, block = path.read_bytes(), 32768
    assert data[:4] == b":W&B"
    offset, whole = 7, b""
    while offset + 7 <= len(data):
        if block - offset % block < 7:  # a header does not fit into the rest of a block
            offset += block - offset % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        whole += data[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in {1, 4}:  # full, or the last part
            yield Record.FromString(whole)
            whole = b""
