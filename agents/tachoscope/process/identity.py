"""Which job, attempt and rank this process is, from what the launcher and the scheduler say."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name

JOB = "TACHOSCOPE_JOB"
JOB_IS_DEFAULT = "TACHOSCOPE_JOB_IS_DEFAULT"
ATTEMPT = "TACHOSCOPE_ATTEMPT"
RUN_DIR = "TACHOSCOPE_RUN_DIR"

_LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun, and what else fills torch's env://
    # srun. A batch script has SLURM_PROCID and SLURM_NTASKS too, but only the tasks of a step are ranks.
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
)
_LONGEST_NUMBER = 7

MULTI_NODE_FIX = "name it with --job NAME or $TACHOSCOPE_JOB, the same on all nodes, or start torchrun with --rdzv-id NAME"


@dataclass(frozen=True, slots=True)
class Identity:
    """The part of a record's envelope that stays the same for a process, but for its rank."""

    job: str
    attempt: int
    host: str


class Place(NamedTuple):
    """Which rank of how many a process is."""

    rank: int
    local_rank: int
    world_size: int


def place(environ: Mapping[str, str]) -> Place | None:
    """Return which rank the launcher says that a process is; None: no launcher says so."""
    for rank_name, local_name, size_name in _LAUNCHERS:
        rank, size = _number(environ, rank_name), _number(environ, size_name)
        if rank is not None and (size is not None or rank_name == "RANK"):
            local = _number(environ, local_name)
            return Place(rank, rank if local is None else local, size or 1)
    return None


def local_rank(environ: Mapping[str, str], rank: int) -> int:
    """Return which process of its node a rank is; its rank where nothing says so."""
    alone = _number(environ, "LOCAL_RANK")  # Lightning sets it without RANK
    if alone is not None:
        return alone
    said = place(environ)
    return said.local_rank if said is not None and said.rank == rank else rank


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


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isdecimal() and len(value) <= _LONGEST_NUMBER else None


def _integer(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ.get(name, "0"))
    except ValueError:
        return 0
