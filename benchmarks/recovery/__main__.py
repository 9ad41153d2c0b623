"""Plants faults in a job that `tachoscope submit` brought to a real Slurm, and compares what it did with the truth.

    python -m benchmarks.recovery                    # all faults, one after the other, in one job: some 10 minutes
    python -m benchmarks.recovery --only node_lost   # one of them

The truth: the steps that each rank noted itself, and the fault that was planted. Needs what `benchmarks.slurm_cluster` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.slurm_cluster import SlurmCluster

EVERY = 20
"""Steps between checkpoints."""
STEPS_APART = 50
WAIT_SECONDS = 600.0
TRAINING = Path(__file__).with_name("training.py")


@dataclass(frozen=True)
class Step:
    """A step as a rank noted it: times in Unix seconds."""

    number: int
    began: float
    ended: float
    pid: int
    host: str


class Job:
    """The job's folder and the cluster that it runs on."""

    def __init__(self, folder: Path, cluster: SlurmCluster, steps: int) -> None:
        self.folder, self.cluster, self.steps = folder, cluster, steps
        shutil.copy(TRAINING, folder / "train.py")
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29517", "--local-addr=127.0.0.1"]
        command = ["torchrun", "--nnodes={nodes}", "--nproc-per-node=1", *rendezvous, "train.py"]
        command += [f"--steps={steps}", f"--every={EVERY}"]
        document = {
            "name": "recovery",
            "engine": "slurm",
            "nodes": 2,
            "command": command,
            "resume": ["--resume", "{checkpoint}"],
            "environment": {"OMP_NUM_THREADS": "1"},
            "restart": {"hung_after": "5s", "delay": "1s"},
            "slurm": {"partition": "train"},
        }
        (folder / "training_job.yaml").write_text(json.dumps(document))
        places = {"XDG_STATE_HOME": "state", "TACHOSCOPE_SPOOL": "spool", "TACHOSCOPE_STORE": "store"}
        self.environment = {**cluster.environment, **{name: str(folder / place) for name, place in places.items()}}

    def call(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tachoscope_cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    def noted(self, rank: int) -> list[Step]:
        path = self.folder / f"steps-{rank}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [line.split() for line in lines]
        return [Step(int(row[0]), float(row[1]), float(row[2]), int(row[3]), row[4]) for row in rows if len(row) == 5]

    def wait_for_step(self, number: int) -> None:
        self.cluster.wait_for(
            lambda: any(step.number >= number for step in self.noted(0)[-1:] + self.noted(1)[-1:]), f"step {number}", WAIT_SECONDS
        )


def _kill(job: Job) -> str:
    os.kill(job.noted(1)[-1].pid, signal.SIGKILL)
    return "was killed by SIGKILL"


def _stop(job: Job) -> str:
    os.kill(job.noted(0)[-1].pid, signal.SIGSTOP)
    return "stood still"


def _corrupt(job: Job) -> str:
    newest = max(job.folder.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)
    data = bytearray(newest.read_bytes())
    for place in range(len(data) // 3, len(data) // 3 + 64):
        data[place] ^= 0xFF
    newest.write_bytes(data)
    return _kill(job)


def _lose_node(job: Job) -> str:
    host = job.noted(1)[-1].host
    job.cluster.kill_node(host)
    return host


def _preempt(job: Job) -> str:
    job.cluster.run("sbatch", "--partition=urgent", "-N3", "--exclusive", "--wrap", "sleep 8", environment=job.environment)
    return "PREEMPTED"


FAULTS: dict[str, Callable[[Job], str]] = {
    "killed": _kill,
    "hang": _stop,
    "corrupt_checkpoint": _corrupt,
    "preempted": _preempt,
    "node_lost": _lose_node,
}
"""What each plants; it returns words that the reason for the restart must contain."""


def main() -> int:
    """Run the schedule and print what came of it; return 1 if anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FAULTS, action="append")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    chosen = options.only or list(FAULTS)
    folder = Path(tempfile.mkdtemp(prefix="recovery-"))
    settings = ["SlurmdTimeout=10", "KillWait=20", "PreemptType=preempt/partition_prio", "PreemptMode=CANCEL"]
    partitions = {"train": "PriorityTier=1 PreemptMode=CANCEL", "urgent": "PriorityTier=10 PreemptMode=OFF"}
    with SlurmCluster(nodes=4, gpus=0, host_names=True, partitions=partitions, settings=settings) as cluster:
        job = Job(folder, cluster, STEPS_APART * (len(chosen) + 1))
        log = (folder / "supervisor.log").open("wb")
        submit = [sys.executable, "-m", "tachoscope_cli.main", "submit", "training_job.yaml", "--wait"]
        supervisor = subprocess.Popen(submit, cwd=folder, env=job.environment, stdout=log, stderr=log)
        began = time.time()
        planted = []
        for place, name in enumerate(chosen):
            # Between two checkpoints, so that steps are lost.
            job.wait_for_step(STEPS_APART * (place + 1) + 5)
            planted.append((name, FAULTS[name](job), time.time()))
            sys.stderr.write(f"{time.time() - began:6.1f} s: planted {name}\n")
        code = supervisor.wait(WAIT_SECONDS)
        wall_seconds = time.time() - began
        status: dict[str, Any] = json.loads(job.call("status", "recovery", "--format", "json"))["training_jobs"][0]
        goodput: dict[str, Any] = json.loads(job.call("goodput", "recovery", "--format", "json"))
        sys.stdout.write(job.call("status", "recovery"))
        lines, wrong = _compared(job, status, planted, goodput, wall_seconds)
    if not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        sys.stderr.write(f"kept: {folder}\n")
    lines += [f"Wrong: {line}." for line in wrong] or ["Nothing was wrong."]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if wrong or code else 0


def _compared(
    job: Job, status: dict[str, Any], planted: list[tuple[str, str, float]], goodput: dict[str, Any], wall_seconds: float
) -> tuple[list[str], list[str]]:
    """Return what was done beside the truth, as a table and a sentence, and what is not as it must be."""
    wrong = []
    lines = ["| planted | what followed | lasted, s | step |", "|---|---|---|---|"]
    attempts = status["attempts"]
    if status["state"] != "completed" or len(attempts) != len(planted) + 1:
        wrong.append(f"{status['state']} after {len(attempts)} attempts for {len(planted)} faults")
    for (name, words, _), attempt in zip(planted, attempts, strict=False):
        lasted = attempt["ended_at"] - attempt["submitted_at"]
        lines.append(f"| {name} | {attempt['decision']}: {attempt['reason']} | {lasted:.0f} | {attempt['last_step']} |")
        if words not in attempt["reason"]:
            wrong.append(f"{name}: the reason is {attempt['reason']!r}, not {words!r}")
    ranks = [job.noted(rank) for rank in range(2)]
    firsts: dict[int, Step] = {}
    for step in sorted((step for steps in ranks for step in steps), key=lambda step: step.ended):
        firsts.setdefault(step.number, step)
    again = sum(firsts[step.number].ended < step.began for step in ranks[0])
    if sorted(firsts) != list(range(1, job.steps + 1)):
        wrong.append("not all steps were done")
    if again > (EVERY + 5) * len(planted) + EVERY * sum(name == "corrupt_checkpoint" for name, _, _ in planted):
        wrong.append(f"{again} steps were done again")
    useful_seconds = sum(step.ended - step.began for step in firsts.values())
    life = goodput["life"]
    said = (life["new_steps"], sum(attempt["redone"] for attempt in life["attempts"]))
    if said[0] != len(firsts) or abs(said[1] - again) > len(planted):  # a rank may end between a step and its note
        wrong.append(f"goodput counts {said[0]} steps and {said[1]} again")
    lines += [
        "",
        f"{len(firsts)} steps of two ranks, a checkpoint each {EVERY}; {again} steps were done again (goodput: {said[1]}).",
        f"Steps of progress took {useful_seconds:.1f} s of {wall_seconds:.1f} s.",
    ]
    return lines, wrong


if __name__ == "__main__":
    sys.exit(main())
