"""The process of one attempt: it finds the newest valid checkpoint, runs the command under the probe, and says how that ended.

Started by an engine, on the first node of the attempt: `python -m tachoscope_cli.training_jobs.attempt`. Kubernetes starts it on
each node; all but the first continue from the checkpoint that the first found, and the first alone says how the attempt ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tachoscope import guard
from tachoscope_analyzers.schedulers.slurm.node_lists import expand
from tachoscope_cli.inputs.saved_checkpoints import newest_sound
from tachoscope_cli.launcher.noted_saves import ATTEMPT_VARIABLE
from tachoscope_cli.launcher.signals import wait
from tachoscope_cli.training_jobs import checkpoint_plan, local
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs import code_commit
from tachoscope_core.jobs.submitted_jobs import AttemptBegin, AttemptEnd, TrainingJobs, TrainingJobStatus
from tachoscope_core.jobs.training_job import CHECKPOINT, MASTER, NODES, TrainingJob
from tachoscope_core.storage.store import Store

CHECKPOINT_VARIABLE = "TACHOSCOPE_CHECKPOINT"
"""Environment variable with the checkpoint that an attempt continues from; unset: none."""
MASTER_VARIABLE = "TACHOSCOPE_MASTER"
"""Environment variable with the first node, set by an engine that starts this process on each of them."""
NODE_VARIABLE = "JOB_COMPLETION_INDEX"
"""Which of an attempt's nodes this is, from 0, as Kubernetes sets it."""
SNAPSHOT_VARIABLE = "TACHOSCOPE_DATA_SNAPSHOT"
"""From which a job's lineage takes its data snapshot."""
FIRST_NODE_SECONDS = 1800.0
"""How long a node waits for the first one, which may load a large image."""
MOST_SECRET_BYTES = 1 << 16
LOST_SECONDS = 90
"""How long the other nodes of a job may go on after the first has ended."""
SHIPPED_SECONDS = 30.0
"""How long an attempt after one that trained waits for the word of a checkpoint: agents ship some seconds after a process ended."""


def words(store_url: str, job: TrainingJob, number: int) -> list[str]:
    """Return the command that starts the process of an attempt."""
    elsewhere = job.kubernetes or job.ray
    python = elsewhere.python if elsewhere else sys.executable
    module = [python, "-m", "tachoscope_cli.training_jobs.attempt"]
    return [*module, "--store", store_url, "--job", job.name, "--attempt", str(number), "--digest", job.digest]


def main(arguments: Sequence[str]) -> int:
    """Run an attempt; return the exit code of its command."""
    parser = argparse.ArgumentParser()
    for name in ("--store", "--job", "--digest"):
        parser.add_argument(name, required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--claim", type=Path)
    options = parser.parse_args(arguments)
    if options.claim is not None and not local.claim(options.claim):
        guard.print_line(f"attempt {options.attempt} of {options.job} has begun already: {options.claim}")
        return ExitCode.NOT_DONE
    jobs = TrainingJobs(Store(options.store))
    status = jobs.status(options.job)
    job = status.submitted.job
    if job.digest != options.digest:
        raise TachoscopeError(f"the specification of {job.name} in store {options.store} is not the one that was submitted")
    if os.environ.get(NODE_VARIABLE, "0") != "0" and job.engine == "kubernetes":
        checkpoint = _of_first_node(jobs, job.name, options.attempt)
        return _run(job, options.store, checkpoint, environment_of(job, checkpoint, os.environ, options.attempt))
    return _lead(jobs, status, options.store, options.attempt)


def _lead(jobs: TrainingJobs, status: TrainingJobStatus, store_url: str, number: int) -> int:
    """Run an attempt on its first node, and say how it began and ended."""
    job, began = status.submitted.job, time.time()
    checkpoint, refused, code = "", "", int(ExitCode.NOT_DONE)
    try:
        checkpoint = _newest_checkpoint(Store(store_url), job.name, trained=any(one.highest_step for one in status.attempts))
        environment = environment_of(job, checkpoint, os.environ, number)
        _check_code(job)
        with contextlib.suppress(TachoscopeError):  # the next attempt tries it again
            jobs.forget_saves(job.name, number)
    except TachoscopeError as error:
        refused = str(error)
        guard.print_line(refused)
    else:
        begin = AttemptBegin(started_at=began, host=socket.gethostname(), checkpoint=checkpoint)
        if not jobs.begin_attempt(job.name, number, begin):
            guard.print_line(f"attempt {number} of {job.name} has begun already, and begins once")
            return ExitCode.NOT_DONE
        with checkpoint_plan.plan(status, number, Store(store_url)) as variables:
            code = _run(job, store_url, checkpoint, {**environment, **variables})
    jobs.write_attempt_end(
        job.name,
        number,
        AttemptEnd(started_at=began, ended_at=time.time(), exit_code=code, checkpoint=checkpoint, refused=refused),
    )
    return code


def _check_code(job: TrainingJob) -> None:
    """Refuse to run other code than the job names. An image without git is taken for what it is said to have."""
    why = code_commit.refusal(job.working_directory, job.code_commit) if job.code_commit else ""
    if why is None:
        guard.print_line(f"{job.working_directory} is not a checkout of git: whether it has commit {job.code_commit} is not known")
    if why:
        raise TachoscopeError(why)


def _of_first_node(jobs: TrainingJobs, name: str, number: int) -> str:
    """Return the checkpoint that the first node found, once it has begun; empty: none."""
    deadline = time.monotonic() + FIRST_NODE_SECONDS
    while (begin := jobs.attempt_begin(name, number)) is None:
        if time.monotonic() > deadline:
            raise TachoscopeError(f"the first node of attempt {number} of {name} did not begin within {FIRST_NODE_SECONDS:.0f} s")
        time.sleep(1.0)
    return begin.checkpoint


def _newest_checkpoint(store: Store, job: str, *, trained: bool) -> str:
    deadline = time.monotonic() + (SHIPPED_SECONDS if trained else 0.0)
    while not (found := newest_sound(store, job, guard.print_line)) and time.monotonic() < deadline:
        time.sleep(1.0)
    return found or ""


def _run(job: TrainingJob, store_url: str, checkpoint: str, environment: Mapping[str, str]) -> int:
    run = [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", job.name, "--store", store_url]
    run += ["--end-hung", f"{job.restart.hung_seconds:g}s"] if job.restart.hung_seconds else []
    command = [*_launcher(job, environment), *run, "--", *command_of(job, checkpoint, environment)]
    guard.print_line(f"begins {f'from {checkpoint}' if checkpoint else 'without a checkpoint'} on {socket.gethostname()}")
    return wait(subprocess.Popen(command, env=dict(environment), cwd=job.working_directory), None)


def _launcher(job: TrainingJob, environment: Mapping[str, str]) -> list[str]:
    """Return what starts a process on each node of the allocation."""
    if "SLURM_JOB_ID" not in environment or job.engine != "slurm":
        return []
    # Nodes that lose another one find that out, and record it; those that do not are ended after a while.
    return ["srun", f"--nodes={job.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", f"--wait={LOST_SECONDS}"]


def command_of(job: TrainingJob, checkpoint: str, environment: Mapping[str, str]) -> list[str]:
    """Return the job's command with what stands for its checkpoint and nodes filled in."""
    nodes = expand(environment.get("SLURM_JOB_NODELIST", ""))
    master = environment.get(MASTER_VARIABLE) or (nodes[0] if nodes else "127.0.0.1")
    known = {CHECKPOINT: checkpoint, NODES: str(job.nodes), MASTER: master}
    filled = []
    for word in (*job.command, *(job.resume if checkpoint else ())):
        for name, value in known.items():
            word = word.replace(name, value)
        filled.append(word)
    return filled


def environment_of(job: TrainingJob, checkpoint: str, environ: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the environment of the job's command, with its secrets.

    Raises:
        TachoscopeError: the file of a secret cannot be read.
    """
    found = {name: value for name, value in environ.items() if name != CHECKPOINT_VARIABLE} | job.environment
    for name, path in job.secrets.items():
        try:
            with open(path, encoding="utf-8") as file:
                found[name] = file.read(MOST_SECRET_BYTES).strip()
        except (OSError, ValueError) as error:
            raise TachoscopeError(f"the secret {name} cannot be read from {path}: {error}") from None
    found[ATTEMPT_VARIABLE] = str(number)
    if job.snapshot:
        found.setdefault(SNAPSHOT_VARIABLE, job.snapshot)
    if checkpoint:
        found[CHECKPOINT_VARIABLE] = checkpoint
    return found


def _process() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of the terminal that it was submitted from
    words = sys.argv[1:]
    try:
        code = main(words)
    except TachoscopeError as error:
        guard.print_line(str(error))
        code = error.exit_code
    sys.exit(code)


if __name__ == "__main__":
    _process()
