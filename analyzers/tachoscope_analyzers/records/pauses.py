"""Pauses of the training thread within computing, and between the optimizer and the model: it neither ran nor wanted a core.

Told from the clocks of the thread: the model, the loss and the optimizer last longer than it computed and waited for a core. That
alone is not a pause, since it may wait there for other ranks (buffers that DDP broadcasts), for compute threads of its own, or for
an accelerator that the probe does not know. It is one where the thread was seen in a call that waits for time, disk, file or pipe;
or, in some of the steps, where the interpreter's lock was held elsewhere: the sampler, which needs it ten times a second, then
comes late as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.activity import RUNNING, input_share_of_standing_still, still_seconds
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.stats import spikes
from tachoscope_core.jobs.pause_rule import PAUSING_KINDS, outside_samples, paused_ratio
from tachoscope_core.records.records import JobStarted

Matrix = npt.NDArray[np.float64]

_COMPUTING = ("forward", "loss", "optimizer")
_SOCKET, _LOCK = "socket", "lock"


def split(
    starts: Sequence[JobStarted | None],
    beats: Sequence[Heartbeats],
    column: Callable[[str], Matrix],
    own: dict[str, Matrix],
    waiting: Matrix,
) -> Matrix:
    """Move what is a pause from computing, from outside of the phases and from `waiting` to `own["paused"]`; all of shape (K, R).

    A thread that gets the interpreter's lock late within backward, or at the end of a collective, looks as if it waited for others.

    Args:
        starts, beats: of the process of each column.

    Returns:
        What each rank stood still within computing, pause or not, shape (K, R); zero where it has several compute threads.
    """
    whole = np.zeros_like(own["compute"])
    for rank, (start, of_rank) in enumerate(zip(starts, beats, strict=True)):
        if start is None or not start.cpu_threads:
            continue
        still = still_seconds(column, rank, _COMPUTING)
        of_input = input_share_of_standing_still(of_rank, "loss")
        if of_input > 0:
            still = np.maximum(still - of_input * still_seconds(column, rank, ("loss",)), 0.0)
        samples = _still_samples(of_rank)
        seen = pausing_share(samples, alone=start.world_size == 1, one_thread=start.cpu_threads == 1)
        if start.cpu_threads == 1:
            whole[:, rank] = still
            taken = _by_lock(of_rank, column, rank, still, own, waiting)
        else:  # the thread waits for its helpers, too, and nothing but what it was seen doing tells which it was
            taken = []
        if seen > 0:
            taken = [(own["compute"], still * seen), *taken[1:]]
        for whole_of, seconds in taken:
            part = np.minimum(seconds, whole_of[:, rank])
            whole_of[:, rank] -= part
            own["paused"][:, rank] += part
        if start.world_size > 1 and start.cpu_threads == 1:
            blocked = np.minimum(still * _blocked_share(samples), own["compute"][:, rank])
            own["compute"][:, rank] -= blocked
            waiting[:, rank] += blocked
    known = [start is not None and start.cpu_threads > 0 for start in starts]
    outside_of_phases([of_rank if told else Heartbeats() for told, of_rank in zip(known, beats, strict=True)], own)
    return whole


def outside_of_phases(beats: Sequence[Heartbeats], own: dict[str, Matrix]) -> None:
    """Move what the thread of each rank was seen to pause outside of all phases from `own["other"]` to `own["paused"]`.

    Args:
        beats: of the process of each column.
    """
    for rank, of_rank in enumerate(beats):
        pausing = everything = 0
        for seen, times in of_rank.different():
            of_these = outside_samples(seen.activity)
            pausing, everything = pausing + times * of_these[0], everything + times * of_these[1]
        paused = paused_ratio(pausing, everything)
        outside = own["other"][:, rank] * paused
        own["other"][:, rank] -= outside
        own["paused"][:, rank] += outside


def _blocked_share(seen: Counter[str]) -> float:
    """Return in which share of standing still within computing the thread waited for another one.

    In a job of several ranks that is waiting for these, as where DDP broadcasts the model's buffers before its forward.
    """
    blocked = sum(seen[kind] for kind in (_SOCKET, _LOCK))
    return blocked / seen.total() if blocked >= threshold("minimum_samples") else 0.0


def _still_samples(beats: Heartbeats) -> Counter[str]:
    """Return what the thread was seen doing within computing while it did not run, in samples by kind."""
    seen = beats.samples("wait_samples", *_COMPUTING)
    return Counter({kind: count for kind, count in seen.items() if kind not in RUNNING})


def _by_lock(
    beats: Heartbeats, column: Callable[[str], Matrix], rank: int, still: Matrix, own: dict[str, Matrix], waiting: Matrix
) -> list[tuple[Matrix, Matrix]]:
    """Return what pauses of some steps are to be taken from where the interpreter's lock was held for them."""
    if late_looks(beats) < threshold("minimum_samples"):
        return []
    pausing, blocked = in_spikes(still), in_spikes(waiting[:, rank])
    wall_seconds = float(column("wall_seconds")[:, rank].sum())
    taken = [(own["compute"], pausing)]
    if interpreter_held(beats, float(pausing.sum() + blocked.sum()), wall_seconds):
        taken.append((waiting, blocked))
    if interpreter_held(beats, float(pausing.sum()), wall_seconds):
        taken.append((own["other"], in_spikes(still_seconds(column, rank, ("other",)))))
    elif len(taken) == 1:
        return []
    return taken


def in_spikes(seconds: Matrix) -> Matrix:
    """Return what of a loss, shape (K,), goes beyond the usual in the steps of its spikes; zero where most steps have it."""
    beyond = np.maximum(seconds - np.median(seconds), 0.0)
    high = spikes.spiky(beyond)
    return np.where(high, beyond, 0.0) if high.mean() <= threshold("steady_steps") else np.zeros_like(seconds)


def interpreter_held(beats: Heartbeats, still_seconds: float, wall_seconds: float) -> bool:
    """Return whether another thread held the interpreter's lock for at least half of the time of standing still.

    The sampler looks at moments that know nothing of the pauses, so the ratio of the looks that came late is that of the time in
    which the lock was held. But a pause that is longer than it waits between two looks makes only one of them late: then it is how
    late it came, and half a wait before. The lock is held as well while the training thread collects garbage; but then it runs.
    """
    ticks = beats.total("ticks")
    late = late_looks(beats)
    if late < threshold("minimum_samples") or still_seconds <= 0:
        return False
    between = wall_seconds / ticks
    late_seconds = beats.total("late_seconds")
    return max(late * between, late_seconds + late * between / 2) >= 0.5 * still_seconds


def late_looks(beats: Heartbeats) -> float:
    """Return how many samples came late: without late samples no thread can have held the lock for long."""
    return beats.total("late_ticks")


def pausing_share(seen: Counter[str], *, alone: bool, one_thread: bool) -> float:
    """Return which share of standing still within computing was waiting for time or storage; 0 where that was hardly seen.

    Args:
        seen: see `_still_samples`. alone: the job has one rank, so that it waits for no other one at a socket or a lock.
        one_thread: the thread has no helpers to wait for at a lock.
    """
    kinds = (*PAUSING_KINDS, *([_SOCKET] if alone else []), *([_LOCK] if alone and one_thread else []))
    pausing = sum(seen[kind] for kind in kinds)
    return pausing / seen.total() if pausing >= threshold("minimum_samples") else 0.0
