"""How many cores of its hosts a job uses, and how many are left to it, by what its ranks saw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.steps import Steps
from tachoscope_core.records import Heartbeat, JobStarted


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


def cores_of(job: JobRecords, steps: Steps) -> Cores | None:
    """Return the cores of the host that allows the least; None where a rank does not tell what it uses."""
    beats = beats_by_rank(job, steps)
    hosts: dict[str, list[JobStarted]] = defaultdict(list)
    for start in steps.starts:
        hosts[start.host].append(start)
    found = [_cores_of_host(starts, beats) for starts in hosts.values()]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.busy_ratio) if known and len(known) == len(found) else None


def _cores_of_host(starts: Sequence[JobStarted], beats: Mapping[int, list[Heartbeat]]) -> Cores | None:
    used, idle = 0.0, []
    for start in starts:
        mine = beats.get(start.rank, [])
        window = sum(beat.window_seconds for beat in mine)
        if not window or not all({"process_cpu_seconds", "idle_core_seconds"} <= beat.signals.keys() for beat in mine):
            return None
        spent = sum(beat.signals["process_cpu_seconds"] + beat.signals.get("worker_cpu_seconds", 0.0) for beat in mine)
        used += spent / window
        idle.append(sum(beat.signals["idle_core_seconds"] for beat in mine) / window)
    counts = [start.cpu_count for start in starts]
    # Pinned ranks may use no more cores than they are given.
    free = min(float(np.mean(idle)), max(sum(counts) - used, 0.0)) if all(counts) else float(np.mean(idle))
    return Cores(used, free, counts[0] if len(set(counts)) == 1 else 0)


def beats_by_rank(job: JobRecords, steps: Steps) -> dict[int, list[Heartbeat]]:
    """Return the heartbeats whose windows lie within the judged steps of their rank; all that came after a step where none does."""
    columns = {writer: column for column, writer in enumerate(steps.writers)}
    inside: dict[int, list[Heartbeat]] = defaultdict(list)
    after: dict[int, list[Heartbeat]] = defaultdict(list)
    for beat in job.heartbeats:
        column = columns.get(beat.writer)
        if column is None or beat.step < 1:
            continue
        rank, end = steps.ranks[column], beat.monotonic_ns / 1e9
        after[rank].append(beat)
        start = steps.ends[0, column] - steps.wall[0, column]
        if end - beat.window_seconds >= start and end <= steps.ends[-1, column]:
            inside[rank].append(beat)
    return {rank: inside[rank] or beats for rank, beats in after.items()}
