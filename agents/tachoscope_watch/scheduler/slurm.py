"""Asks a Slurm for its queue, its nodes and the jobs that started or ended lately. It only reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tachoscope_analyzers.schedulers.slurm import queue_table, sacct_table
from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_analyzers.schedulers.slurm.queue_table import NodeAccelerators, QueuedJob
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.common import slurm_client

TIMEOUT_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_MOST_MINUTES = 24 * 60
_SPARE_MINUTES = 2
_FIELDS = ("JobID", "Partition", "Account", "Submit", "Eligible", "Start", "End", "State", "NodeList", "AllocTRES", "ReqTRES")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster at `time`, Unix seconds. `recent`: job records that were in the queue or ran at any time since the last one."""

    time: float
    jobs: list[QueuedJob]
    nodes: list[NodeAccelerators]
    recent: list[SacctRow]


class Slurm:
    """A cluster, by the programs and the configuration that Slurm's own clients use."""

    name = "slurm"

    def __init__(self) -> None:
        self._asked = 0.0
        self._counts_gpus = False

    def snapshot(self, now: float) -> Snapshot:
        """Return the cluster as it is now.

        Raises:
            TachoscopeError: it does not answer, or an answer cannot be read.
        """
        if not self._counts_gpus:
            _check_accounting(_ask("scontrol", "show", "config"))
            self._counts_gpus = True
        jobs = queue_table.jobs(_ask("squeue", "--all", "--noheader", f"--Format={queue_table.JOB_FORMAT}"))
        nodes = queue_table.nodes(_ask("sinfo", "--all", "--Node", "--noheader", f"--Format={queue_table.NODE_FORMAT}"))
        recent = sacct_table.rows(_ask("sacct", *_RECENT, f"--starttime=now-{self._minutes(now)}minutes"), "sacct")
        self._asked = now
        return Snapshot(time=now, jobs=jobs, nodes=nodes, recent=recent)

    def _minutes(self, now: float) -> int:
        """Return how far back to look: the accounting may get what happens a little later than it happens."""
        since = math.ceil((now - self._asked) / 60) if self._asked else 0
        return min(max(since, 0) + _SPARE_MINUTES, _MOST_MINUTES)


_RECENT = ("--allusers", "--allocations", "--duplicates", "--parsable2", f"--format={','.join(_FIELDS)}")


def _check_accounting(config: str) -> None:
    """Refuse a cluster whose job records have no GPUs: all figures would be 0."""
    tracked = next((line.partition("=")[2] for line in config.splitlines() if line.startswith("AccountingStorageTRES")), "")
    if "gres/gpu" not in tracked:
        raise TachoscopeError(
            f"AccountingStorageTRES is {tracked.strip() or 'not set'}, without gres/gpu: the job records have no GPUs",
            fix="AccountingStorageTRES=gres/gpu in slurm.conf",
        )


def _ask(*command: str) -> str:
    answer = slurm_client.ask(command, seconds=TIMEOUT_SECONDS, most_bytes=_MOST_BYTES)
    if answer.code:
        raise TachoscopeError(f"{command[0]} failed: {answer.said or f'exit code {answer.code}'}")
    return answer.output
