"""Pauses of a job between its steps: a person at a notebook, a prompt, a sleep between two loops. No loss of the step.

Such a gap is far longer than a step, all ranks have it in the same step, before its model is called, and nothing ran in it. What
comes again and again is part of the loop, unless the thread was seen in an event loop, which waits for a person or a client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.report.report import QualityNote

if TYPE_CHECKING:
    import pandas as pd

Matrix = npt.NDArray[np.float64]

PHASES = ("preparation", "other")
"""Where the time between two loops is counted: before the model of the next step is called."""
_IDLE = ("poll", "sleep", "lock")
"""What a thread is seen doing that waits for a person or for time, and not for data."""
_EVENT_LOOPS = ("selectors.py", "base_events.py", "kernelapp.py", "kernelbase.py", "zmqstream.py")
"""Files in which the thread of a notebook or a server of its own waits for what to do next."""


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A pause before a step: of so many seconds, and where the thread was seen meanwhile (empty: nowhere)."""

    step: int
    seconds: float
    where: str


def without_gaps(frame: pd.DataFrame, job: JobRecords, writers: Sequence[str]) -> tuple[pd.DataFrame, Matrix, list[IdleGap]]:
    """Return the steps without their gaps, the seconds of these, shape (K, R), and what they were.

    Args:
        frame: rows of the steps that all ranks have, ordered by step and rank. writers: of the ranks, in order.
    """
    shape = (-1, len(writers))
    wall = frame["wall_seconds"].to_numpy(dtype=float).reshape(shape)
    parts = {phase: frame[f"{phase}_seconds"].to_numpy(dtype=float).reshape(shape) for phase in PHASES}
    beyond = {phase: np.maximum(seconds - np.median(seconds, axis=0), 0.0) for phase, seconds in parts.items()}
    seconds = np.asarray(sum(beyond.values()))
    limit = np.maximum(threshold("gap_steps") * np.median(wall, axis=0), threshold("gap_seconds"))
    long = np.flatnonzero((seconds > limit).all(axis=1))
    if not len(long):
        return frame, np.zeros_like(wall), []
    ends = frame["end_seconds"].to_numpy(dtype=float).reshape(shape)
    beats = job.beats_of(writers)
    within = {
        row: [_overlapping(beats[rank], ends[row, rank] - wall[row, rank], ends[row, rank]) for rank in range(len(writers))]
        for row in long
    }
    gaps = {row: _seen(within[row]) for row in long if all(map(_idle, within[row]))}
    if len(gaps) > threshold("period_minimum_gaps"):
        gaps = {row: where for row, where in gaps.items() if where.startswith(_EVENT_LOOPS)}
    rows = list(gaps)
    taken = np.zeros_like(wall)
    taken[rows] = seconds[rows]
    kept = frame.copy()
    for phase in PHASES:
        kept[f"{phase}_seconds"] = (parts[phase] - np.where(taken > 0, beyond[phase], 0.0)).ravel()
    kept["wall_seconds"] = (wall - taken).ravel()
    kept["device_gap_seconds"] = np.maximum(frame["device_gap_seconds"].to_numpy(dtype=float) - taken.ravel(), 0.0)
    numbers = frame["step"].to_numpy().reshape(shape)[:, 0]
    return kept, taken, [IdleGap(int(numbers[row]), float(taken[row].max()), where) for row, where in gaps.items()]


def _overlapping(beats: Heartbeats, begin: float, end: float) -> Heartbeats:
    return beats.take((beats.ends > begin) & (beats.ends - beats.windows < end))


def _idle(beats: Heartbeats) -> bool:
    """Return whether the thread was seen idle, in most of the samples between the steps."""
    seen = beats.samples("wait_samples", *PHASES)
    idle = sum(seen[kind] for kind in _IDLE)
    return idle >= threshold("minimum_samples") and idle >= threshold("culprit_coverage") * seen.total()


def _seen(beats: Sequence[Heartbeats]) -> str:
    lines: Counter[str] = Counter()
    for of_rank in beats:
        lines.update(of_rank.samples("where", *PHASES))
    return lines.most_common(1)[0][0] if lines else ""


def without_gap_heartbeats(job: JobRecords, writers: Sequence[str], begins: Matrix, gaps: Matrix) -> JobRecords:
    """Return the records without the heartbeats that saw more of a gap than of steps.

    Args:
        begins: of the gaps, seconds of the host's monotonic clock; gaps: how long they are; both of shape (K, R).
    """
    if not gaps.any():
        return job
    beats, rows = job.heartbeats, np.flatnonzero(gaps.any(axis=1))
    of_steps = np.ones(len(beats), dtype=bool)
    for column, writer in enumerate(writers):
        own = np.flatnonzero(beats.is_of([writer]))
        ends, windows = beats.ends[own, None], beats.windows[own, None]
        start = begins[rows, column]
        shared = np.minimum(start + gaps[rows, column], ends) - np.maximum(start, ends - windows)
        of_steps[own] = np.maximum(shared, 0.0).sum(axis=1) <= windows[:, 0] / 2
    return replace(job, heartbeats=beats.take(of_steps))


def notes(gaps: Sequence[IdleGap]) -> list[QualityNote]:
    """Return what is said of the gaps: once, however many there are."""
    if not gaps:
        return []
    longest = max(gaps, key=lambda gap: gap.seconds)
    where = f", seen at {longest.where}" if longest.where else ""
    if len(gaps) == 1:
        what = f"the job paused once, for {longest.seconds:.1f} s before step {longest.step}{where}"
    else:
        total = sum(gap.seconds for gap in gaps)
        what = f"the job paused {len(gaps)} times, for {total:.1f} s in all, longest before step {longest.step}{where}"
    return [QualityNote(what=what, severity="note", means="nothing ran: it is not part of the steps, the shares and the ledger")]
