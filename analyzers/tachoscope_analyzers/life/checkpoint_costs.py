"""What saving and restoring checkpoints cost over a life, and which checkpoint is the newest that was verified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tachoscope_analyzers.attempts.maintenance import Array
from tachoscope_analyzers.attempts.processes import Clock
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records
from tachoscope_core.report import job_life

_QUARTERS = 8
"""Saves from which on the first and the last quarter are compared: two in each."""


@dataclass(frozen=True, slots=True)
class CheckpointSave:
    """One checkpoint, all ranks of it. `step`: of the job. `at`: when it was complete."""

    attempt: int
    reference: str
    own_step: int
    step: int
    at: float
    blocking_seconds: float
    background_seconds: float
    bytes: int
    asynchronous: bool


def saves(runs: Sequence[Run], clock: Clock) -> list[CheckpointSave]:
    """Return the checkpoints in the order in which they were complete.

    What ranks recorded of the same reference and step is one; it lasted as long as on its slowest rank.
    """
    grouped: dict[tuple[int, int, str, int], list[records.CheckpointSaved]] = defaultdict(list)
    for index, run in enumerate(runs):
        for process in run.processes:
            for row in process.saves:
                grouped[index, row.step, row.reference, _nth(grouped, index, row, process.rank)].append(row)
    found = [_save(runs[key[0]], rows, clock) for key, rows in grouped.items()]
    return sorted(found, key=lambda one: one.at)


def _nth(
    grouped: dict[tuple[int, int, str, int], list[records.CheckpointSaved]], index: int, row: records.CheckpointSaved, rank: int
) -> int:
    """Return how many saves of that name and step this rank made before: two after one step are two saves."""
    count = 0
    while any(other.rank == rank for other in grouped.get((index, row.step, row.reference, count), [])):
        count += 1
    return count


def _save(run: Run, rows: Sequence[records.CheckpointSaved], clock: Clock) -> CheckpointSave:
    step = rows[0].step
    return CheckpointSave(
        attempt=run.attempt,
        reference=rows[0].reference,
        own_step=step,
        step=int(run.numbers(np.array([step]))[0]) if step else run.pieces[0][1],
        at=max(clock.unix_seconds(row) for row in rows),
        blocking_seconds=max(row.blocking_seconds for row in rows),
        background_seconds=max(row.background_seconds for row in rows),
        bytes=sum(row.bytes for row in rows),
        asynchronous=any(row.asynchronous for row in rows),
    )


def costs(job: JobRecords, runs: Sequence[Run], clock: Clock) -> job_life.CheckpointCosts | None:
    """Return the costs of checkpoints; None if none was saved or restored."""
    found = saves(runs, clock)
    reading = [
        max(sum(end - start for start, end in p.restores) for p in run.processes)
        for run in runs
        if any(p.restored for p in run.processes)
    ]
    if not found and not reading:
        return None
    seconds = np.array([one.blocking_seconds + one.background_seconds for one in found])
    gaps = [b.at - a.at for a, b in pairwise(found) if a.attempt == b.attempt] or _first_gaps(runs, found)
    rates = [one.bytes / s for one, s in zip(found, seconds, strict=True) if one.bytes and s > 0]
    sizes = [one.bytes for one in found if one.bytes]
    verified, faults = _verified(job, found)
    return job_life.CheckpointCosts(
        saves=len(found),
        asynchronous=any(one.asynchronous for one in found),
        interval_seconds=float(np.median(gaps)) if gaps else None,
        blocking_seconds=float(np.median([one.blocking_seconds for one in found])) if found else 0.0,
        background_seconds=float(np.median([one.background_seconds for one in found])) if found else 0.0,
        bytes=int(np.median(sizes)) if sizes else 0,
        bytes_per_second=float(np.median(rates)) if rates else None,
        restore_seconds=float(np.median(reading)) if reading else None,
        slowdown=_slowdown(seconds),
        last_reference=found[-1].reference if found else "",
        last_step=found[-1].step if found else 0,
        verified_reference=verified.reference if verified else "",
        verified_step=verified.step if verified else 0,
        faults=faults,
    )


def _first_gaps(runs: Sequence[Run], found: Sequence[CheckpointSave]) -> list[float]:
    """Return the seconds from the first step of an attempt to its save: all there is where no attempt saved twice."""
    begins = {run.attempt: min((p.first_begin for p in run.processes if p.first_begin is not None), default=None) for run in runs}
    gaps = [one.at - begin for one in found if (begin := begins.get(one.attempt)) is not None and one.own_step]
    return [gap for gap in gaps if gap > 0]


def _slowdown(seconds: Array) -> float | None:
    if len(seconds) < _QUARTERS:
        return None
    quarter = len(seconds) // 4
    first = float(seconds[:quarter].mean())
    return float(seconds[-quarter:].mean()) / first if first > 0 else None


_Of = tuple[str, int, int]
"""Reference, attempt and the attempt's own step: what a verification is of."""


def _verified(job: JobRecords, found: Sequence[CheckpointSave]) -> tuple[CheckpointSave | None, dict[str, str]]:
    """Return the newest checkpoint whose last verification found it sound, and the faults of others.

    A file that was written over is judged by what was found of its last content. Where each node reads its own ranks' files, a
    checkpoint is sound once the files of all ranks that wrote are.
    """
    last: dict[_Of, dict[tuple[int, ...], records.CheckpointVerified]] = defaultdict(dict)
    newest: dict[str, _Of] = {}
    for row in sorted(job.verified, key=lambda row: row.time):
        of = row.reference, row.attempt_saved, row.step
        last[of][tuple(row.ranks)] = row
        newest[row.reference] = of
    wrote: dict[_Of, set[int]] = defaultdict(set)
    for manifest in job.manifests:
        wrote[manifest.reference, manifest.attempt, manifest.step].add(manifest.rank)
    sound = {
        of
        for of, parts in last.items()
        if all(row.sound for row in parts.values()) and (() in parts or {rank for ranks in parts for rank in ranks} >= wrote[of])
    }
    checked = [one for one in found if (of := (one.reference, one.attempt, one.own_step)) in sound and newest[one.reference] == of]
    faults = {reference: row.fault or "not sound" for reference, of in newest.items() for row in last[of].values() if not row.sound}
    return (checked[-1] if checked else None), faults
