"""An attempt begins once and all its nodes continue from one checkpoint, whatever its engine does; by an engine of the test."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tachoscope_cli.commands.hang import hang
from tachoscope_cli.commands.training_jobs import status
from tachoscope_cli.common.options import TextOrJson
from tachoscope_cli.training_jobs import attempt
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState
from tachoscope_cli.training_jobs.supervisor import Supervisor
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import submission
from tachoscope_core.jobs.submitted_jobs import Attempt, AttemptBegin, TrainingJobs
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.storage.store import Store
from watched_jobs import well


class EngineOfTest:
    """Says what the test wants."""

    def __init__(self) -> None:
        self.said = EngineState("running")
        self.requests: list[AttemptRequest] = []
        self.cancelled: list[str] = []

    def find(self, label: str) -> str | None:
        return next((one.label for one in self.requests if one.label == label), None)

    def submit(self, request: AttemptRequest) -> str:
        self.requests.append(request)
        return request.label

    def state(self, engine_id: str) -> EngineState:
        return self.said

    def hosts(self, engine_id: str) -> Mapping[str, str]:
        return {"pod-0": "gpu-1"}

    def output(self, engine_id: str, log: Path) -> str:
        return f"show {engine_id}"

    def cancel(self, engine_id: str) -> None:
        self.cancelled.append(engine_id)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store(str(tmp_path / "store"))
    job = TrainingJob(name="x", engine="local", command=("touch", "ran"), working_directory=str(tmp_path))
    submission.submit(found, job)
    return found


def _begun(store: Store, checkpoint: str = "") -> bool:
    return TrainingJobs(store).begin_attempt("x", 0, AttemptBegin(started_at=time.time(), host="other", checkpoint=checkpoint))


def test_an_attempt_that_its_engine_puts_back_into_the_queue_is_taken_out_and_another_follows(store: Store, tmp_path: Path) -> None:
    engine, jobs = EngineOfTest(), TrainingJobs(store)
    supervisor = Supervisor(store, "x", engine, tmp_path, -1, lambda _: None)
    engine.said = EngineState("queued", "waits")
    supervisor.look()
    supervisor.look()
    assert jobs.status("x").state == "running", "it waits for the first time"
    assert _begun(store)
    engine.said = EngineState("running")
    supervisor.look()
    (running,) = jobs.status("x").attempts
    assert (running.hosts, running.log) == ({"pod-0": "gpu-1"}, f"show {running.engine_id}")

    engine.said = EngineState("queued", "Preempted: by another workload")
    supervisor.look()

    (ended,) = jobs.status("x").attempts
    assert (ended.decision, ended.ended_by_engine, engine.cancelled) == ("restart", True, [ended.engine_id])
    assert "Preempted" in ended.reason
    supervisor.look()
    assert [one.number for one in jobs.status("x").attempts] == [0, 1]


def test_a_second_process_of_an_attempt_runs_nothing(store: Store, tmp_path: Path) -> None:
    assert _begun(store)
    assert not _begun(store)
    words = attempt.words(store.url, TrainingJobs(store).status("x").submitted.job, 0)[3:]

    assert attempt.main(words) != 0

    assert not (tmp_path / "ran").exists()
    assert TrainingJobs(store).attempt_end("x", 0) is None, "the first one says how it ended"


def test_other_nodes_continue_from_the_checkpoint_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path / "store"))
    job = TrainingJob(
        name="x", engine="kubernetes", command=("true",), resume=("--resume", "{checkpoint}"), working_directory=str(tmp_path)
    )
    submission.submit(store, job)
    assert _begun(store, checkpoint="checkpoint-7")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    monkeypatch.setenv("TACHOSCOPE_SPOOL", str(tmp_path / "spool"))

    assert attempt.main(attempt.words(store.url, job, 0)[3:]) == 0

    assert "begins from checkpoint-7" in capfd.readouterr().err
    assert TrainingJobs(store).attempt_end("x", 0) is None


def test_the_last_step_is_shown_while_an_attempt_runs(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    job = well(store.url, "x")
    TrainingJobs(store).write_attempt("x", Attempt(number=0, intended_at=job.now - 300, engine_id="1:2"))

    status("x", store.url, TextOrJson["json"])

    (shown,) = json.loads(capsys.readouterr().out)["training_jobs"]
    assert (shown["state"], shown["attempts"][0]["ended_at"]) == ("running", None)
    assert abs(shown["attempts"][0]["last_step"] - job.step) <= 1


def test_hang_means_the_job_of_the_store_where_a_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACHOSCOPE_STORE", str(tmp_path / "store"))
    (tmp_path / "x").mkdir()
    with pytest.raises(TachoscopeError, match="contains no traces, records or dumps"):
        hang(["x"])
    (tmp_path / "store" / "jobs" / "x").mkdir(parents=True)

    with pytest.raises(TachoscopeError, match="no evidence of a hang of job 'x'"):
        hang(["x"])
    with pytest.raises(TachoscopeError, match="contains no traces, records or dumps"):
        hang(["./x"])
