"""Plants faults in a job that `tachoscope submit` brought to a real Ray cluster of one node, and compares it with the truth.

    python -m benchmarks.recovery.on_ray --ray ENVIRONMENT/bin/ray    # of an environment with PyPI's ray[default]

The truth: the steps that the training noted itself. The cluster is this program's own, and only its processes are ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from sections import write_section

from tachoscope_core.net.http_client import HttpError, get

EVERY, STEPS, STEPS_APART = 20, 200, 50
WAIT_SECONDS = 400.0
STARTS = 6
TRAINING = Path(__file__).with_name("training.py")


class RayCluster:
    """A cluster of one node. program: `ray`, of an environment of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._port, self._dashboard = _free_port(), _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{self._dashboard}"

    def start(self) -> None:
        """Start the cluster; Ray gives up after 30 s on a loaded machine, so it is tried several times."""
        for _ in range(STARTS):
            self._begin()
            wait_for(lambda: self._ended() or self._answers(), "the dashboard answers")
            if not self._ended():
                return
            self.kill()
        raise RuntimeError(f"Ray did not start: {(self._folder / 'cluster.log').read_text()[-2000:]}")

    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _begin(self) -> None:
        words = [str(self._program), "start", "--head", "--block", "--disable-usage-stats", "--num-cpus=2"]
        words += [f"--port={self._port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard}"]
        words += [f"--temp-dir={self._folder}"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        log = (self._folder / "cluster.log").open("ab")
        self._process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _answers(self) -> bool:
        try:
            return b"ALIVE" in get(f"{self.address}/nodes?view=summary", seconds=10.0)
        except HttpError:
            return False

    def kill(self) -> None:
        """End all processes of the cluster, as a machine that goes down does."""
        assert self._process is not None
        for pid in [*_below(self._process.pid), self._process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()


def _below(root: int) -> list[int]:
    """Return the processes of the session that a process leads, and all that they started."""
    parents: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1]), int(fields[3])
    found = {root}
    while more := {pid for pid, (parent, session) in parents.items() if (parent in found or session in found)} - found:
        found |= more
    return sorted(found - {root})


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {WAIT_SECONDS:.0f} s until {what}")
        time.sleep(0.2)


class Job:
    """The job's folder. Its processes use this program's Python: Ray's environment does not have tachoscope."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        shutil.copy(TRAINING, folder / "train.py")
        python = folder / "python"
        exported = f"PYTHONPATH={shlex.quote(os.environ.get('PYTHONPATH', ''))}"
        python.write_text(f'#!/bin/sh\n{exported} exec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        places = {"XDG_STATE_HOME": "state", "TACHOSCOPE_SPOOL": "spool", "TACHOSCOPE_STORE": "store"}
        self.environment = {**os.environ, **{name: str(folder / place) for name, place in places.items()}}
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        document = {
            "name": "recovery-ray",
            "engine": "ray",
            "command": [torchrun, "--nproc-per-node=1", "train.py", f"--steps={STEPS}", f"--every={EVERY}"],
            "resume": ["--resume", "{checkpoint}"],
            "working_directory": str(folder),
            "cpus_per_node": 1,
            "environment": {"OMP_NUM_THREADS": "1", "TACHOSCOPE_SPOOL": str(folder / "spool")},
            "restart": {"delay": "1s"},
            "ray": {"address": address, "python": str(python)},
        }
        (folder / "training_job.yaml").write_text(json.dumps(document))

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "supervisor.log").open("ab")
        command = [sys.executable, "-m", "tachoscope_cli.main", *words]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "tachoscope_cli.main", "status", "recovery-ray", "--format", "json"]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        found: dict[str, Any] = json.loads(done.stdout)["training_jobs"][0]
        return found

    def noted(self) -> list[tuple[int, int]]:
        """Return number and process of each step, as the training noted them."""
        path = self.folder / "steps-0.txt"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(row[0]), int(row[3])) for row in rows if len(row) == 5]

    def wait_for_step(self, number: int) -> None:
        wait_for(lambda: any(step >= number for step, _ in self.noted()[-1:]), f"step {number} is noted")


@contextmanager
def _running(cluster: RayCluster) -> Iterator[None]:
    cluster.start()
    try:
        yield
    finally:
        cluster.kill()


def main() -> int:
    """Run the schedule and print what came of it; return 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", type=Path, required=True, help="the program `ray`")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # names of sockets below it are short
    cluster = RayCluster(options.ray.absolute(), folder)
    job = Job(folder, cluster.address)
    with _running(cluster):
        supervisor = job.start("submit", "training_job.yaml", "--wait")
        job.wait_for_step(STEPS_APART + 5)
        os.kill(job.noted()[-1][1], signal.SIGKILL)
        job.wait_for_step(2 * STEPS_APART + 5)
        cluster.kill()
        cluster.start()
        code = supervisor.wait(WAIT_SECONDS)
        found, noted = job.status(), job.noted()
        stopped = _cancelled(job)
    lines, wrong = _compared(found, noted, stopped=stopped)
    shutil.rmtree(folder, ignore_errors=True)
    lines += [f"Wrong: {line}." for line in wrong] or ["Nothing was wrong."]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.write:
        write_section("recovery_ray", "\n".join(lines), "python -m benchmarks.recovery.on_ray --ray ENVIRONMENT/bin/ray --write")
    return 1 if wrong or code else 0


def _cancelled(job: Job) -> bool:
    """Let another job run, cancel it, and return whether its process was ended and it is cancelled."""
    (job.folder / "steps-0.txt").unlink()
    path = job.folder / "training_job.yaml"
    document = json.loads(path.read_text()) | {"name": "stopped-ray", "resume": ["--resume", "{checkpoint}"]}
    path.write_text(json.dumps(document))
    supervisor = job.start("submit", "training_job.yaml", "--wait")
    job.wait_for_step(5)
    pid = job.noted()[-1][1]
    job.start("cancel", "stopped-ray").wait(WAIT_SECONDS)
    supervisor.wait(WAIT_SECONDS)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the process of the cancelled job is gone")
    log = (job.folder / "supervisor.log").read_text()
    return "by tachoscope cancel; cancelled" in log


def _compared(status: dict[str, Any], noted: list[tuple[int, int]], *, stopped: bool) -> tuple[list[str], list[str]]:
    """Return what was done, and what is not as it must be."""
    wrong = [] if stopped else ["the cancelled job did not end as cancelled"]
    attempts = status["attempts"]
    wrong += [f"an attempt ran on {one['hosts']}" for one in attempts if one["hosts"] != [socket.gethostname()]]
    if status["state"] != "completed" or len(attempts) != 3:
        wrong.append(f"{status['state']} after {len(attempts)} attempts for 2 faults")
    lines = ["| planted | what followed | step |", "|---|---|---|"]
    planted = (("process killed", "was killed by SIGKILL"), ("cluster restarted", "the cluster was restarted"))
    for (name, words), attempt in zip(planted, attempts, strict=False):
        lines.append(f"| {name} | {attempt['decision']}: {attempt['reason']} | {attempt['last_step']} |")
        wrong += [] if words in attempt["reason"] else [f"{name}: the reason is {attempt['reason']!r}, not {words!r}"]
    processes = [pid for place, (_, pid) in enumerate(noted) if not place or noted[place - 1][1] != pid]
    if len(processes) != len(attempts) or {step for step, _ in noted} != set(range(1, STEPS + 1)):
        wrong.append("two processes trained at the same time, or not all steps were done")
    if any(not attempt["checkpoint"] for attempt in attempts[1:]):
        wrong.append("an attempt did not continue from a checkpoint")
    done = f"{STEPS} steps, a checkpoint each {EVERY}, {len(noted) - STEPS} steps done again"
    lines += ["", f"{done}; a further job was cancelled, and its process ended."]
    return lines, wrong


if __name__ == "__main__":
    sys.exit(main())
