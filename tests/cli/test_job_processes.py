"""Which processes are the ranks of a job, told apart from those of other jobs and from their own loader workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import command, environment
from processes import agent_process, wait_for
from spool_writing import Process

RESNET, BERT = f"resnet-{os.getpid()}", f"bert-{os.getpid()}"
TRAINING = """
import os, sys, time
training = os.getpid()
if os.fork() == 0:  # a loader's worker, which ends with the training
    while os.getppid() == training:
        time.sleep(0.05)
    os._exit(0)
open(sys.argv[1], "w").write(str(training))
time.sleep(600)
"""


def in_its_own_process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tachoscope_cli.main", *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Two jobs with a rank 3 each, and a loader worker of each."""
    folder = tmp_path_factory.mktemp("jobs")
    environ = environment(folder, RANK="3", WORLD_SIZE="4")
    started, pids = [], {}
    try:
        for job in (RESNET, BERT):
            told = folder / job
            words = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", job, "--"]
            words += [sys.executable, "-c", TRAINING, str(told)]
            started.append(subprocess.Popen(words, env=environ))
            pids[job] = wait_for(lambda told=told: told.exists() and int(told.read_text() or 0))
        yield pids
    finally:
        for one in started:
            one.terminate()
            one.wait()


def test_without_an_agent_a_rank_is_the_first_process_that_run_started_for_it(running: dict[str, int]) -> None:
    for job, pid, ask in zip(running, running.values(), (in_its_own_process, command), strict=True):
        done = ask("job", "processes", job, "--rank", "3", "--pid")
        assert (done.returncode, done.stdout) == (0, f"{pid}\n"), done.stderr
    rows = json.loads(command("job", "processes", RESNET, "--format", "json").stdout)
    assert [(row["rank"], row["pid"]) for row in rows] == [(3, running[RESNET])]
    assert str(running[BERT]) in command("job", "processes", BERT).stdout


def test_a_job_or_rank_that_does_not_run_here_is_an_error_that_names_it(running: dict[str, int]) -> None:
    for words, said in (
        (("llama",), "no process of job 'llama'"),
        ((RESNET, "--rank", "1"), f"no process of rank 1 of job '{RESNET}'"),
    ):
        done = command("job", "processes", *words)
        assert done.returncode == 1
        assert f"{said} runs on this machine" in done.stderr


def test_the_agent_knows_the_ranks_of_processes_that_no_launcher_told_their_rank(tmp_path: Path) -> None:
    process = Process(tmp_path / "spool" / "run-1", job="spawned", rank=1, world_size=2)
    process.start(pid=os.getpid())
    with agent_process(tmp_path) as agent:
        wait_for(lambda: "spawned" in agent.get("/v1/ranks"))
        done = command("job", "processes", "spawned", "--format", "json")

    (row,) = json.loads(done.stdout)
    assert (row["rank"], row["pid"]) == (1, os.getpid())
