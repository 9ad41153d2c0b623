"""Pauses of the training thread within computing: it neither ran nor wanted a core.

Told from the clocks of the thread: forward and optimizer last longer than it computed and waited for a core. That alone is no
pause, since it may wait for other ranks there (buffers that DDP broadcasts) or for compute threads of its own. It is one where the
thread was seen in a call that waits for time, disk, file or pipe, or where the interpreter's lock was held elsewhere: the sampler,
which needs it ten times a second, then comes late as well.

Only what comes in some of the steps is a pause: a thread that stands still for as long in each of them waits for what computes
there, such as an accelerator that the probe does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers import spikes
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.thresholds import threshold
from tachoscope_core.records import Heartbeat, JobStarted

Matrix = npt.NDArray[np.float64]

_COMPUTING = ("forward", "optimizer")
_PAUSING = ("sleep", "disk", "file", "pipe")
_NOT_SEEN_IN_A_CALL = ("cpu", "unknown", "lock")
"""`lock`: the sampler holds the interpreter's lock whenever it looks, so that a thread that merely runs seems to wait for it."""


def split(
    job: JobRecords,
    starts: Sequence[JobStarted],
    writers: Sequence[str],
    column: Callable[[str], Matrix],
    own: dict[str, Matrix],
    waiting: Matrix,
) -> Matrix:
    """Move what is a pause from computing, from outside of the phases and from `waiting` to `own["paused"]`; all of shape (K, R).

    A thread that gets the interpreter's lock late within backward, or at the end of a collective, looks as if it waited for others.

    Returns:
        What each rank stood still within computing, pause or not, shape (K, R); zero where it has several compute threads.
    """
    whole = np.zeros_like(own["compute"])
    threads = {start.writer: start.cpu_threads for start in starts}
    for rank, writer in enumerate(writers):
        if threads.get(writer, 0) != 1:
            continue  # with more of them the thread waits for its helpers
        beats = [beat for beat in job.heartbeats if beat.writer == writer]
        whole[:, rank] = _standing_still(column, rank, _COMPUTING)
        still = in_spikes(whole[:, rank])
        blocked = in_spikes(waiting[:, rank])
        wall_seconds = float(column("wall_seconds")[:, rank].sum())
        taken = [(own["compute"], still)]
        if interpreter_held(beats, float(still.sum() + blocked.sum()), wall_seconds):
            taken.append((waiting, blocked))
        if interpreter_held(beats, float(still.sum()), wall_seconds):
            taken.append((own["other"], in_spikes(_standing_still(column, rank, ("other",)))))
        elif len(taken) == 1 and not seen_pausing(beats):
            continue
        for whole_of, seconds in taken:
            part = np.minimum(seconds, whole_of[:, rank])
            whole_of[:, rank] -= part
            own["paused"][:, rank] += part
    return whole


def _standing_still(column: Callable[[str], Matrix], rank: int, phases: Sequence[str]) -> Matrix:
    """Return the seconds of each step in which the thread neither ran nor wanted a core, shape (K,).

    In steps in which the clocks were not read: what the phases last longer than usual, by the share that standing still has in that
    in the other steps.
    """
    wall = np.sum([column(f"{phase}_seconds")[:, rank] for phase in phases], axis=0)
    cpu = np.sum([column(f"{phase}_cpu_seconds")[:, rank] for phase in phases], axis=0)
    delay = column("step_delay_seconds")[:, rank] - np.nan_to_num(column("backward_delay_seconds")[:, rank])
    read = ~np.isnan(cpu) & ~np.isnan(delay)
    if not read.any():
        return np.zeros_like(wall)
    still = np.where(read, np.maximum(wall - cpu - delay, 0.0), 0.0)
    longer = np.maximum(wall - np.median(wall[read] - still[read]), 0.0)
    known = float(longer[read].sum())
    share = min(float(still[read].sum()) / known, 1.0) if known > 0 else 0.0
    return np.asarray(np.where(read, still, share * longer))


def in_spikes(seconds: Matrix) -> Matrix:
    """Return what of a loss, shape (K,), goes beyond the usual in the steps of its spikes; zero where most steps have it."""
    beyond = np.maximum(seconds - np.median(seconds), 0.0)
    high = spikes.spiky(beyond)
    return np.where(high, beyond, 0.0) if high.mean() <= threshold("steady_steps") else np.zeros_like(seconds)


def interpreter_held(beats: Sequence[Heartbeat], still_seconds: float, wall_seconds: float) -> bool:
    """Say whether another thread held the interpreter's lock for at least half of the time of standing still.

    The sampler looks at moments that know nothing of the pauses, so the ratio of the looks that came late is that of the time in
    which the lock was held. But a pause that is longer than it waits between two looks makes only one of them late: then it is how
    late it came, and half a wait before. The lock is held as well while the training thread collects garbage; but then it runs.
    """
    ticks = sum(beat.signals.get("ticks", 0.0) for beat in beats)
    late = sum(beat.signals.get("late_ticks", 0.0) for beat in beats)
    if late < threshold("minimum_samples") or still_seconds <= 0:
        return False
    between = wall_seconds / ticks
    late_seconds = sum(beat.signals.get("late_seconds", 0.0) for beat in beats)
    return max(late * between, late_seconds + late * between / 2) >= 0.5 * still_seconds


def seen_pausing(beats: Sequence[Heartbeat]) -> bool:
    """Say whether the thread, where it was seen waiting within computing, mostly waited for time or storage."""
    seen: Counter[str] = Counter()
    for beat in beats:
        for phase in _COMPUTING:
            seen.update(beat.wait_samples.get(phase, {}))
    waiting = {kind: count for kind, count in seen.items() if kind not in _NOT_SEEN_IN_A_CALL}
    pausing = sum(waiting.get(kind, 0) for kind in _PAUSING)
    return pausing >= threshold("minimum_samples") and pausing > 0.5 * sum(waiting.values())
