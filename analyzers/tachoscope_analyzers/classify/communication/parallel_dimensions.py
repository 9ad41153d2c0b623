"""Exposed communication by parallel dimension: what the collectives of tensor, data, context or expert groups keep the ranks.

Of the ranks of a group the one that is blocked least came last and kept the others waiting, so what it is blocked for is the
transfer. Only calls of `torch.distributed` on the host tell their group; the gradient exchange within backward does not.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tachoscope_analyzers.classify.communication.slow_link import last_steps
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.records.group_names import group_name
from tachoscope_core.report.report import Evidence


@dataclass(frozen=True, slots=True)
class Exposed:
    """What the groups of a dimension are blocked for, seconds per step, mean over all ranks: moving data, and in all.

    Attributes:
        groups: how many of them were seen. size: ranks of one.
    """

    dimension: str
    groups: int
    size: int
    transfer_seconds: float
    blocked_seconds: float


def exposed(job: JobRecords, steps: Steps) -> list[Exposed]:
    """Return the dimensions of which collectives were recorded, the one that costs most first; none where no layout was told."""
    dimensions = _dimensions(job, steps)
    rows = [row for row in job.collectives if row.peer < 0 and row.writer in steps.writers]
    last = last_steps(rows)
    blocked: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for row in rows:
        if row.group in dimensions:
            blocked[dimensions[row.group]][row.group][row.rank] += row.seconds / last[row.writer]
    ranks = max(len(steps.ranks), 1)
    found = []
    for dimension, groups in blocked.items():
        transfer = sum(min(by_rank.values()) * len(by_rank) for by_rank in groups.values())
        total = sum(sum(by_rank.values()) for by_rank in groups.values())
        size = max(len(by_rank) for by_rank in groups.values())
        found.append(Exposed(dimension, len(groups), size, transfer / ranks, total / ranks))
    return sorted(found, key=lambda one: -one.blocked_seconds)


def _dimensions(job: JobRecords, steps: Steps) -> dict[str, str]:
    """Return dimensions by group name; of dimensions with the same groups the first."""
    found: dict[str, str] = {}
    for start in job.starts:
        if start.writer in steps.writers:
            for dimension, groups in start.groups.items():
                for ranks in groups:
                    if len(ranks) > 1:
                        found.setdefault(group_name(ranks, start.world_size), dimension)
    return found


def evidence(job: JobRecords, steps: Steps) -> list[Evidence]:
    """Return a line for each dimension: seconds of transfer a step, and of waiting."""
    found = []
    for one in exposed(job, steps):
        groups = "the group of all" if one.groups == 1 else f"{one.groups} groups of {one.size}"
        waiting = f"with waiting {one.blocked_seconds * 1e3:.3g} ms"
        found.append(
            measured(
                f"{one.dimension} ({groups}): moving data in its collectives, {waiting}",
                one.transfer_seconds,
                "seconds per step",
                "collective summaries",
            )
        )
    return found
