"""Reads what `squeue` and `sinfo` print of a whole cluster with `--Format` and `|` behind each field.

A width of 0 cuts nothing off (https://slurm.schedmd.com/squeue.html#OPT_Format). Their JSON is not asked for: it has 2.5 kB a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tachoscope_analyzers.schedulers.slurm.allocations import gpus
from tachoscope_analyzers.schedulers.slurm.sacct_table import resources
from tachoscope_core.errors import TachoscopeError

NodeState = Literal["usable", "drained", "down"]

_JOB_FIELDS = ("JobArrayID", "JobID", "HetJobID", "Partition", "Account", "State", "EligibleTime", "StartTime", "tres-alloc")
_NODE_FIELDS = ("NodeList", "PartitionName", "StateLong", "Gres", "GresUsed")
JOB_FORMAT = ",".join(f"{name}:0|" for name in _JOB_FIELDS)
NODE_FORMAT = ",".join(f"{name}:0|" for name in _NODE_FIELDS)

_TASKS = re.compile(r"\d+_\[([\d,:-]+)(?:%\d+)?\]")
_TASK_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,:()]+|:\(null\))?:(\d+)(?=$|[,(])")
_NOT_THERE = ("down", "fail", "error", "unknown", "future", "power", "reboot", "no_respond")
_DRAINED = ("drain", "maint", "inval")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job that waits or has its nodes. Times are Unix seconds, None: there is none yet.

    Attributes:
        job: `SLURM_JOB_ID` of its processes; of a component of a heterogeneous job that of the first one.
        tasks: of an array that wait in this row; else 1.
        accelerators: that a task has, or waits for.
    """

    job: str
    partition: str
    account: str
    pending: bool
    tasks: int
    eligible: float | None
    started: float | None
    accelerators: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccelerators:
    """The GPUs of a node. `partitions`: that it belongs to."""

    node: str
    partitions: tuple[str, ...]
    state: NodeState
    total: int
    used: int


def jobs(content: str) -> list[QueuedJob]:
    """Return the jobs that `squeue` printed.

    Raises:
        TachoscopeError: a line or a field cannot be read.
    """
    return [_job(fields, where) for where, fields in _lines("squeue", content, _JOB_FIELDS)]


def _job(fields: dict[str, str], where: str) -> QueuedJob:
    leader = fields["HetJobID"]
    return QueuedJob(
        job=leader if leader.isdecimal() and leader != "0" else fields["JobID"],
        partition=fields["Partition"],
        account=fields["Account"],
        pending=fields["State"] == "PENDING",
        tasks=_tasks(fields["JobArrayID"], where),
        eligible=_time(fields, "EligibleTime", where),
        started=_time(fields, "StartTime", where),
        accelerators=gpus(resources(fields["tres-alloc"]))[0],
    )


def _tasks(job: str, where: str) -> int:
    """Return how many tasks a row of an array stands for: `7_[1-9:4,12%2]` are four."""
    if "[" not in job:
        return 1
    listed = _TASKS.fullmatch(job)
    ranges = [_TASK_RANGE.fullmatch(part) for part in listed[1].split(",")] if listed else [None]
    count = 0
    for found in ranges:
        if found is None:
            raise TachoscopeError(f"{where}: JobArrayID is {job[:80]!r}, not like 7_[1-9]", fix="ask with SLURM_BITSTR_LEN=0")
        first, last, step = int(found[1]), int(found[2] or found[1]), max(int(found[3] or 1), 1)
        count += max(last - first, 0) // step + 1
    return count


def nodes(content: str) -> list[NodeAccelerators]:
    """Return the nodes that `sinfo --Node` printed, each once, though it has a line for each of its partitions.

    Raises:
        TachoscopeError: a line or a field cannot be read.
    """
    known: dict[str, dict[str, str]] = {}
    partitions: dict[str, list[str]] = {}
    for _, fields in _lines("sinfo", content, _NODE_FIELDS):
        known[fields["NodeList"]] = fields
        partitions.setdefault(fields["NodeList"], []).append(fields["PartitionName"])
    return [
        NodeAccelerators(
            node=name,
            partitions=tuple(partitions[name]),
            state=_node_state(fields["StateLong"]),
            total=_count(fields, "Gres"),
            used=_count(fields, "GresUsed"),
        )
        for name, fields in known.items()
    ]


def _node_state(state: str) -> NodeState:
    """Return what a node's state means for its free GPUs: https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES."""
    state = state.lower()
    if "*" in state or any(word in state for word in _NOT_THERE):  # *: it does not respond
        return "down"
    return "drained" if any(word in state for word in _DRAINED) else "usable"


def _count(fields: dict[str, str], name: str) -> int:
    listed = fields[name]
    if listed in {"", "(null)", "N/A"}:
        return 0
    # What stands in brackets may have commas: `gpu:h100:8(IDX:0,2-7)`.
    plain = re.sub(r"\((?!null\))[^)]*\)", "", listed)
    counts = [int(found) for found in _GPUS.findall(plain)]
    if not counts and re.search(r"(^|,)gpu\b", plain):
        raise TachoscopeError(f"sinfo: node {fields['NodeList']}: {name} is {listed[:80]!r}, not like gpu:8 or gpu:h100:8")
    return sum(counts)


def _time(fields: dict[str, str], name: str, where: str) -> float | None:
    value = fields[name]
    if value in {"", "N/A", "NONE", "Unknown"}:
        return None
    if not value.isdecimal():
        raise TachoscopeError(f"{where}: {name} is {value[:40]!r}, not Unix seconds", fix="ask with SLURM_TIME_FORMAT=%s")
    return float(value) or None


def _lines(program: str, content: str, names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(names) + 1 or cells[-1]:
            raise TachoscopeError(f"{program}, line {number}: {len(cells) - 1} fields, not {len(names)}: {', '.join(names)}")
        yield f"{program}, line {number}", dict(zip(names, cells, strict=False))
