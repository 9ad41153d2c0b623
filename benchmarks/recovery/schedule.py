"""Twelve faults in one training job on a real Slurm, with the supervisor and without: effective time, lost work, wrong actions.

    python -m benchmarks.recovery.schedule --only with       # or without; each at most 15 minutes, on a machine without other work

Without: see `person.py`. The truth: the steps that each rank notes, and the faults that the injector notes, all by this machine's
clock. Slow storage is a limit of the blkio cgroup on a file system of its own, the straggler has a CPU quota, the bad shard and
the corrupt checkpoint are files with flipped bytes. It needs root and what `benchmarks.slurm_cluster` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.recovery.faults import MOST_SECONDS, STEPS, plant
from benchmarks.recovery.job_folder import NAME, Run
from benchmarks.recovery.person import by_person
from benchmarks.recovery.storage import mounted
from benchmarks.recovery.truth import Result, by_fault, error_of, result, shortcomings
from benchmarks.slurm_cluster import SlurmCluster
from sections import write_section

ENDS_SECONDS = 120.0
"""How long a job that is cancelled at the time limit may take to end."""


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
        plant(run, lambda: process.poll() is None, lambda: None)
        if process.poll() is None:
            run.call("cancel", NAME)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDS_SECONDS)
        process.kill()
        process.wait()
    sys.stdout.write((run.folder / "supervisor.log").read_text())
    sys.stdout.write(run.call("status", NAME))


@contextlib.contextmanager
def _cluster() -> Iterator[SlurmCluster]:
    settings = ["SlurmdTimeout=10", "KillWait=20", "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE"]
    partitions = {"train": "PriorityTier=1 PreemptMode=REQUEUE", "urgent": "PriorityTier=10 PreemptMode=OFF"}
    with SlurmCluster(nodes=4, gpus=0, host_names=True, partitions=partitions, settings=settings) as cluster:
        yield cluster


def _half(how: str, *, keep: bool) -> Result:
    """Run one half in a new folder."""
    folder = Path(tempfile.mkdtemp(prefix=f"schedule-{how}-"))
    try:
        with _cluster() as cluster, mounted(folder / "checkpoints") as storage:
            run = Run(folder, cluster, storage, STEPS)
            run.fill()
            (supervised if how == "with" else by_person)(run)
            return result(run)
    finally:
        if keep:
            sys.stderr.write(f"kept: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the schedule; print and, with --write, record the figures. Return 1 if the half with the supervisor falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("with", "without"), action="append")
    parser.add_argument("--results", type=Path, help="file that keeps the results of both halves, where they are run one by one")
    parser.add_argument("--keep", action="store_true", help="keep the folders")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    results: dict[str, Result] = {}
    if options.results is not None and options.results.exists():
        results = msgspec.json.decode(options.results.read_bytes(), type=dict[str, Result])
    for how in options.only or ("with", "without"):
        found = results[how] = _half(how, keep=options.keep)
        sys.stdout.write("".join(f"{line}\n" for line in [f"{how}, load {os.getloadavg()[1]:.0f}:", *by_fault(found)]))
        sys.stdout.write("".join(f"falls short, {how}: {line}\n" for line in shortcomings(found, STEPS)))
        if options.results is not None:
            options.results.write_bytes(msgspec.json.encode(results))
    lines = _lines(results)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if options.write:
        write_section("recovery_schedule", "\n".join(lines), f"python -m benchmarks.recovery.schedule {' '.join(sys.argv[1:])}")
    return 1 if "with" in results and shortcomings(results["with"], STEPS) else 0


def _lines(results: dict[str, Result]) -> list[str]:
    lines = [
        "| | faults | steps | wall, s | effective, s | share | by goodput | steps again | beyond an interval | wrong actions |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for how, one in results.items():
        wall = one.wall if one.steps == STEPS else MOST_SECONDS
        error, share = error_of(one), one.effective / wall
        again = sum(recovery.again for recovery in one.recoveries)
        beyond = sum(recovery.again > recovery.limit for recovery in one.recoveries)
        lines.append(
            f"| {how} | {len(one.recoveries)} | {one.steps} of {STEPS} | {wall:.0f} | {one.effective:.1f} | {share:.1%}"
            f" | {'none' if error is None else f'{error:+.1%}'} | {again} | {beyond} | {len(one.wrong)} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
