"""The other half: `sbatch --requeue` of the same command, which resumes from its newest checkpoint, and a person.

The person looks once a minute. A job that has ended is submitted again; one that began two minutes ago and finished no step for one
is cancelled and submitted again. After the same failure a second time the person deletes the newest checkpoint if reading it
failed, or leaves the shard out. A real person is slower, by nights and weekends.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime

from benchmarks.recovery.faults import plant
from benchmarks.recovery.job_folder import NAME, Run

LOOK_SECONDS = 60.0
_CHECKPOINT, _SHARD = "PytorchStreamReader", "BadZipFile"


class Person:
    """Looks at a job and acts by the rule above."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next_look = time.time() + LOOK_SECONDS
        self._last_error = ""
        self.finished = False
        self._job = ""
        self.submit()

    def submit(self) -> None:
        run = self._run
        watched = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", NAME, "--", *run.command(), "--newest"]
        script = "#!/bin/sh\nexport OMP_NUM_THREADS=1\nexec srun --kill-on-bad-exit=0 --wait=90 " + " ".join(watched) + "\n"
        options = ["--parsable", "--requeue", "--partition=train", "--nodes=2", "--ntasks-per-node=1", "--open-mode=append"]
        (run.folder / "job.sh").write_text(script)
        options += [f"--chdir={run.folder}", f"--output={run.folder}/output.txt", str(run.folder / "job.sh")]
        self._job = run.cluster.run("sbatch", *options, environment=run.environment).strip()

    def look(self) -> None:
        run = self._run
        if run.highest() >= run.steps and self._state()[0] == "COMPLETED":
            self.finished = True
        if self.finished or time.time() < self._next_look:
            return
        self._next_look = time.time() + LOOK_SECONDS
        state, began = self._state()
        if state in {"PENDING", "CONFIGURING", "COMPLETING"} or (state == "RUNNING" and not self._stands_still(began)):
            return
        if state == "RUNNING":
            self.cancel()
        self._correct()
        self.submit()
        run.person_acts.append(f"{time.time() - run.began:.0f} s: {state or 'gone'}: submitted again")

    def cancel(self) -> None:
        """End the job, and wait until its records are shipped."""
        self._run.cluster.run("scancel", self._job, check=False)
        self._run.cluster.wait_for(lambda: self._state()[0] not in {"RUNNING", "COMPLETING"}, "the job to end")

    def _state(self) -> tuple[str, str]:
        words = ("squeue", "--noheader", "--states=all", f"--jobs={self._job}", "--format=%T %S")
        state, _, began = self._run.cluster.run(*words, check=False).strip().partition(" ")
        return state, began

    def _stands_still(self, began: str) -> bool:
        ended = max((step.ended for rank in range(2) for step in self._run.noted(rank)[-1:]), default=0.0)
        runs_for = time.time() - datetime.fromisoformat(began).timestamp()
        return runs_for > 2 * LOOK_SECONDS and time.time() - ended > LOOK_SECONDS

    def _correct(self) -> None:
        """After the same error a second time remove what caused it."""
        output = self._run.folder / "output.txt"
        lines = output.read_text(errors="replace").splitlines() if output.exists() else []
        errors = [word for line in lines for word in (_CHECKPOINT, _SHARD) if word in line]
        output.write_text("")
        error = errors[-1] if errors else ""
        if error and error == self._last_error:
            if error == _CHECKPOINT:
                self._run.newest_checkpoint().unlink()
            else:
                (self._run.folder / "left-out.txt").write_text("\n".join(map(str, self._run.bad_shards())))
            self._run.person_acts.append(f"{time.time() - self._run.began:.0f} s: corrected {error}")
        self._last_error = error


def by_person(run: Run) -> None:
    """Run the schedule under `sbatch --requeue` and a person."""
    run.began = time.time()
    person = Person(run)
    plant(run, lambda: not person.finished, person.look)
    if not person.finished:
        person.cancel()
    sys.stdout.write("".join(f"person: {line}\n" for line in run.person_acts))
