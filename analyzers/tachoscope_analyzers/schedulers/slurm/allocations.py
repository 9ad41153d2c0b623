"""Gives allocations from jobs of Slurm, however they were written down: states, node lists, resources, requeues, components.

`sacct_json` and `sacct_table` read the two outputs of `sacct` and give `SacctRow`s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tachoscope_analyzers.schedulers.common.allocation import Allocation, State
from tachoscope_analyzers.schedulers.slurm import node_lists as slurm_nodes
from tachoscope_core.errors import TachoscopeError

# https://slurm.schedmd.com/job_state_codes.html
STATES: dict[str, State] = {
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "RUNNING": "running",
    "SUSPENDED": "running",
    "COMPLETING": "running",
    "STOPPED": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "failed",
    "LAUNCH_FAILED": "failed",
    "SPECIAL_EXIT": "failed",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
    "REQUEUED": "cancelled",
    "REQUEUE_HOLD": "cancelled",
    "REQUEUE_FED": "cancelled",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failed",
    "BOOT_FAIL": "node_failed",
    "RECONFIG_FAIL": "node_failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
}
_NODES_BOOT = {"CONFIGURING", "POWER_UP_NODE"}
_SEVERITY: tuple[State, ...] = (
    "node_failed", "preempted", "timeout", "failed", "cancelled", "unknown", "running", "pending", "completed",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SacctRow:
    """One job record of Slurm, as both outputs of `sacct` give it. Times are Unix seconds, None: not known.

    Attributes:
        component: of a heterogeneous job; None: it is none. states: base state first, then flags.
        reason: why it waits or ended, in Slurm's words.
        node_list: None: the output has no such field; empty: no nodes were assigned.
        accelerators, device: allocated, or asked for where none are allocated yet.
        partition, account, user: empty: not in the output.
        job_id: as the job's own environment has it, which is another than `job` of a task of an array.
    """

    job: str
    component: int | None = None
    submitted: float | None = None
    eligible: float | None = None
    started: float | None = None
    ended: float | None = None
    states: tuple[str, ...]
    reason: str = ""
    node_list: str | None = None
    accelerators: int = 0
    device: str = ""
    restarts: int = 0
    partition: str = ""
    account: str = ""
    user: str = ""
    job_id: str = ""

    @property
    def held(self) -> bool:
        """Whether it ever had its nodes. Of a job cancelled in the queue, older versions give a start, and no nodes."""
        placed = self.node_list is None or not slurm_nodes.is_none(self.node_list)
        return self.started is not None and self.states[0] != "PENDING" and placed


def gpus(resources: Mapping[str, int]) -> tuple[int, str]:
    """Return how many GPUs there are among trackable resources, such as `gres/gpu:h100`, and their kind.

    `gres/gpu` counts all; where only kinds are tracked, their sum (https://slurm.schedmd.com/tres.html).
    """
    kinds = {name.partition(":")[2]: count for name, count in resources.items() if name.startswith("gres/gpu:") and count > 0}
    return max(resources.get("gres/gpu", 0), sum(kinds.values())), ",".join(sorted(kinds))


def reason(states: str, *, waited_for: str, failed_node: str, exit_code: int, signal: int) -> str:
    """Return what Slurm says about the end or the wait, such as `NODE_FAIL; failed node gpu-3`.

    Slurm's field Reason is what a job last waited for; it stays when the job runs and ends.
    """
    waits = states.startswith("PENDING")
    parts = (
        states,
        (waited_for if waits else f"waited for {waited_for}") if waited_for else "",
        f"failed node {failed_node}" if failed_node else "",
        f"exit code {exit_code}" if exit_code else "",
        f"signal {signal}" if signal else "",
    )
    return "; ".join(part for part in parts if part)


def allocations(rows: Iterable[SacctRow], where: str) -> list[Allocation]:
    """Return the allocations of each job in the order of time: requeues counted, components of one job put together.

    A job that was requeued keeps its number: `sacct` shows its earlier allocations only with `--duplicates`. Without them
    the one that is known has the attempt that Slurm's count of restarts tells.

    Raises:
        TachoscopeError: a node list cannot be read.
    """
    by_job: dict[str, dict[int | None, list[SacctRow]]] = defaultdict(lambda: defaultdict(list))
    for row in _newest(rows):
        by_job[row.job][row.component].append(row)
    found: list[Allocation] = []
    for components in by_job.values():
        for attempt in range(max(map(len, components.values()))):
            of_attempt = [rows[attempt] for rows in components.values() if attempt < len(rows)]
            found.append(_together([_allocation(row, attempt, where) for row in of_attempt]))
    return sorted(found, key=lambda one: (one.submitted or 0.0, one.name, one.attempt))


def _newest(rows: Iterable[SacctRow]) -> list[SacctRow]:
    """Return the rows in the order of time, each once: outputs of different times can report the same allocation."""
    known: dict[tuple[str, int | None, float | None], dict[float | None, SacctRow]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row.submitted or 0.0, row.started or 0.0, row.ended or 0.0)):
        known[row.job, row.component, row.submitted][row.started] = row
    return [row for starts in known.values() for start, row in starts.items() if start is not None or len(starts) == 1]


def _allocation(row: SacctRow, index: int, where: str) -> Allocation:
    try:
        nodes = slurm_nodes.expand(row.node_list or "")
    except ValueError as error:
        raise TachoscopeError(f"{where}: job {row.job}: {error}", fix="use the output of sacct as it is") from None
    boots = not _NODES_BOOT.isdisjoint(row.states)
    return Allocation(
        source="slurm",
        name=row.job,
        attempt=max(index, row.restarts),
        submitted=row.submitted,
        eligible=row.eligible,
        placed=row.started if row.held else None,
        started=row.started if row.held and not boots else None,
        ended=row.ended,
        nodes=nodes,
        hosts=nodes,
        accelerators=row.accelerators,
        device=row.device,
        state="pending" if boots else STATES.get(row.states[0], "unknown"),
        reason=row.reason,
    )


def _together(parts: list[Allocation]) -> Allocation:
    """Return the allocation of a whole heterogeneous job: it begins with its first component and runs when all do."""
    if len(parts) == 1:
        return parts[0]
    worst = min(parts, key=lambda part: _SEVERITY.index(part.state))
    return Allocation(
        source="slurm",
        name=parts[0].name,
        attempt=max(part.attempt for part in parts),
        submitted=min((part.submitted for part in parts if part.submitted is not None), default=None),
        eligible=_last([part.eligible for part in parts]),
        placed=min((part.placed for part in parts if part.placed is not None), default=None),
        started=_last([part.started for part in parts]),
        ended=_last([part.ended for part in parts]),
        nodes=tuple(dict.fromkeys(node for part in parts for node in part.nodes)),
        hosts=tuple(dict.fromkeys(host for part in parts for host in part.hosts)),
        accelerators=sum(part.accelerators for part in parts),
        device=",".join(sorted({part.device for part in parts if part.device})),
        state=worst.state,
        reason=worst.reason,
    )


def _last(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None
