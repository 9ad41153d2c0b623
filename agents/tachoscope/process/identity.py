"""Which job, attempt and rank this process is, from what the launcher and the scheduler say."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name

JOB = "TACHOSCOPE_JOB"
RANKS = ("RANK", "SLURM_PROCID")
"""Environment variables in which launchers tell a process its rank, in the order in which they are asked."""
JOB_IS_DEFAULT = "TACHOSCOPE_JOB_IS_DEFAULT"
ATTEMPT = "TACHOSCOPE_ATTEMPT"
RUN_DIR = "TACHOSCOPE_RUN_DIR"

MULTI_NODE_FIX = "name it with --job NAME or $TACHOSCOPE_JOB, the same on all nodes, or start torchrun with --rdzv-id NAME"


@dataclass(frozen=True, slots=True)
class Identity:
    """The part of a record's envelope that stays the same for a process, but for its rank."""

    job: str
    attempt: int
    host: str


def scheduler_job(environ: Mapping[str, str]) -> str | None:
    """Return the name that a scheduler or launcher gives to all processes of this job on all nodes, if any."""
    if environ.get("SLURM_JOB_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}"
    if environ.get("JOB_COMPLETION_INDEX") and environ.get("JOB_NAME"):  # Kubernetes indexed Job
        return environ["JOB_NAME"]
    run_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    return run_id if run_id not in {"", "none"} else None


def spans_nodes(environ: Mapping[str, str]) -> bool:
    """Return whether the environment describes a job of more than one node."""
    world, local = _integer(environ, "WORLD_SIZE"), _integer(environ, "LOCAL_WORLD_SIZE")
    nodes = _integer(environ, "SLURM_JOB_NUM_NODES") or _integer(environ, "SLURM_NNODES")
    return (world > local > 0) or nodes > 1


def default_job(environ: Mapping[str, str]) -> str:
    """Return a name shared by the processes that one launcher started on this host."""
    stem = Path(sys.argv[0]).stem if sys.argv and not sys.argv[0].startswith("-") else ""
    stem = stem or "python"
    return f"{stem}-{os.getppid()}" if "RANK" in environ else f"{stem}-{os.getpid()}"


def resolve(environ: Mapping[str, str], *, job: str | None = None, default: str | None = None) -> Identity:
    """Return who a process is; `default` names the job where nothing else does, of another process than this one.

    Raises:
        TachoscopeError: the job spans nodes and nothing names it, or the name is not usable.
    """
    name = job or environ.get(JOB)
    if name is None or environ.get(JOB_IS_DEFAULT):
        # A default name holds for one node only: processes on other nodes cannot know it.
        across_nodes = scheduler_job(environ)
        if spans_nodes(environ) and across_nodes is None and not job:
            raise TachoscopeError("a job of more than one node needs a name", fix=MULTI_NODE_FIX)
        name = job or (across_nodes if spans_nodes(environ) else None) or name or across_nodes or default or default_job(environ)
    name = check_job_name(name)
    restarts = _integer(environ, "TORCHELASTIC_RESTART_COUNT") or _integer(environ, "SLURM_RESTART_COUNT")
    return Identity(name, _integer(environ, ATTEMPT) + restarts, socket.gethostname())


def _integer(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ.get(name, "0"))
    except ValueError:
        return 0
