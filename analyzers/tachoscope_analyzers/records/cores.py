"""How many cores of its hosts a job uses, and how many are left to it, by what its ranks saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.records.records import JobStarted


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores of a host: `used` by the job's processes, `idle`: free for them, `all`: of so many; 0: not known."""

    used: float
    idle: float
    all: int = 0

    @property
    def busy_ratio(self) -> float:
        """Share of the cores that the job could have which it uses, 0 to 1."""
        total = self.used + self.idle
        return self.used / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CoreUsers:
    """Who used the cores of a host, in cores on average.

    Attributes:
        ranks: by the training processes of the ranks asked for. workers: by their loader workers. other_ranks: by the job's other
            ranks there, with their workers. others: by all that is not the job, other virtual machines included.
        all: cores of the host. workers_per_rank, threads_per_rank: the most of a rank; ranks_here: ranks of the job on the host.
    """

    ranks: float
    workers: float
    other_ranks: float
    others: float
    all: int
    workers_per_rank: int
    threads_per_rank: int
    ranks_here: int


def cores_of(job: JobRecords, steps: Steps) -> Cores | None:
    """Return the cores of the host that allows the least; None where a rank does not tell what it uses."""
    beats = beats_by_rank(job, steps)
    hosts: dict[str, list[JobStarted]] = defaultdict(list)
    for start in steps.starts:
        hosts[start.host].append(start)
    found = [_cores_of_host(starts, beats) for starts in hosts.values()]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.busy_ratio) if known and len(known) == len(found) else None


def _cores_of_host(starts: Sequence[JobStarted], beats: Mapping[int, Heartbeats]) -> Cores | None:
    used, idle = 0.0, []
    for start in starts:
        rate = _mean_signals(beats.get(start.rank, Heartbeats()))
        if rate is None:
            return None
        used += rate["process_cpu_seconds"] + rate.get("worker_cpu_seconds", 0.0)
        idle.append(rate["idle_core_seconds"])
    counts = [start.cpu_count for start in starts]
    # Pinned ranks may use no more cores than they are given.
    free = min(float(np.mean(idle)), max(sum(counts) - used, 0.0)) if all(counts) else float(np.mean(idle))
    return Cores(used, free, counts[0] if len(set(counts)) == 1 else 0)


def takers_of(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> CoreUsers | None:
    """Return who used the cores of the fullest host that has one of these ranks; None where none of them tells."""
    beats = beats_by_rank(job, steps)
    hosts = {start.host for start in steps.starts if start.rank in ranks}
    found = [_takers_of_host([start for start in steps.starts if start.host == host], ranks, beats) for host in sorted(hosts)]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: (one.ranks + one.workers + one.other_ranks + one.others) / one.all, default=None)


def _takers_of_host(starts: Sequence[JobStarted], ranks: Sequence[int], beats: Mapping[int, Heartbeats]) -> CoreUsers | None:
    mine = [start for start in starts if start.rank in ranks]
    rates = {start.rank: rate for start in starts if (rate := _mean_signals(beats.get(start.rank, Heartbeats()))) is not None}
    cores = max(start.cpu_count for start in starts)
    if not cores or len(rates) < len(starts):
        return None
    # Probes that do not count busy cores count idle ones; then the host has as many as the job may use.
    busy = float(np.mean([rate.get("busy_core_seconds", max(cores - rate["idle_core_seconds"], 0.0)) for rate in rates.values()]))
    idle = float(np.mean([rate["idle_core_seconds"] for rate in rates.values()]))
    used = {rank: (rate["process_cpu_seconds"], rate.get("worker_cpu_seconds", 0.0)) for rank, rate in rates.items()}
    here = {start.rank for start in mine}
    of_others = [sum(pair) for rank, pair in used.items() if rank not in here]
    return CoreUsers(
        ranks=sum(used[rank][0] for rank in here),
        workers=sum(used[rank][1] for rank in here),
        other_ranks=sum(of_others),
        others=max(busy - sum(map(sum, used.values())), 0.0),
        all=max(round(busy + idle), cores),
        workers_per_rank=int(max(beats[rank].most("workers") for rank in here)),
        threads_per_rank=max(start.cpu_threads for start in mine),
        ranks_here=len(starts),
    )


def _mean_signals(beats: Heartbeats) -> dict[str, float] | None:
    """Return the signals of heartbeats per second; None where one lacks what tells who used the cores."""
    window = beats.window_total
    if not window or not beats.has("process_cpu_seconds", "idle_core_seconds").all():
        return None
    return {name: total / window for name, total in beats.totals().items()}


def beats_by_rank(job: JobRecords, steps: Steps) -> dict[int, Heartbeats]:
    """Return the heartbeats whose windows lie within the judged steps of their rank; all that came after a step where none does."""
    columns = {writer: column for column, writer in enumerate(steps.writers)}
    begins, ends = steps.begins[0], steps.ends[-1]
    found: dict[int, Heartbeats] = {}
    for writer, beats in job.heartbeats.by_writer().items():
        column = columns.get(writer)
        if column is None or not (after := beats.column("step") >= 1).any():
            continue
        inside = after & (beats.ends - beats.windows >= begins[column]) & (beats.ends <= ends[column])
        found[steps.ranks[column]] = beats.take(inside if inside.any() else after)
    return found
