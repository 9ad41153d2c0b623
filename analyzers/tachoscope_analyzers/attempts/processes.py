"""The processes of a job as its records describe them: one for each writer that is a rank, from its start to its end."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts.maintenance import Array, Interval, merged
from tachoscope_analyzers.records.load import CLOCKS_AGREE_SECONDS, JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records import records

_SAME_BOOT_SECONDS = 5.0
"""Processes of one host whose clocks' offsets differ by less are put on one monotonic clock; else the host was booted again."""


START_KNOWN_SECONDS = 0.05
"""The system tells a process's start to a clock tick below (10 ms): it may seem to be before what started it."""


class Clock:
    """Puts the records of all hosts on one axis: seconds since the earliest thing known of the job.

    On one host by its monotonic clock, across hosts by Unix time.
    """

    def __init__(self, job: JobRecords) -> None:
        known = [start.process_time or start.time for start in job.starts]
        firsts = [own[0] for own in job.steps.by_writer().values()]
        known += [row.time - row.wall_seconds for row in firsts]
        known += [row.time - row.blocking_seconds for row in job.restores]
        self.origin = min(known, default=0.0)
        self._anchors: dict[str, tuple[float, int]] = {}
        by_host: dict[str, tuple[float, int]] = {}
        for row in (*job.starts, *firsts):
            if row.writer in self._anchors:
                continue
            time, monotonic_ns = by_host.setdefault(row.host, (row.time, row.monotonic_ns))
            off = (row.time - time) - (row.monotonic_ns - monotonic_ns) / 1e9
            self._anchors[row.writer] = (time, monotonic_ns) if abs(off) < _SAME_BOOT_SECONDS else (row.time, row.monotonic_ns)

    def unix_seconds(self, row: records.Record) -> float:
        """Return when a record was written."""
        anchor = self._anchors.get(row.writer)
        if anchor is None:
            return row.time - self.origin
        return (anchor[0] - self.origin) + (row.monotonic_ns - anchor[1]) / 1e9

    def step_ends(self, writer: str, steps: StepTable) -> Array:
        """Return when the steps of a writer ended, shape (K,)."""
        anchor = self._anchors.get(writer)
        if anchor is None:
            return steps.column("time") - self.origin
        return (anchor[0] - self.origin) + (steps.column("monotonic_ns") - anchor[1]) / 1e9

    def apart_seconds(self, one: RankProcess, other: RankProcess) -> float:
        """Return by how much the times of two processes can differ: by little on the monotonic clock of one host."""
        anchor = self._anchors.get(one.writer)
        return START_KNOWN_SECONDS if anchor is not None and anchor == self._anchors.get(other.writer) else CLOCKS_AGREE_SECONDS

    def unix(self, seconds: float) -> float:
        """Return a time of this axis as Unix seconds."""
        return self.origin + seconds

    def seconds(self, unix: float) -> float:
        """Return Unix seconds on this axis."""
        return unix - self.origin


@dataclass(frozen=True, slots=True, eq=False)
class RankProcess:
    """One process of a rank.

    Attributes:
        generation: of the processes that say they are this rank in this attempt, in order of their starts, from 0.
        start: when the operating system started it; where that is not known, the first thing known of it.
        rendezvous_seconds: None: not measured.
        table: its steps in order. numbers, begins, ends: of them, shape (K,).
        restores: disjoint intervals of reading checkpoints. restored: their records.
        beats: times, phases and windows of its heartbeats.
        end: when it was gone, or the last thing known of it. last: the last thing that it wrote.
    """

    started: records.JobStarted
    writer: str
    rank: int
    local_rank: int
    host: str
    attempt: int
    generation: int
    world_size: int
    device: str
    device_name: str
    start: float
    rendezvous_seconds: float | None
    table: StepTable
    numbers: npt.NDArray[np.int64]
    begins: Array
    ends: Array
    restores: list[Interval]
    restored: list[records.CheckpointRestored]
    saves: list[records.CheckpointSaved]
    beats: list[records.Heartbeat]
    beat_times: list[float]
    last: float
    end: float
    ended: records.JobEnded | None
    failed: records.WorkerFailed | None

    @property
    def steps(self) -> int:
        """How many steps it recorded."""
        return len(self.table)

    @property
    def last_step_end(self) -> float | None:
        """When it finished its last step; None without any."""
        return float(self.ends[-1]) if len(self.ends) else None

    @property
    def left_in_order(self) -> bool:
        """Whether it said that it ended, and did not fail."""
        return self.failed is None and self.ended is not None and self.ended.status != "failed"

    def finished_at(self, time: float) -> int:
        """Return the number of the last step that it had finished at a time; 0: none."""
        before = int(np.searchsorted(self.ends, time, side="right"))
        return int(self.numbers[before - 1]) if before else 0

    def alive_through(self, start: float, end: float, *, gap_seconds: float) -> bool:
        """Return whether its heartbeats went on, with no gap longer than that. A process without any is taken for alive."""
        if not self.beats:
            return True
        first, last = bisect_right(self.beat_times, start), bisect_right(self.beat_times, end)
        edges = [start, *self.beat_times[first:last], end]
        return max(b - a for a, b in pairwise(edges)) <= gap_seconds


def processes(job: JobRecords, clock: Clock) -> list[RankProcess]:
    """Return the processes of ranks, in order of attempt, generation and rank."""
    steps = job.steps.by_writer()
    restores, saves = _by_writer(job.restores), _by_writer(job.checkpoints)
    beats, ends = _by_writer(job.heartbeats), _by_writer(job.ends)
    failures = {row.failed_writer: row for row in sorted(job.failures, key=lambda row: -(row.gone_time or row.time))}
    found = []
    for start in job.starts:
        if start.rank == records.LAUNCHER_RANK:
            continue
        parts = [each.pop(start.writer, []) for each in (restores, saves, beats, ends)]
        own = steps.pop(start.writer, StepTable())
        found.append(_process(start, own, parts, failures.get(start.writer), clock))
    return _in_generations(_apart(found))


def _process(
    start: records.JobStarted,
    steps: StepTable,
    parts: list[list[records.Record]],
    failed: records.WorkerFailed | None,
    clock: Clock,
) -> RankProcess:
    steps = steps.take(np.argsort(steps.column("monotonic_ns"), kind="stable"))
    restored: list[records.CheckpointRestored] = parts[0]  # type: ignore[assignment]
    beats: list[records.Heartbeat] = sorted(parts[2], key=lambda row: row.monotonic_ns)  # type: ignore[arg-type]
    ended: list[records.JobEnded] = parts[3]  # type: ignore[assignment]
    ends = clock.step_ends(start.writer, steps)
    begins = ends - steps.column("wall_seconds")
    restores = merged((clock.unix_seconds(row) - row.blocking_seconds, clock.unix_seconds(row)) for row in restored)
    last = max([clock.unix_seconds(start), *ends[-1:], *(clock.unix_seconds(row) for part in parts for row in part)])
    first = min([clock.unix_seconds(start), *begins[:1], *(interval[0] for interval in restores)])
    # By its age, not its Unix time: the host's clock may have been set since the records before.
    process_time = clock.unix_seconds(start) - (start.time - start.process_time) if start.process_time else first
    gone = clock.seconds(_gone(failed)) if failed is not None and failed.gone_time else last
    return RankProcess(
        started=start,
        writer=start.writer,
        rank=start.rank,
        local_rank=start.local_rank,
        host=start.host,
        attempt=start.attempt,
        generation=0,
        world_size=start.world_size,
        device=start.device,
        device_name=start.device_name,
        start=float(min(process_time, first)),
        rendezvous_seconds=start.rendezvous_seconds or None,
        table=steps,
        numbers=steps.column("step"),
        begins=begins,
        ends=ends,
        restores=restores,
        restored=restored,
        saves=sorted(parts[1], key=lambda row: row.monotonic_ns),  # type: ignore[arg-type]
        beats=beats,
        beat_times=[clock.unix_seconds(row) for row in beats],
        last=float(last),
        end=float(max(last, gone)),
        ended=ended[-1] if ended else None,
        failed=failed,
    )


def _gone(failed: records.WorkerFailed) -> float:
    """Return the likeliest Unix time at which a process ended: midway between the looks that saw it alive and gone."""
    seen = failed.seen_time or failed.gone_time
    return (min(seen, failed.gone_time) + failed.gone_time) / 2


def _apart(found: list[RankProcess]) -> list[RankProcess]:
    """End each process before the next one of its rank, and the next attempt, begins on its host: a launcher starts processes once
    all before are gone, and that they are gone is seen a little late.
    """
    begins: dict[str, dict[int, float]] = defaultdict(dict)
    by_place: dict[tuple[str, int], list[RankProcess]] = defaultdict(list)
    for process in sorted(found, key=lambda one: one.start):
        begins[process.host].setdefault(process.attempt, process.start)
        by_place[process.host, process.rank].append(process)
    apart = []
    for row in by_place.values():
        for process, after in zip(row, [*row[1:], None], strict=True):
            later = [begin for attempt, begin in begins[process.host].items() if attempt > process.attempt]
            later += [after.start] if after is not None else []
            # One that began before the last word of this one runs beside it.
            end = min([process.end, *(begin for begin in later if begin >= process.last - START_KNOWN_SECONDS)])
            apart.append(replace(process, end=max(process.last, end)))
    return apart


def _in_generations(found: list[RankProcess]) -> list[RankProcess]:
    seen: dict[tuple[int, int], int] = defaultdict(int)
    numbered = []
    for process in sorted(found, key=lambda one: one.start):
        key = (process.attempt, process.rank)
        numbered.append(replace(process, generation=seen[key]))
        seen[key] += 1
    return sorted(numbered, key=lambda one: (one.attempt, one.generation, one.rank))


def _by_writer(rows: Iterable[records.Record]) -> dict[str, list[records.Record]]:
    grouped: dict[str, list[records.Record]] = defaultdict(list)
    for row in rows:
        grouped[row.writer].append(row)
    return grouped
