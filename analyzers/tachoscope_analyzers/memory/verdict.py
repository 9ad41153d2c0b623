"""Whether an attempt ended out of memory, or will: the part of the report, and the finding.

When memory is full soon, `tachoscope_core.jobs.memory_growth` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import SEEN_AT, Candidate
from tachoscope_analyzers.memory.parts import RankMemory, of_ranks, parts_of
from tachoscope_analyzers.memory.what_grew import most_grown
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs.memory_growth import in_limited_group, limit_of, used_and_room
from tachoscope_core.jobs.memory_outlook import MemoryOutlook, full_at
from tachoscope_core.records import records
from tachoscope_core.records.memory import HOST
from tachoscope_core.report.memory import (
    GROWN_WORDS,
    LineBytes,
    MemoryCurve,
    MemoryGrowth,
    MemoryKill,
    MemoryReport,
    SegmentBytes,
    UsedCurve,
)
from tachoscope_core.report.report import Evidence
from tachoscope_core.report.taxonomy import FULL_IN

SLUG = "out_of_memory"
SOON = "soon"
"""Cause of the finding while memory is not full yet."""
_SOURCE = "memory samples"
_MOST_POINTS = 100
_MOST_RANKS = 16
"""Whose curves are in a report: those that hold most."""
_CLOCK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MemoryJudgement:
    """The report's part; None: nothing is known. candidates: none or one, which costs `steps` no time."""

    report: MemoryReport | None
    candidates: list[Candidate]


def judge(job: JobRecords, attempt: int, steps: int, end: float = 0.0) -> MemoryJudgement:
    """Judge the memory of an attempt.

    Args:
        steps: K, the number of steps that the report is about. end: of the last of them, Unix seconds.
    """
    samples = [row for row in job.memory if row.attempt == attempt]
    ranks = of_ranks(samples)
    kills = _kills(job, attempt, samples)
    if not ranks and not kills:
        return MemoryJudgement(None, [])
    grown = _before(kills[0], samples) if kills else _soon(ranks, end)
    report = MemoryReport(ranks=_curves(ranks), used=_used(ranks), growth=grown, kills=[_told(kill) for kill in kills])
    return MemoryJudgement(report, [_candidate(report, steps)] if kills or (grown and grown.full_seconds is not None) else [])


def _kills(job: JobRecords, attempt: int, samples: Sequence[records.MemorySampled]) -> list[records.OutOfMemory]:
    """Return the kills of an attempt's processes, and those of others while it went on, in the order of time."""
    times = [row.time for row in samples]
    first, last = (min(times) - _CLOCK_SECONDS, max(times) + 60.0) if times else (0.0, 0.0)
    found = [
        row
        for row in job.out_of_memory
        if (row.failed_attempt == attempt if row.failed_writer else first <= (row.killed_time or row.time) <= last)
    ]
    return sorted(found, key=lambda row: row.killed_time or row.time)


def _before(kill: records.OutOfMemory, samples: Sequence[records.MemorySampled]) -> MemoryGrowth | None:
    """Return what grew before a kill, of the ranks of its host."""
    until = kill.killed_time or kill.time
    ranks = of_ranks([row for row in samples if row.host == kill.host], until)
    if not ranks:
        return None
    dead = {kill.failed_pid: kill.memory} if kill.memory is not None and kill.failed_pid else {}
    parts = parts_of(ranks, dead, until)
    if kill.place == "device":
        parts = [part for part in parts if part.name == "device" and part.rank == kill.failed_rank]
    return most_grown([part for part in parts if kill.place == "device" or part.name != "device"], ranks)


def _soon(ranks: Sequence[RankMemory], end: float) -> MemoryGrowth | None:
    """Return what grows so that memory will be full, on the host where that is soonest; None: nothing does, as far as is known."""
    found = []
    now = max(end, *(one.samples[-1].time for one in ranks))
    for host in sorted({one.samples[0].host for one in ranks}):
        there = [one for one in ranks if one.samples[0].host == host]
        at = full_at(map(_outlook, there), now)
        if at is None:
            continue
        limited = any(in_limited_group(one.samples[-1]) for one in there)
        ours = {"process", "loader_workers", "shared_memory", *(["other_processes"] if limited else [])}
        grown = most_grown([part for part in parts_of(there, {}, now) if part.name in ours], there)
        if grown is not None:
            found.append(msgspec.structs.replace(grown, full_seconds=max(at - now, 0.0)))
    return min(found, key=lambda one: one.full_seconds or 0.0, default=None)


def _outlook(one: RankMemory) -> MemoryOutlook:
    outlook = MemoryOutlook()
    for row in one.samples:
        outlook.add_sample(row, row.time)
    return outlook


def _candidate(report: MemoryReport, steps: int) -> Candidate:
    kill = report.kills[0] if report.kills else None
    grown = report.growth
    ranks = grown.ranks if grown is not None else [kill.rank] if kill is not None and kill.rank >= 0 else []
    hurt = kill is not None and (kill.victim != "other" or kill.place == "device")
    return Candidate(
        SLUG,
        np.zeros(steps),
        ranks or "all",
        [*(_of_kill(kill) if kill is not None else []), *(_of_growth(grown) if grown is not None else [])],
        speedup=1.0,  # steps do not get faster by it
        level="critical" if hurt else "warning",
        ended=hurt,
        cause=("other" if kill.victim == "other" and kill.place == "host" else "") if kill is not None else SOON,
    )


def _of_kill(kill: MemoryKill) -> list[Evidence]:
    whose = "the machine" if kill.limit_of == HOST else kill.limit_of
    rows = [measured(f"limit that was reached: {whose}", kill.limit_bytes, "bytes", ", ".join(kill.sources))] if whose else []
    if kill.held_bytes:
        rows.append(measured("held by the process when it was killed", kill.held_bytes, "bytes", ", ".join(kill.sources)))
    if kill.requested_bytes:
        rows.append(measured("asked for", kill.requested_bytes, "bytes", "allocator"))
    if kill.fragmented_bytes:
        rows.append(measured("reserved and not allocated (cached, or fragmented)", kill.fragmented_bytes, "bytes", "allocator"))
    if kill.location:
        rows.append(measured(f"{SEEN_AT}{kill.location}", kill.requested_bytes, "bytes", "allocator"))
    return rows


def _of_growth(grown: MemoryGrowth) -> list[Evidence]:
    rows = [
        measured(f"growth since step {grown.since_step}: {GROWN_WORDS[grown.part]}", grown.bytes, "bytes", _SOURCE),
        measured("growth per step", grown.bytes_per_step, "bytes", _SOURCE),
        measured("growth per hour", grown.bytes_per_second * 3600, "bytes", _SOURCE),
    ]
    if grown.full_seconds is not None:
        rows.append(measured(FULL_IN, grown.full_seconds, "seconds", _SOURCE))
    rows += [
        measured(f"{SEEN_AT}{one.line}", one.bytes, "bytes", "allocations followed for some seconds") for one in grown.lines[:3]
    ]
    return rows


def _told(kill: records.OutOfMemory) -> MemoryKill:
    held = kill.memory.anonymous_bytes + kill.memory.shared_bytes if kill.memory is not None else 0
    device = kill.device
    return MemoryKill(
        place=kill.place,
        victim=kill.victim,
        rank=kill.failed_rank,
        host=kill.host,
        pid=kill.failed_pid,
        time=kill.killed_time or kill.time,
        step=kill.step,
        limit_of=kill.limit_of,
        limit_bytes=kill.limit_bytes,
        held_bytes=held or (device.allocated_bytes if device is not None else 0),
        location=kill.location,
        requested_bytes=kill.requested_bytes,
        fragmented_bytes=max(device.reserved_bytes - device.allocated_bytes, 0) if device is not None else 0,
        largest_blocks=[LineBytes(line=one.line, bytes=one.bytes, count=one.count, stack=one.stack) for one in kill.largest_blocks],
        free_segments=[msgspec.convert(one, SegmentBytes, from_attributes=True) for one in kill.free_segments],
        free_segment_count=kill.free_segment_count,
        sources=list(kill.sources),
    )


def _curves(ranks: Sequence[RankMemory]) -> list[MemoryCurve]:
    most = sorted(ranks, key=lambda one: -float((one.process + one.device).max()))[:_MOST_RANKS]
    return [_curve(one) for one in sorted(most, key=lambda one: one.rank)]


def _curve(one: RankMemory) -> MemoryCurve:
    kept = np.unique(np.linspace(0, len(one.samples) - 1, _MOST_POINTS).round().astype(int)).tolist()
    rows = [one.samples[place] for place in kept]
    return MemoryCurve(
        rank=one.rank,
        times=[row.time for row in rows],
        steps=[row.step for row in rows],
        process=[row.process.anonymous_bytes for row in rows],
        workers=[sum(worker.anonymous_bytes for worker in row.workers) for row in rows],
        shared=[row.process.shared_bytes for row in rows],
        device_allocated=[row.device.allocated_bytes if row.device is not None else 0 for row in rows],
        device_reserved=[row.device.reserved_bytes if row.device is not None else 0 for row in rows],
    )


def _used(ranks: Sequence[RankMemory]) -> UsedCurve | None:
    """Return what is used of the limit of the rank whose room is the least; None: of none it is known."""
    known = [[(row, held) for row in one.samples if (held := used_and_room(row)) is not None] for one in ranks]
    fullest = min((rows for rows in known if rows), key=lambda rows: rows[-1][1][1], default=None)
    if fullest is None:
        return None
    last, (used, room) = fullest[-1]
    same = [(row, held) for row, held in fullest if limit_of(row) == limit_of(last)]
    rows = [same[place] for place in np.unique(np.linspace(0, len(same) - 1, _MOST_POINTS).round().astype(int)).tolist()]
    return UsedCurve(
        limit_of=limit_of(last),
        limit_bytes=round(used + room),
        times=[row.time for row, _ in rows],
        used=[round(used) for _, (used, _) in rows],
    )
