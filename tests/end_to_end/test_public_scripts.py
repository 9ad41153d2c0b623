"""Training scripts as the documentation of their libraries gives them, unmodified, under `tachoscope run`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers import REPOSITORY, answer, assert_phases_sum, execute, records_of, run_watched, seconds_by_phase, steps_of
from tachoscope_analyzers.records.load import status

SCRIPTS = REPOSITORY / "examples" / "public"
RANKS = 2


@dataclass(frozen=True)
class Truth:
    """What a script does, known from its data set, batch size, accumulation and epochs.

    `updates` and `samples` of the whole job, over all ranks. `saves`: the steps after which it saves, on rank 0, when it runs in
    one process; `first_eval`: it evaluates before the first step, too.
    """

    updates: int
    saves: tuple[int, ...]
    evaluates: bool = True
    first_eval: bool = False
    arguments: tuple[str, ...] = ()
    peeked_samples: int = 0


TRUTHS = {
    "pytorch_quickstart": Truth(150, saves=(150,), peeked_samples=64),
    # Batches of 32 a rank: of 2048 samples 64 of both ranks together.
    "pytorch_ddp_multigpu": Truth(2 * 4 * 32, saves=(64, 192), evaluates=False, arguments=("4", "2")),
    "lightning_autoencoder": Truth(120, saves=(40, 80, 120), first_eval=True),
    "accelerate_basic": Truth(60, saves=(20, 40, 60, 60)),
    "transformers_trainer": Truth(60, saves=(20, 40, 60, 60)),
}
FRAMEWORKS = ("lightning_autoencoder", "accelerate_basic", "transformers_trainer")
SINGLE = ["pytorch_quickstart", *(pytest.param(name, marks=pytest.mark.bar) for name in FRAMEWORKS)]
"""Those of the frameworks run with the bars; `make test` has training and saves of each in `agents/test_checkpoints.py`."""
DISTRIBUTED = [
    pytest.param(name, marks=[pytest.mark.bar] * (name in FRAMEWORKS)) for name in TRUTHS if name != "pytorch_quickstart"
]


def command(name: str, ranks: int) -> list[str]:
    launcher = ["python"] if ranks == 1 else ["torchrun", "--nproc-per-node", str(ranks)]
    return [*launcher, str(SCRIPTS / f"{name}.py"), *TRUTHS[name].arguments]


def shape(output: str) -> list[str]:
    """Return the lines without their numbers, which differ between any two runs; two ranks print in any order."""
    return sorted(re.sub(r"[-+]?\d[\d.:e+-]*", "#", " ".join(line.split())) for line in output.splitlines())


def check_records(tmp_path: Path, name: str, ranks: int) -> None:
    truth, job = TRUTHS[name], records_of(tmp_path)

    assert status(job, now=0) == "completed"
    assert sorted((start.rank, start.world_size) for start in job.starts if start.rank >= 0) == [(r, ranks) for r in range(ranks)]
    assert len({step.writer for step in job.steps}) == ranks
    for rank in range(ranks):
        steps = steps_of(job, rank)
        assert_phases_sum(steps)
        assert len(steps) == truth.updates / ranks
        # An epoch's evaluation or checkpoint is in the step that follows; what follows the last step is in none.
        after = {save // ranks for save in truth.saves if save < truth.updates}
        epochs_later = [step.step for step in steps if "evaluation" in step.phase_seconds]
        assert epochs_later == [1] * truth.first_eval + expected_evaluations(truth, ranks)
        if rank == 0:
            assert [row.step for row in job.checkpoints if row.rank == 0] == [save // ranks for save in truth.saves]
            assert {step.step for step in steps if "checkpoint" in step.phase_seconds} >= {step + 1 for step in after}
        seconds = seconds_by_phase(steps)
        assert seconds["backward"] > 0
        assert seconds["optimizer"] > 0
        assert seconds["forward"] > 0
        assert seconds["data_wait"] > 0


def expected_evaluations(truth: Truth, ranks: int) -> list[int]:
    epoch = truth.updates // ranks // 3
    return [epoch + 1, 2 * epoch + 1] if truth.evaluates else []


def check_report(tmp_path: Path, ranks: int) -> None:
    done = answer(tmp_path, "analyze", "--store", str(tmp_path / "store"), "--format", "json")
    report = json.loads(done.stdout)
    ledger = report["ledgers"][0]

    assert report["ranks"] == ranks
    assert sum(ledger["states"].values()) == pytest.approx(ledger["wall_seconds"], rel=0.01)


def notices(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if "tachoscope:" in line]


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.bar  # benchmarks/loops runs more of them
def test_a_public_script_runs_the_same_in_one_process_and_is_fully_recorded(tmp_path: Path, name: str) -> None:
    alone = execute(tmp_path, *command(name, 1))
    watched = run_watched(tmp_path, *command(name, 1))

    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert shape(watched.stdout) == shape(alone.stdout)
    assert len(notices(watched.stderr)) == 1
    check_records(tmp_path, name, 1)
    check_report(tmp_path, 1)
    assert sum(step.samples for step in records_of(tmp_path).steps) == samples(name)


def samples(name: str) -> int:
    batch = {"pytorch_quickstart": 64, "lightning_autoencoder": 32, "accelerate_basic": 32, "transformers_trainer": 16}[name]
    return TRUTHS[name].updates * batch + TRUTHS[name].peeked_samples


@pytest.mark.bar  # test_run has a script of two ranks
@pytest.mark.parametrize("name", DISTRIBUTED)
def test_a_public_script_is_fully_recorded_under_torchrun(tmp_path: Path, name: str) -> None:
    watched = run_watched(tmp_path, *command(name, RANKS))

    assert watched.returncode == 0, watched.stderr
    assert len(notices(watched.stderr)) == 1
    check_records(tmp_path, name, RANKS)
    check_report(tmp_path, RANKS)


@pytest.mark.bar
def test_a_script_that_resumes_from_its_snapshot_is_a_second_attempt_of_its_job(tmp_path: Path) -> None:
    name = "pytorch_ddp_multigpu"
    first = run_watched(tmp_path, *command(name, RANKS))
    again = run_watched(tmp_path, *command(name, RANKS))
    job = records_of(tmp_path)

    assert first.returncode == again.returncode == 0
    assert "Resuming training from snapshot at Epoch 2" in again.stdout
    assert {start.attempt for start in job.starts} == {0, 1}
    assert sum(step.attempt == 1 for step in job.steps) == TRUTHS[name].updates / 2
