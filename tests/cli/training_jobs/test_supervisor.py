"""Real jobs on this machine: they come back, are given up, are cancelled, and outlive their supervisor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import forked

TACHOSCOPE = [sys.executable, "-m", "tachoscope_cli.main"]
WAIT_SECONDS = 120.0
# Notes each of its beginnings; ends well once there are as many as wanted.
SCRIPT = """
import pathlib, sys, time
begun = pathlib.Path("begun")
with begun.open("a") as file:
    file.write("x")
time.sleep(float(sys.argv[2]))
sys.exit(0 if len(begun.read_text()) >= int(sys.argv[1]) else 1)
"""


class Jobs:
    """The command line in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "train.py").write_text(SCRIPT)
        places = {"XDG_STATE_HOME": "state", "TACHOSCOPE_SPOOL": "spool", "TACHOSCOPE_STORE": "store"}
        self.environ = {**os.environ, **{name: str(directory / place) for name, place in places.items()}}

    def write(self, *arguments: object, restart: str = "{delay: 0s}") -> None:
        words = json.dumps([sys.executable, "train.py", *map(str, arguments)])
        (self.directory / "training_job.yaml").write_text(f"name: small\ncommand: {words}\nrestart: {restart}\n")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked.run(words, cwd=self.directory, environ=self.environ, outputs=self.directory, seconds=WAIT_SECONDS)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*TACHOSCOPE, *words], cwd=self.directory, env=self.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("status", "small", "--format", "json").stdout)["training_jobs"][0]
        return found

    def begun(self) -> int:
        path = self.directory / "begun"
        return len(path.read_text()) if path.exists() else 0


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(tmp_path)


def _until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_job_comes_back_until_it_is_done_and_a_second_submission_is_the_same_job(jobs: Jobs) -> None:
    jobs.write(2, 0)

    done = jobs.call("submit", "training_job.yaml", "--wait")

    assert done.returncode == 0, done.stderr
    status = jobs.status()
    assert (status["state"], [one["decision"] for one in status["attempts"]]) == ("completed", ["restart", "completed"])
    assert jobs.call("submit", "training_job.yaml", "--wait").returncode == 0
    assert "completed before: nothing was started" in jobs.call("submit", "training_job.yaml").stderr
    assert jobs.begun() == 2
    other = jobs.call("submit", "training_job.yaml", "--key", "another")
    assert other.returncode == 2
    assert "was submitted before" in other.stderr


def test_a_job_that_fails_twice_at_the_same_is_given_up_with_the_reason(jobs: Jobs) -> None:
    jobs.write(99, 0)

    done = jobs.call("submit", "training_job.yaml", "--wait")

    assert done.returncode == 1
    status = jobs.status()
    assert (status["state"], jobs.begun()) == ("failed", 2)
    assert status["attempts"][-1]["reason"].endswith("with no new step since")
    refused = jobs.call("submit", "training_job.yaml")
    assert refused.returncode == 2
    assert "--again" in refused.stderr


def test_a_job_that_was_given_up_goes_on_once_its_fault_is_corrected(jobs: Jobs) -> None:
    jobs.write(99, 0, restart="{delay: 0s, most_attempts: 1}")
    assert jobs.call("submit", "training_job.yaml", "--wait").returncode == 1
    jobs.write(2, 0)

    done = jobs.call("submit", "training_job.yaml", "--again", "--wait")

    assert done.returncode == 0, done.stderr
    status = jobs.status()
    assert (status["state"], [one["number"] for one in status["attempts"]]) == ("completed", [0, 1])


def test_a_supervisor_that_is_killed_is_followed_by_one_that_goes_on_and_a_cancelled_job_ends_without_any(jobs: Jobs) -> None:
    jobs.write(99, 600)
    first = jobs.start("submit", "training_job.yaml", "--wait")
    _until(jobs.begun, "the first attempt begins")

    first.send_signal(signal.SIGKILL)
    first.wait()
    assert "tachoscope supervise small" in jobs.call("status", "small").stdout
    second = jobs.start("supervise")
    _until(lambda: jobs.status()["has_supervisor_here"], "one of all jobs supervises it")
    assert "has a supervisor on this machine" in jobs.call("supervise", "small").stderr
    second.kill()
    second.wait()
    assert jobs.call("cancel", "small").returncode == 0

    _until(lambda: jobs.status()["state"] == "cancelled", "it is cancelled")
    assert jobs.begun() == 1
    assert jobs.call("cancel", "small").returncode == 2


@pytest.mark.bar
def test_no_attempt_begins_twice_whenever_its_supervisor_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.recovery.supervisor_kills", "--kills", "50", "--attempts", "5"]

    done = subprocess.run(command, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


# The first time it saves, and then its node is lost: all processes of the attempt and their spool are gone at once.
LOST_NODE = """
import os, pathlib, shutil, signal, sys, time, zipfile
import tachoscope
pathlib.Path("words").write_text(" ".join(sys.argv[1:]))
if len(sys.argv) > 1:
    sys.exit(0)
with zipfile.ZipFile("checkpoint-7.pt", "w") as file:
    file.writestr("archive/data.pkl", b"weights")
tachoscope.saved(reference=os.path.abspath("checkpoint-7.pt"), seconds=0.1)
tachoscope.step()
while not list(pathlib.Path("store/training-jobs/small").glob("saves/000-*.json")):
    time.sleep(0.05)
runner = os.getppid()
attempt = int(pathlib.Path(f"/proc/{runner}/stat").read_text().rpartition(")")[2].split()[1])
os.kill(runner, signal.SIGKILL)
shutil.rmtree("spool")
os.kill(attempt, signal.SIGKILL)
"""


def test_a_job_whose_node_is_lost_with_all_that_it_recorded_continues_from_its_last_save(jobs: Jobs) -> None:
    jobs.write()
    (jobs.directory / "train.py").write_text(LOST_NODE)
    with (jobs.directory / "training_job.yaml").open("a") as file:
        file.write('resume: ["--resume", "{checkpoint}"]\n')

    done = jobs.call("submit", "training_job.yaml", "--wait")

    assert done.returncode == 0, done.stderr
    checkpoint = str(jobs.directory / "checkpoint-7.pt")
    assert [one["checkpoint"] for one in jobs.status()["attempts"]] == ["", checkpoint]
    assert (jobs.directory / "words").read_text() == f"--resume {checkpoint}"
