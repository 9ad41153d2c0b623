"""The processes of a job as its records describe them: one for each writer that is a rank, from its start to its end."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tachoscope_analyzers.attempts.maintenance import Array, Interval, merged
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.life_heartbeats import SeenBeat, Windows
from tachoscope_analyzers.records.life_records import LifeRecords
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
        """Return when a record was written, in seconds on this axis, by the process's steady clock if it is known."""
        if row.writer not in self._anchors:
            return row.time - self.origin
        return self.of_process(row.writer, row.monotonic_ns)

    def of_process(self, writer: str, monotonic_ns: int) -> float:
        """Return a time of the monotonic clock of a process that said its start or has steps."""
        anchor = self._anchors[writer]
        return (anchor[0] - self.origin) + (monotonic_ns - anchor[1]) / 1e9

    def monotonic_ns(self, writer: str, seconds: float) -> float:
        """Return a time of this axis by the monotonic clock of a process that said its start or has steps."""
        anchor = self._anchors[writer]
        return anchor[1] + (seconds - (anchor[0] - self.origin)) * 1e9

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
        """Return Unix seconds as seconds since `origin`."""
        return unix - self.origin


@dataclass(frozen=True, slots=True, eq=False)
class RankProcess:
    """One process of a rank.

    Attributes:
        generation: of the processes that say they are this rank in this attempt, in order of their starts, from 0.
        start: when the operating system started it; where that is not known, the first thing known of it.
        rendezvous_seconds: None: not measured.
        steps: how many it recorded. first_step, last_step: numbers of the first and the last of them; 0 without any.
        first_begin: when its first step began; last_step_end: when it finished its last one. None without any.
        restores: disjoint intervals of reading checkpoints. restored: their records.
        heartbeats: what its heartbeats say together, as one; empty: it sent none. last_heard: those since its last step.
        life, clock: where its steps and further heartbeats are read from.
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
    steps: int
    first_step: int
    last_step: int
    first_begin: float | None
    last_step_end: float | None
    restores: list[Interval]
    restored: list[records.CheckpointRestored]
    saves: list[records.CheckpointSaved]
    heartbeats: Heartbeats
    last_heard: HeardProcess
    life: LifeRecords
    clock: Clock
    last: float
    end: float
    ended: records.JobEnded | None
    failed: records.WorkerFailed | None

    @property
    def left_in_order(self) -> bool:
        """Whether it said that it ended, and did not fail."""
        return self.failed is None and self.ended is not None and self.ended.status != "failed"

    @property
    def usual_window(self) -> float | None:
        """Seconds of the usual window of its heartbeats; None: not known."""
        return self.life.heartbeats.usual_window(self.writer)

    def finished_at(self, time: float) -> int:
        """Return the number of the last step that it had finished at a time; 0: none."""
        if self.last_step_end is None or time >= self.last_step_end:
            return self.last_step
        steps = self.life.steps.about(self.writer, self.clock.monotonic_ns(self.writer, time))
        before = int(np.searchsorted(self.clock.step_ends(self.writer, steps), time, side="right"))
        return int(steps.column("step")[before - 1]) if before else 0


@dataclass(frozen=True, slots=True, eq=False)
class HeardProcess:
    """What heartbeats of some times say of a process that sends any, in order. times: of the heartbeats, shape (N,)."""

    beats: list[SeenBeat]
    times: list[float]

    def during(self, start: float, end: float) -> list[SeenBeat]:
        """Return the heartbeats that were sent after `start` and not after `end`."""
        return self.beats[bisect_right(self.times, start) : bisect_right(self.times, end)]

    def goes_on(self, start: float, end: float, *, gap_seconds: float) -> bool:
        """Return whether heartbeats continue from `start` to `end` without a longer gap."""
        first, last = bisect_right(self.times, start), bisect_right(self.times, end)
        edges = [start, *self.times[first:last], end]
        return max(b - a for a, b in pairwise(edges)) <= gap_seconds

    def line_of_code(self, start: float, end: float) -> str:
        """Return the line of code at which the process was seen most between two times; empty: at none."""
        where: Counter[str] = Counter()
        for time, beat in zip(self.times, self.beats, strict=True):
            if time > start and time - beat.window_seconds < end:
                for lines in beat.where.values():
                    where.update(lines)
        return where.most_common(1)[0][0] if where else ""


def heard(life: LifeRecords, clock: Clock, windows: Windows) -> dict[str, HeardProcess]:
    """Return what heartbeats say of processes in some times, by writer. windows: see `LifeHeartbeats.within`."""
    return {
        writer: HeardProcess(beats, [clock.of_process(writer, beat.monotonic_ns) for beat in beats])
        for writer, beats in life.heartbeats.within(windows).items()
    }


def processes(life: LifeRecords, clock: Clock) -> list[RankProcess]:
    """Return the processes of ranks, in order of attempt, generation and rank."""
    job = life.job
    steps = {writer: _by_clock(own) for writer, own in job.steps.by_writer().items()}
    restores, saves = _by_writer(job.restores), _by_writer(job.checkpoints)
    together, ends = life.heartbeats.together(), _by_writer(job.ends)
    failures = {row.failed_writer: row for row in sorted(job.failures, key=lambda row: -(row.gone_time or row.time))}
    starts = [start for start in job.starts if start.rank != records.LAUNCHER_RANK]
    since = {start.writer: steps[start.writer].column("monotonic_ns")[-1] if start.writer in steps else -np.inf for start in starts}
    last_heard = heard(life, clock, {writer: [(float(last), np.inf)] for writer, last in since.items()})
    found = []
    for start in starts:
        beats = [together.pop(start.writer)] if start.writer in together else []
        parts = [each.pop(start.writer, []) for each in (restores, saves, ends)]
        own = steps.pop(start.writer, StepTable())
        silent = HeardProcess([], [])
        seen = last_heard.get(start.writer, silent) if beats else silent
        found.append(_process(start, own, [*parts, [*beats]], failures.get(start.writer), seen, life, clock))
    return _in_generations(_apart(found))


def _process(
    start: records.JobStarted,
    steps: StepTable,
    parts: list[list[records.Record]],
    failed: records.WorkerFailed | None,
    last_heard: HeardProcess,
    life: LifeRecords,
    clock: Clock,
) -> RankProcess:
    """Return a process. steps: its first and last ones at least, in order. parts: its restores, saves, ends and heartbeats."""
    restored: list[records.CheckpointRestored] = parts[0]  # type: ignore[assignment]
    ended: list[records.JobEnded] = parts[2]  # type: ignore[assignment]
    heartbeats: list[records.Heartbeat] = parts[3]  # type: ignore[assignment]
    numbers = steps.column("step").tolist()
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
        steps=life.steps.counts.get(start.writer, 0) if numbers else 0,
        first_step=numbers[0] if numbers else 0,
        last_step=numbers[-1] if numbers else 0,
        first_begin=float(begins[0]) if numbers else None,
        last_step_end=float(ends[-1]) if numbers else None,
        restores=restores,
        restored=restored,
        saves=sorted(parts[1], key=lambda row: row.monotonic_ns),  # type: ignore[arg-type]
        heartbeats=Heartbeats.of(heartbeats),
        last_heard=last_heard,
        life=life,
        clock=clock,
        last=float(last),
        end=float(max(last, gone)),
        ended=ended[-1] if ended else None,
        failed=failed,
    )


def _by_clock(steps: StepTable) -> StepTable:
    times = steps.column("monotonic_ns")
    return steps if (np.diff(times) >= 0).all() else steps.take(np.argsort(times, kind="stable"))


def _gone(failed: records.WorkerFailed) -> float:
    """Return the likely Unix time of a process's end: midway between the looks that saw it alive and gone."""
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
