"""Twelve faults in one training job on a real Slurm, with the supervisor and without: effective time, lost work, lost steps.

    python -m benchmarks.recovery.schedule --write     # both, one after the other, each at most 15 minutes

Without: `sbatch --requeue` of the same command, which resumes from its newest checkpoint, and a person who looks once a minute: a
job that has ended is submitted again; one that began two minutes ago and finished no step for one is cancelled and submitted again.
After the same failure a second time the person deletes the newest checkpoint if reading it failed, or leaves the shard out. A
real person is slower, by nights and weekends.

The truth: the steps that each rank notes with its own clock. Slow storage is a save that sleeps; the straggler has a CPU quota.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.recovery.__main__ import Step
from benchmarks.slurm_cluster import SlurmCluster

sys.path.append(str(Path(__file__).parents[1]))

from sections import write_section

EVERY = 20
"""Steps between checkpoints."""
APART = 50
"""Steps between faults; slow storage lasts for as many again."""
MOST_SECONDS = 900.0
PERSON_SECONDS = 60.0
SLOW_SECONDS = 1.0
QUOTA_MICROSECONDS, STRAGGLES_SECONDS = 1_000, 10.0
GROUP = Path("/sys/fs/cgroup/cpu")
NAME = "schedule"
EFFECTIVE = ("compute", "communication", "host_wait", "straggler_wait", "data_wait")
"""States of goodput in which a step is; a step of this training mostly sleeps."""


@dataclass
class Run:
    """One job under the schedule, in a folder of its own."""

    folder: Path
    cluster: SlurmCluster
    supervised: bool
    steps: int
    began: float = 0.0
    planted: list[tuple[str, float]] = field(default_factory=list)
    person_acts: list[str] = field(default_factory=list)
    corrupt: str = "none"

    @property
    def environment(self) -> dict[str, str]:
        places = {"XDG_STATE_HOME": "state", "TACHOSCOPE_SPOOL": "spool", "TACHOSCOPE_STORE": "store"}
        return {**self.cluster.environment, **{name: str(self.folder / place) for name, place in places.items()}}

    def command(self) -> list[str]:
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29519", "--local-addr=127.0.0.1"]
        torchrun = ["torchrun", "--nnodes=2", "--nproc-per-node=1", *rendezvous, "train.py"]
        return [*torchrun, f"--steps={self.steps}", f"--every={EVERY}"]

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tachoscope_cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def noted(self, rank: int) -> list[Step]:
        path = self.folder / f"steps-{rank}.txt"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [Step(int(row[0]), float(row[1]), float(row[2]), int(row[3]), row[4]) for row in rows if len(row) == 5]

    def highest(self) -> int:
        return max((step.number for rank in range(2) for step in self.noted(rank)), default=0)

    def pid(self, rank: int) -> int:
        return self.noted(rank)[-1].pid

    def host(self, rank: int) -> str:
        return self.noted(rank)[-1].host


def _kill(run: Run) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid(1), signal.SIGKILL)


def _hang(run: Run) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid(0), signal.SIGSTOP)


def _straggle(run: Run) -> None:
    group = GROUP / f"tachoscope-{os.getpid()}"
    group.mkdir(exist_ok=True)
    (group / "cpu.cfs_quota_us").write_text(str(QUOTA_MICROSECONDS))
    with contextlib.suppress(OSError):
        (group / "cgroup.procs").write_text(str(run.pid(1)))
    time.sleep(STRAGGLES_SECONDS)
    (group / "cpu.cfs_quota_us").write_text("-1")


def _corrupt(run: Run) -> None:
    newest = max(run.folder.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)
    data = bytearray(newest.read_bytes())
    for place in range(len(data) // 3, len(data) // 3 + 64):
        data[place] ^= 0xFF
    newest.write_bytes(data)
    run.corrupt = newest.name
    _kill(run)


def _bad_shard(run: Run) -> None:
    number = run.highest() // 20 + 1
    (run.folder / f"shards/part-{number:03}.txt").write_text("not a number")


def _slow_begins(run: Run) -> None:
    (run.folder / "slow-seconds").write_text(str(SLOW_SECONDS))


def _slow_ends(run: Run) -> None:
    (run.folder / "slow-seconds").unlink()


def _lose_node(run: Run) -> None:
    run.cluster.kill_node(run.host(1))


def _preempt(run: Run) -> None:
    run.cluster.run("sbatch", "--partition=urgent", "-N3", "--exclusive", "--wrap", "sleep 8", environment=run.environment)


SCHEDULE: tuple[tuple[str, int, Callable[[Run], None]], ...] = (
    ("killed", 1, _kill),
    ("hang", 1, _hang),
    ("straggler", 1, _straggle),
    ("corrupt checkpoint", 1, _corrupt),
    ("bad shard", 1, _bad_shard),
    ("slow storage", 1, _slow_begins),
    ("", 4, _slow_ends),
    ("killed", 1, _kill),
    ("preempted", 1, _preempt),
    ("killed", 1, _kill),
    ("hang", 1, _hang),
    ("node lost", 1, _lose_node),
    ("preempted", 1, _preempt),
)
"""Each fault, and how many times `APART` steps after the one before it is planted; without a name: the end of the one before."""


def _plant(run: Run, alive: Callable[[], object], look: Callable[[], None]) -> None:
    """Plant each fault at its step; `look` is called meanwhile."""
    due = 5  # between two checkpoints, so that steps are lost
    for name, apart, fault in SCHEDULE:
        due += apart * APART
        while run.highest() < due:
            look()
            if time.time() - run.began > MOST_SECONDS or not alive():
                return
            time.sleep(0.2)
        if name:
            run.planted.append((name, time.time()))
            sys.stderr.write(f"{time.time() - run.began:6.1f} s: planted {name} at step {run.highest()}\n")
        fault(run)
    while alive() and time.time() - run.began < MOST_SECONDS:
        look()
        time.sleep(0.2)


def supervised(run: Run) -> None:
    """Run the schedule under `tachoscope submit`."""
    document = {
        "name": NAME,
        "engine": "slurm",
        "nodes": 2,
        "command": run.command(),
        "resume": ["--resume", "{checkpoint}"],
        "environment": {"OMP_NUM_THREADS": "1"},
        "restart": {"hung_after": "5s", "delay": "1s", "most_attempts": 40},
        "actions": {"quarantine_shards": "apply", "checkpoint_interval": "apply"},
        "slurm": {"partition": "train"},
    }
    (run.folder / "training_job.yaml").write_text(json.dumps(document))
    with (run.folder / "supervisor.log").open("wb") as log:
        words = [sys.executable, "-m", "tachoscope_cli.main", "submit", "training_job.yaml", "--wait"]
        process = subprocess.Popen(words, cwd=run.folder, env=run.environment, stdout=log, stderr=log)
        run.began = time.time()
        _plant(run, lambda: process.poll() is None, lambda: None)
        if process.poll() is None:
            process.terminate()
        process.wait()
    sys.stdout.write((run.folder / "supervisor.log").read_text())
    sys.stdout.write(run.call("status", NAME))


class Person:
    """Looks at a job of `sbatch --requeue` once a minute, by the rule above."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next_look = time.time() + PERSON_SECONDS
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
        highest = run.highest()
        if highest >= run.steps:
            self.finished = True
        if self.finished or time.time() < self._next_look:
            return
        self._next_look = time.time() + PERSON_SECONDS
        words = ("squeue", "--noheader", "--states=all", f"--jobs={self._job}", "--format=%T %S")
        state, _, began = run.cluster.run(*words, check=False).strip().partition(" ")
        if state in {"PENDING", "CONFIGURING", "COMPLETING"} or (state == "RUNNING" and not self._stands_still(began)):
            return
        if state == "RUNNING":
            run.cluster.run("scancel", self._job)
            run.cluster.wait_for_state(self._job, "CANCELLED")
        self._correct()
        self.submit()
        run.person_acts.append(f"{time.time() - run.began:.0f} s: {state or 'gone'}: submitted again")

    def _stands_still(self, began: str) -> bool:
        ended = max((step.ended for rank in range(2) for step in self._run.noted(rank)[-1:]), default=0.0)
        runs_for = time.time() - datetime.fromisoformat(began).timestamp()
        return runs_for > 2 * PERSON_SECONDS and time.time() - ended > PERSON_SECONDS

    def _correct(self) -> None:
        """After the same error a second time remove what caused it."""
        output = self._run.folder / "output.txt"
        lines = output.read_text(errors="replace").splitlines() if output.exists() else []
        errors = [line for line in lines if "ValueError: could not convert" in line or "PytorchStreamReader" in line]
        error = errors[-1].rpartition("]:")[2].strip() if errors else ""
        output.write_text("")
        if error and error == self._last_error:
            if "PytorchStreamReader" in error:
                max(self._run.folder.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime).unlink()
            else:
                bad = [path for path in (self._run.folder / "shards").iterdir() if not path.read_text().isdigit()]
                (self._run.folder / "left-out.txt").write_text("\n".join(map(str, bad)))
            self._run.person_acts.append(f"{time.time() - self._run.began:.0f} s: corrected {error[:60]}")
        self._last_error = error


def by_person(run: Run) -> None:
    """Run the schedule under `sbatch --requeue` and a person."""
    run.began = time.time()
    person = Person(run)
    _plant(run, lambda: not person.finished, person.look)
    sys.stdout.write("".join(f"person: {line}\n" for line in run.person_acts))


@contextlib.contextmanager
def _cluster() -> Iterator[SlurmCluster]:
    settings = ["SlurmdTimeout=10", "KillWait=20", "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
    partitions = {"train": "PriorityTier=1 PreemptMode=REQUEUE", "urgent": "PriorityTier=10 PreemptMode=OFF"}
    with SlurmCluster(nodes=4, gpus=0, host_names=True, partitions=partitions, settings=settings) as cluster:
        yield cluster


def _result(run: Run) -> dict[str, Any]:
    """Return the figures of a run: by the notes of its ranks, and by goodput."""
    ranks = [run.noted(rank) for rank in range(2)]
    firsts: dict[int, Step] = {}
    for step in sorted((step for steps in ranks for step in steps), key=lambda step: step.ended):
        firsts.setdefault(step.number, step)
    again = sum(firsts[step.number].ended < step.began for step in ranks[0])
    last = max((step.ended for steps in ranks for step in steps), default=run.began)
    useful = sum(step.ended - step.began for step in firsts.values())
    goodput: dict[str, Any] = json.loads(run.call("goodput", NAME, "--format", "json") or "{}")
    resumed = (run.folder / "resumes.txt").read_text() if (run.folder / "resumes.txt").exists() else ""
    resumed_corrupt = sum(run.corrupt in line for line in resumed.splitlines() if line.startswith("0 "))
    return {
        "faults": len(run.planted),
        "steps": len(firsts),
        "again": again,
        "wall": last - run.began,
        "useful": useful,
        "resumed_corrupt": resumed_corrupt,
        "goodput": goodput.get("ledgers"),
    }


def main() -> int:
    """Run the schedule with and without; print and, with --write, record the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("with", "without"), action="append")
    parser.add_argument("--results", type=Path, help="file that keeps the results of both halves, where they are run one by one")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    steps = APART * (sum(apart for _, apart, _ in SCHEDULE) + 1)
    results: dict[str, dict[str, Any]] = {}
    if options.results is not None and options.results.exists():
        results = json.loads(options.results.read_text())
    for how in options.only or ("with", "without"):
        folder = Path(tempfile.mkdtemp(prefix=f"schedule-{how}-"))
        shutil.copy(Path(__file__).with_name("schedule_training.py"), folder / "train.py")
        (folder / "shards").mkdir()
        for number in range(steps // 20 + 2):
            (folder / f"shards/part-{number:03}.txt").write_text("1")
        with _cluster() as cluster:
            run = Run(folder, cluster, how == "with", steps)
            (supervised if run.supervised else by_person)(run)
            results[how] = _result(run)
        if options.results is not None:
            options.results.write_text(json.dumps(results))
        if options.keep:
            sys.stderr.write(f"kept: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        (GROUP / f"tachoscope-{os.getpid()}").rmdir()
    lines = _lines(results, steps)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.write:
        write_section("recovery_schedule", "\n".join(lines), f"python -m benchmarks.recovery.schedule {' '.join(sys.argv[1:])}")
    return 0 if all(one["steps"] == steps for one in results.values()) else 1


def _lines(results: dict[str, dict[str, Any]], steps: int) -> list[str]:
    lines = [
        "| | faults | steps | wall, s | effective, s | share | by goodput | steps again | in intervals | resumes of the corrupt |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for how, one in results.items():
        wall = one["wall"] if one["steps"] == steps else MOST_SECONDS
        share = one["useful"] / wall
        lines.append(
            f"| {how} | {one['faults']} | {one['steps']} of {steps} | {wall:.0f} | {one['useful']:.1f} | {share:.1%}"
            f" | {_said(one['goodput'])} | {one['again']} | {one['again'] / EVERY:.1f} | {one['resumed_corrupt']} |"
        )
    return lines


def _said(ledgers: list[dict[str, Any]] | None) -> str:
    """Return the effective seconds by goodput: those of a rank in steps that were not done again."""
    if not ledgers:
        return "none"
    return f"{sum(ledgers[0]['states'].get(name, 0.0) for name in EFFECTIVE) / 2:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
