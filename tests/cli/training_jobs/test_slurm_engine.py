"""What Slurm's clients say, by fake ones that print what those of 22.05 print; the real ones are in benchmarks/recovery."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_cli.training_jobs.slurm import SlurmEngine
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import TrainingJob

Clients = Callable[..., Path]


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """Make programs that print a text, or fail with one on stderr, and note their arguments."""

    def made(**said: str | tuple[int, str]) -> Path:
        for name, answer in said.items():
            code, text = answer if isinstance(answer, tuple) else (0, answer)
            path = tmp_path / name
            path.write_text(
                f'#!/bin/sh\necho "$@" > {tmp_path}/{name}.arguments\ncat > {tmp_path}/{name}.input\n'
                f"printf '%s' '{text}' >&{2 if code else 1}\nexit {code}\n"
            )
            path.chmod(0o755)
        return tmp_path

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return made


@pytest.mark.parametrize(
    ("queue", "accounting", "nodes", "state"),
    [
        ("PENDING|Resources|\n", "", "", EngineState("queued", "Resources")),
        ("RUNNING|None|node[1-2]\n", "", "", EngineState("running")),
        ("COMPLETING|NonZeroExitCode|node1\n", "", "", EngineState("running")),
        ((1, "slurm_load_jobs error: Invalid job id specified"), "COMPLETED|None|node1\n", "", EngineState("ended", "COMPLETED")),
        ("PREEMPTED|None|node[1-2]\n", "", "", EngineState("ended", "PREEMPTED", by_engine=True)),
        ("", "CANCELLED by 1000|None|node1\n", "", EngineState("ended", "CANCELLED", cancelled=True)),
        (
            "NODE_FAIL|NodeDown|node[3-4]\n",
            "",
            "node3|idle\nnode4|down*\n",
            EngineState("ended", "NODE_FAIL", ("node4",), by_engine=True),
        ),
    ],
)
def test_a_state_is_what_slurm_says(
    clients: Clients, queue: str | tuple[int, str], accounting: str, nodes: str, state: EngineState
) -> None:
    clients(squeue=queue, sacct=accounting, sinfo=nodes)

    assert SlurmEngine().state("7") == state


def test_a_controller_that_does_not_answer_is_not_the_end_of_a_job(clients: Clients) -> None:
    clients(squeue=(1, "slurm_load_jobs error: Unable to contact slurm controller"), sacct="COMPLETED||")

    with pytest.raises(TachoscopeError, match="Unable to contact"):
        SlurmEngine().state("7")


def test_an_attempt_is_a_batch_job_with_its_label_as_name_and_no_word_is_read_by_a_shell(clients: Clients, tmp_path: Path) -> None:
    folder = clients(sbatch="42\n")

    assert SlurmEngine().submit(_request(tmp_path)) == "42"

    arguments = (folder / "sbatch.arguments").read_text().split()
    assert {"--job-name=tachoscope-x-0", "--no-requeue", "--nodes=2", "--gres=gpu:8", "--exclude=node3", "--qos=high"} <= {
        *arguments
    }
    script = (folder / "sbatch.input").read_text()
    assert "exec python -m x '; rm -rf $HOME'" in script
    first, _, rest = SlurmEngine().rendered(_request(tmp_path)).partition("\n")
    assert (shlex.split(first)[1:-1], rest) == (arguments, f"{script}END\n")


def test_too_few_hosts_are_told_apart_from_other_refusals(clients: Clients, tmp_path: Path) -> None:
    clients(sbatch=(1, "sbatch: error: Batch job submission failed: Requested node configuration is not available"))
    with pytest.raises(TooFewHostsError):
        SlurmEngine().submit(_request(tmp_path))

    clients(sbatch=(1, "sbatch: error: invalid partition specified: trian"))
    with pytest.raises(TachoscopeError, match="invalid partition") as error:
        SlurmEngine().submit(_request(tmp_path))
    assert not isinstance(error.value, TooFewHostsError)


def _request(folder: Path) -> AttemptRequest:
    job = TrainingJob(
        name="x",
        engine="slurm",
        command=("python", "train.py"),
        working_directory=str(folder),
        nodes=2,
        gpus_per_node=8,
        slurm_options=("--qos=high",),
    )
    return AttemptRequest(
        job=job,
        number=0,
        label="tachoscope-x-0",
        command=["python", "-m", "x", "; rm -rf $HOME"],
        excluded_hosts=["node3"],
        log=folder / "log",
        lock=os.open(folder, os.O_RDONLY),
    )
