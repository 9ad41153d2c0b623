"""Jobs of an unusual build, run for real: what `tachoscope run` says at their end, and what the reports say of them."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers import REPOSITORY, answer, records_of, run_watched, steps_of

TRAINING = """
import sys, threading, time
import torch
torch.set_num_threads(1)

def train(steps=40, fail_in=0):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for number in range(1, steps + 1):
        if number == fail_in:
            raise RuntimeError("planted")
        model(torch.rand(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
"""
HOGWILD = """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    together = context.Barrier(2)
    def worker():
        together.wait()
        train()
        together.wait()  # so that both run at the same time, however late one begins
    processes = [context.Process(target=worker) for _ in range(2)]
    for process in processes: process.start()
    for process in processes: process.join()
"""
THREADS = """
together = threading.Barrier(2)
def worker():
    together.wait()
    train()
    together.wait()
threads = [threading.Thread(target=worker) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
FAILING_CHILD = """
import multiprocessing
if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=train, args=(40, 7))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
CRASH = """
import tachoscope
for _ in range(6):
    tachoscope.step()
raise RuntimeError("planted")
"""
NO_PHASES = """
import time
import tachoscope
for _ in range(40):
    time.sleep(0.01)
    tachoscope.step()
"""
SCRIPTS = {
    "hogwild": TRAINING + HOGWILD,
    "threads": TRAINING + THREADS,
    "crash": CRASH,
    "crash_in_a_child": TRAINING + FAILING_CHILD,
    "crash_before_a_step": TRAINING + "model = torch.nn.Linear(8, 1)\nmodel(torch.rand(4, 8)).sum().backward()\nsys.exit(4)",
    "no_phases": NO_PHASES,
    "no_torch": "print('done')",
    "no_gradients": "import torch\nprint(torch.rand(3))",
}


class Ran(NamedTuple):
    """A job that ran: what `tachoscope run` printed, and where its store is."""

    done: subprocess.CompletedProcess[str]
    folder: Path

    def report(self, *words: str) -> dict[str, Any]:
        """Return its report, or what the command said instead under `error`."""
        done = answer(self.folder, *(words or ("analyze", "--job", "job")), "--format", "json")
        return dict(json.loads(done.stdout)) if done.returncode == 0 else {"error": done.stderr}

    def life(self) -> dict[str, Any]:
        return self.report("goodput", "job")

    def notes(self) -> list[str]:
        return [note["what"] for note in self.report()["quality"]]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ran]:
    """Return what runs a script, or an example with options, once."""

    @cache
    def run(name: str, *options: str) -> Ran:
        folder = tmp_path_factory.mktemp(name)
        path = folder / f"{name}.py"
        if name in SCRIPTS:
            path.write_text(textwrap.dedent(SCRIPTS[name]))
        else:
            path = REPOSITORY / "examples" / f"{name}.py"
        return Ran(run_watched(folder, "python", str(path), *options), folder)

    return run


def test_processes_that_claim_one_rank_are_ranks_of_one_attempt(ran: Callable[..., Ran]) -> None:
    job = ran("hogwild")
    report, life = job.report(), job.life()

    said = "2 processes say that they are rank 0: they are analyzed as ranks 0 and 1"
    assert said in job.done.stderr
    assert "torchrun" in job.done.stderr
    assert report["ranks"] == 2
    assert said.startswith(report["quality"][0]["what"])
    assert [(attempt["ranks"], attempt["last_step"]) for attempt in life["life"]["attempts"]] == [(2, 40)]
    assert said.startswith(life["quality"][0]["what"])


def test_of_several_training_threads_it_is_said_that_one_is_watched(ran: Callable[..., Ran]) -> None:
    job = ran("threads")

    said = "2 threads compute gradients in the process"
    assert f"tachoscope: {said}" in job.done.stderr
    assert job.notes() == [said]
    assert [step.step for step in steps_of(records_of(job.folder))] == list(range(1, 41))


def test_a_loop_without_an_optimizer_has_a_step_for_each_gradient_and_says_so(ran: Callable[..., Ran]) -> None:
    job = ran("without_optimizer")

    said = "no optimizer of torch.optim stepped"
    assert job.done.returncode == 0
    assert said in job.done.stderr
    assert "tachoscope.step()" in job.done.stderr
    assert [note for note in job.notes() if said in note]
    # The first four computations of gradients, after which an optimizer is looked for, are one step.
    assert len(records_of(job.folder).steps) == 100 - 3
    assert all(step.backward_calls == 1 for step in steps_of(records_of(job.folder))[1:])


@pytest.mark.bar  # test_steps.py has such a loop
def test_a_loop_that_says_its_steps_has_these_and_nothing_to_note(ran: Callable[..., Ran]) -> None:
    job = ran("without_optimizer", "--say-steps")

    assert "no optimizer" not in job.done.stderr
    assert job.notes() == []
    assert [step.backward_calls for step in steps_of(records_of(job.folder))] == [2] * 50


def test_a_crash_stands_first_in_the_report_with_rank_step_exception_and_exit_code(ran: Callable[..., Ran]) -> None:
    job = ran("crash")

    assert re.search(
        r"^tachoscope: first failure: rank 0 on \S+ failed with RuntimeError: planted, at crash.py:5, in step 7$",
        job.done.stderr,
        re.M,
    )
    assert job.notes()[0] == "rank 0 failed with RuntimeError in step 7; the command ended with exit code 1"


@pytest.mark.bar  # as the one above
def test_a_crash_in_a_process_of_multiprocessing_is_one(ran: Callable[..., Ran]) -> None:
    job = ran("crash_in_a_child")

    assert job.done.returncode == 1
    assert job.notes()[0] == "rank 0 failed with RuntimeError in step 7; the command ended with exit code 1"


def test_a_job_that_ended_before_its_first_step_says_so(ran: Callable[..., Ran]) -> None:
    job = ran("crash_before_a_step")

    assert "ended with exit code 4, at crash_before_a_step.py:17, before its first step ended" in job.done.stderr
    assert "the command ended with exit code 4 before its first step ended" in job.report()["error"]


@pytest.mark.parametrize(
    ("name", "why"),
    [("no_torch", "no process of it imported torch"), ("no_gradients", "imported torch, and none called backward()")],
)
@pytest.mark.bar(but=("no_torch-no process of it imported torch",))
def test_a_job_without_steps_says_why_wherever_it_is_looked_for(ran: Callable[..., Ran], name: str, why: str) -> None:
    job = ran(name)

    assert why in job.done.stderr
    assert why in job.report()["error"]
    assert why in job.life()["quality"][0]["means"]


def test_of_steps_without_torch_only_their_time_is_told(ran: Callable[..., Ran]) -> None:
    job = ran("no_phases")
    report = job.report()

    assert "only the total time of a step is measured" in job.done.stderr
    assert "only the total time of a step is measured" in report["quality"][0]["what"]
    assert (report["goodput"], job.life()["goodput"], report["findings"]) == (None, None, [])
    assert report["step_seconds"]["mean"] >= 0.01
    unmeasured = {row["class"] for row in report["not_measured"]}
    assert {"input_workers", "input_fetch", "compute_bound", "compute_straggler", "host_pause", "unknown"} <= unmeasured
    assert "DataLoader" not in json.dumps(report)


def test_phases_of_a_loop_without_torch_are_measured_and_no_loader_of_torch_is_advised(ran: Callable[..., Ran]) -> None:
    job = ran("numpy_loop")
    report = job.report()

    assert job.done.returncode == 0
    # On a machine that is full, what is marked as computing may all be waiting for a core.
    assert report["ledgers"][0]["states"].keys() >= {"data_wait"}
    assert report["goodput"] is not None
    assert min(step.phase_seconds["forward"] for step in records_of(job.folder).steps) > 0
    assert report["quality"] == []
    assert "DataLoader" not in json.dumps(report)
    assert {step.samples for step in records_of(job.folder).steps} == {1000}
