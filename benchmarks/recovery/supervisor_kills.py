"""Kills a supervisor at random moments, and lets it watch attempts without a fault, all on this machine.

    python -m benchmarks.recovery.supervisor_kills --write    # 50 kills and 200 attempts

The truth: each start of the command writes its process id into a file. The kills are of the real engine with the real processes.
The 200 attempts are forked from this process, since only what the supervisor decides of them counts; all actions are on, and their
saves scatter by a factor of three.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tachoscope_cli.launcher import run as launcher
from tachoscope_cli.training_jobs import attempt, supervisor
from tachoscope_cli.training_jobs.engine import AttemptRequest
from tachoscope_cli.training_jobs.local import LocalEngine, claim_path
from tachoscope_cli.training_jobs.lock import held
from tachoscope_cli.training_jobs.supervisor import Supervisor
from tachoscope_core.jobs.submitted_jobs import ENDED, SubmittedJob, TrainingJobs, TrainingJobStatus
from tachoscope_core.jobs.training_job import ActionPolicy, RestartPolicy, TrainingJob
from tachoscope_core.storage.store import Store

sys.path.append(str(Path(__file__).parents[1]))

from sections import write_section

WAIT_SECONDS = 300.0
ALIVE_SECONDS = 6.0
"""A supervisor lives for at most so long before it is killed."""
# A step, some work, and an end that needs another attempt until `wanted` have begun.
FAILING = """
import os, sys, time, tachoscope
with open("begun", "a") as file:
    file.write(f"{os.getpid()}\\n")
done = len(open("begun").readlines())
tachoscope.restored(step=done, reference="x")
tachoscope.step()
time.sleep(0.3)
sys.exit(0 if os.path.exists("enough") else 1)
"""
QUIET = """
import random, time, tachoscope
for step in range(1, 25):
    time.sleep(0.01)
    if tachoscope.checkpoint_due(step, every=2):
        tachoscope.saved(reference=f"checkpoint-{step}", seconds=random.uniform(1.0, 3.0))
    tachoscope.step()
"""
ALL_ON = ActionPolicy(quarantine_shards="apply", checkpoint_interval="apply")


class ForkingEngine(LocalEngine):
    """Forks attempts from this process, which has imported all that they need."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._claims = directory

    def submit(self, request: AttemptRequest) -> str:
        """Fork the process of an attempt."""
        pid = os.fork()
        if not pid:
            os.close(request.lock)
            os.setsid()
            log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            words = [*request.command[3:], "--claim", str(claim_path(self._claims, request.label))]
            os._exit(attempt.main(words))
        while (found := self.find(request.label)) is None:
            time.sleep(0.01)
        return found


def _run_here(job: TrainingJob, store_url: str, checkpoint: str, environment: dict[str, str]) -> int:
    os.environ.update(environment)
    os.chdir(job.working_directory)
    return launcher.run(attempt.command_of(job, checkpoint, environment), job=job.name, store_url=store_url).exit_code


def _submitted(store: Store, folder: Path, name: str, script: str, restart: RestartPolicy) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    job = TrainingJob(
        name=name,
        engine="local",
        command=(sys.executable, "train.py"),
        working_directory=str(folder),
        restart=restart,
        actions=ALL_ON,
    )
    TrainingJobs(store).submit(SubmittedJob(job=job, key=name, submitted_at=time.time()))


def _supervise(store: Store, state: Path, name: str, engine: Callable[[Path], LocalEngine]) -> None:
    """Supervise in this process until the job ends."""
    with held(state, name) as lock:
        if lock is not None:
            Supervisor(store, name, engine(state), state, lock, lambda _: None).run()


def kills(store: Store, folder: Path, count: int) -> tuple[TrainingJobStatus, int, int]:
    """Kill so many supervisors; return what became of the job, how often its command began, and kills within a submission."""
    jobs, within = TrainingJobs(store), 0
    _submitted(store, folder / "kills", "kills", FAILING, RestartPolicy(most_attempts=500, delay_seconds=0.0))
    state = folder / "state"
    for number in range(count + 1):
        pid = os.fork()
        if not pid:
            _supervise(store, state, "kills", LocalEngine)
            os._exit(0)
        if number < count:
            time.sleep(random.uniform(0.0, ALIVE_SECONDS))
            os.kill(pid, signal.SIGKILL)
        else:
            (folder / "kills/enough").touch()
        os.waitpid(pid, 0)
        within += any(not one.engine_id for one in jobs.status("kills").attempts)
    return jobs.status("kills"), len((folder / "kills/begun").read_text().split()), within


def quiet(store: Store, folder: Path, count: int) -> list[TrainingJobStatus]:
    """Run so many jobs of one attempt; return what became of them."""
    attempt._run = _run_here  # type: ignore[assignment]
    jobs = TrainingJobs(store)
    for number in range(count):
        _submitted(store, folder / "quiet", f"quiet-{number}", QUIET, RestartPolicy())
        _supervise(store, folder / "state", f"quiet-{number}", ForkingEngine)
        found = jobs.status(f"quiet-{number}")
        sys.stderr.write(f"{number}: {found.state}, {len(found.attempts)} attempts, {len(found.actions)} actions\n")
    return [jobs.status(f"quiet-{number}") for number in range(count)]


def main() -> int:
    """Print what came of both; return 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--attempts", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    supervisor.LOOK_SECONDS = 0.05
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        os.environ.update({"TACHOSCOPE_SPOOL": f"{name}/spool", "TACHOSCOPE_STORE": f"{name}/store"})
        store = Store(f"{name}/store")
        (folder / "state").mkdir()
        status, begun, within = kills(store, folder, options.kills)
        watched = quiet(store, folder, options.attempts)
    twice = begun - len(status.attempts)
    acted = sum(len(one.actions) + len(one.attempts) - 1 for one in watched)
    ended = sum(one.state == "completed" for one in watched)
    killed = f"{options.kills} supervisors were killed within {ALIVE_SECONDS} s, {within} while they submitted"
    what = f"the job is {status.state} after {len(status.attempts)} attempts, and its command began {begun} times"
    lines = [
        f"{killed}: {what}: {max(twice, 0)} started twice.",
        f"{options.attempts} attempts without a fault, all actions on: {ended} completed, {acted} restarts and actions.",
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.write:
        write_section("supervisor_kills", "\n".join(lines), "python -m benchmarks.recovery.supervisor_kills --write")
    return 1 if twice or acted or status.state not in ENDED or ended < options.attempts else 0


if __name__ == "__main__":
    sys.exit(main())
