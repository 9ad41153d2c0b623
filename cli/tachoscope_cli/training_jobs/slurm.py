"""Attempts as jobs of Slurm, by its own clients: https://slurm.schedmd.com/sbatch.html.

The label of the attempt is the name of the Slurm job: it shows whether the attempt was submitted before.
"""

from __future__ import annotations

import math
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tachoscope_analyzers.schedulers.slurm.node_lists import expand
from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState, TooFewHostsError
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.common import slurm_client

TIMEOUT_SECONDS = 60.0
_QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
_BY_ENGINE = {"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED", "TIMEOUT", "DEADLINE"}
_TOO_FEW = "node configuration is not available"
_ID = re.compile(r"\d+")


class SlurmEngine:
    """Submits attempts with sbatch."""

    def find(self, label: str) -> str | None:
        """Return the id of the job with this name, also of one that has ended."""
        queued = _ask("squeue", "--me", "--noheader", "--states=all", f"--name={label}", "--format=%i").split()
        if queued:
            return queued[-1]
        known = _ask("sacct", "-X", "-n", "-P", f"--name={label}", "--format=JobIDRaw", "--starttime=now-60days").split()
        return known[-1] if known else None

    def rendered(self, request: AttemptRequest) -> str:
        """Return the command with its batch script."""
        return f"{shlex.join(['sbatch', *_options(request)])} <<'END'\n{_script(request)}END\n"

    def submit(self, request: AttemptRequest) -> str:
        """Submit the batch script of an attempt."""
        said = _sbatch(request)
        found = said.strip().partition(";")[0]
        if not _ID.fullmatch(found):
            raise TachoscopeError(f"sbatch did not print the id of a job: {said.strip()[:200]!r}")
        return found

    def state(self, engine_id: str) -> EngineState:
        """Return what the controller says, or the accounting once the controller has forgotten the job."""
        try:
            said = _ask("squeue", "--noheader", "--states=all", f"--jobs={engine_id}", "--format=%T|%r|%N").strip()
        except TachoscopeError as error:
            if "Invalid job id" not in str(error):
                raise
            said = ""
        if not said:
            said = _ask("sacct", "-X", "-n", "-P", f"--jobs={engine_id}", "--format=State,Reason,NodeList").strip()
        if not said:
            raise TachoscopeError(f"Slurm does not know job {engine_id}", fix="was it purged, or is this another cluster?")
        word, reason, nodes = [*said.splitlines()[-1].split("|"), "", ""][:3]
        state = word.split()[0]
        if state in _QUEUED:
            return EngineState("queued", reason)
        if state in _RUNNING:
            return EngineState("running")
        lost = tuple(expand(nodes)) if state in {"NODE_FAIL", "BOOT_FAIL"} else ()
        return EngineState("ended", state, _down(lost), by_engine=state in _BY_ENGINE, cancelled=state == "CANCELLED")

    def hosts(self, engine_id: str) -> Mapping[str, str]:
        """Return the nodes of the allocation."""
        nodes = expand(_ask("squeue", "--noheader", f"--jobs={engine_id}", "--format=%N").strip())
        return {node: node for node in nodes}

    def output(self, engine_id: str, log: Path) -> str:  # noqa: ARG002
        """Return the file, on a file system that nodes and this machine share."""
        return str(log)

    def cancel(self, engine_id: str) -> None:
        """Ask for the end of a job."""
        _ask("scancel", engine_id)


def _options(request: AttemptRequest) -> list[str]:
    job = request.job
    found = [
        "--parsable",
        "--no-requeue",  # the supervisor decides whether another attempt follows, and where
        f"--job-name={request.label}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--chdir={job.working_directory}",
        f"--output={request.log}",
        "--open-mode=append",
    ]
    found += [f"--gres=gpu:{job.gpus_per_node}"] if job.gpus_per_node else []
    found += [f"--cpus-per-task={job.cpus_per_node}"] if job.cpus_per_node else []
    found += [f"--mem={job.memory_per_node}"] if job.memory_per_node else []
    found += [f"--time={math.ceil(job.time_limit_seconds / 60)}"] if job.time_limit_seconds else []
    found += [f"--exclude={','.join(request.excluded_hosts)}"] if request.excluded_hosts else []
    return [*found, *job.slurm_options]


def _down(nodes: Sequence[str]) -> tuple[str, ...]:
    """Return those of the nodes that Slurm does not use now; all, if it names none."""
    if not nodes:
        return ()
    said = _ask("sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T")
    states = dict(line.strip().split("|", 1) for line in said.splitlines() if "|" in line)
    down = tuple(node for node in nodes if any(word in states.get(node, "") for word in ("down", "drain", "fail", "unknown")))
    return down or tuple(nodes)


def _ask(*command: str) -> str:
    answer = slurm_client.ask(command, seconds=TIMEOUT_SECONDS)
    if answer.code:
        raise TachoscopeError(f"{command[0]} failed: {answer.said or f'exit code {answer.code}'}")
    return answer.output


def _script(request: AttemptRequest) -> str:
    return f"#!/bin/sh\nexec {shlex.join(request.command)}\n"


def _sbatch(request: AttemptRequest) -> str:
    try:
        ended = subprocess.run(
            ["sbatch", *_options(request)],
            input=_script(request),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
            pass_fds=(request.lock,),
        )
    except FileNotFoundError:
        fix = "submit from a host of the Slurm cluster"
        raise TachoscopeError("sbatch is not installed on this machine", fix=fix) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TachoscopeError(f"sbatch does not answer: {error}") from None
    if ended.returncode:
        said = ended.stderr.strip().partition("\n")[0] or f"exit code {ended.returncode}"
        raise (TooFewHostsError if request.excluded_hosts and _TOO_FEW in said else TachoscopeError)(f"sbatch failed: {said}")
    return ended.stdout
