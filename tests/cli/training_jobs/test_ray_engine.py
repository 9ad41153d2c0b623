"""What Ray's REST API answers, by a fake one that has no cluster; the real one is in benchmarks/recovery/on_ray.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_ray
from fake_ray import FakeRay
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_cli.training_jobs.ray_jobs import RayEngine
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import RayOptions, TrainingJob


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    with fake_ray.running() as fake:
        fake.nodes = {"aa": ("gpu-1", "ALIVE"), "bb": ("gpu-2", "ALIVE"), "cc": ("gpu-3", "DEAD")}
        yield fake


def test_an_attempt_is_submitted_once_with_its_label_and_no_word_is_read_by_a_shell(ray: FakeRay) -> None:
    engine = _engine(ray)
    request = _request(ray)
    assert engine.find(request.label) is None

    assert engine.submit(request) == engine.submit(request) == engine.find(request.label) == request.label

    (body,) = ray.submitted
    assert json.loads(engine.rendered(request)) == body
    assert body["entrypoint"] == "python3 -m x '; rm -rf $HOME'"
    assert (body["entrypoint_num_gpus"], body["entrypoint_num_cpus"], body["entrypoint_memory"]) == (8, 4, 64 << 30)


def test_excluded_hosts_are_left_out_by_their_node_ids_and_too_few_is_said(ray: FakeRay) -> None:
    _engine(ray).submit(_request(ray, ["gpu-2", "gpu-3", "elsewhere"]))

    assert ray.submitted[0]["entrypoint_label_selector"] == {"ray.io/node-id": "!in(bb)"}
    with pytest.raises(TooFewHostsError):
        _engine(ray).submit(_request(ray, ["gpu-1", "gpu-2"], label="second"))


@pytest.mark.parametrize(
    ("job", "state"),
    [
        ({"status": "PENDING", "message": "waits"}, EngineState("queued", "waits")),
        ({"status": "RUNNING", "message": "runs"}, EngineState("running")),
        ({"status": "SUCCEEDED", "message": "done"}, EngineState("ended", "done")),
        ({"status": "STOPPED", "message": "stopped"}, EngineState("ended", "stopped", cancelled=True)),
        (
            {"status": "FAILED", "message": "exit 1", "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_node_id": "aa"},
            EngineState("ended", "exit 1"),
        ),
        (
            {"status": "FAILED", "message": "died", "error_type": "JOB_SUPERVISOR_ACTOR_DIED", "driver_node_id": "aa"},
            EngineState("ended", "died"),
        ),
        (
            {"status": "FAILED", "message": "died", "error_type": "JOB_SUPERVISOR_ACTOR_DIED", "driver_node_id": "cc"},
            EngineState("ended", "died", ("gpu-3",), by_engine=True),
        ),
        (
            {"status": "FAILED", "message": "no room", "error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"},
            EngineState("ended", "no room", by_engine=True),
        ),
    ],
)
def test_a_state_is_what_ray_says(ray: FakeRay, job: dict[str, Any], state: EngineState) -> None:
    ray.jobs["x"] = job

    assert _engine(ray).state("x") == state


def test_a_job_that_a_restarted_cluster_forgot_was_ended_by_the_engine_and_no_answer_says_nothing(ray: FakeRay) -> None:
    gone = _engine(ray).state("x")
    assert (gone.state, gone.by_engine) == ("ended", True)

    with pytest.raises(TachoscopeError, match="does not answer"):
        RayEngine(RayOptions(address="http://127.0.0.1:9")).state("x")
    with pytest.raises(TachoscopeError, match="not answer as its REST API"):
        RayEngine(RayOptions(address=f"{ray.url}/elsewhere")).hosts("x")


def test_the_host_of_an_attempt_is_its_drivers_and_a_cancelled_attempt_is_stopped(ray: FakeRay) -> None:
    engine = _engine(ray)
    label = engine.submit(_request(ray))
    assert engine.hosts(label) == {}
    ray.jobs[label] |= {"status": "RUNNING", "driver_node_id": "bb"}
    assert engine.hosts(label) == {"gpu-2": "gpu-2"}

    engine.cancel(label)

    assert engine.state(label).cancelled


def test_a_cluster_that_asks_for_a_token_gets_that_of_the_file(ray: FakeRay, tmp_path: Path) -> None:
    ray.token = "t0ken"
    (tmp_path / "token").write_text("t0ken\n")
    with pytest.raises(TachoscopeError, match="refuses the token"):
        _engine(ray).find("x")

    assert RayEngine(RayOptions(address=ray.url, token_file=str(tmp_path / "token"))).find("x") is None


def _engine(ray: FakeRay) -> RayEngine:
    return RayEngine(RayOptions(address=ray.url))


def _request(ray: FakeRay, excluded: list[str] | None = None, label: str = "tachoscope-x-0") -> AttemptRequest:
    job = TrainingJob(
        name="x",
        engine="ray",
        command=("python", "train.py"),
        working_directory="/code",
        gpus_per_node=8,
        cpus_per_node=4,
        memory_per_node="64G",
        ray=RayOptions(address=ray.url),
    )
    return AttemptRequest(
        job=job,
        number=0,
        label=label,
        command=["python3", "-m", "x", "; rm -rf $HOME"],
        excluded_hosts=excluded or [],
        log=Path("/log"),
        lock=-1,
    )
