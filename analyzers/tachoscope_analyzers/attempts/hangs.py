"""Hangs in hindsight: steps that took far longer than a step takes while peers waited, or while the process stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.attempts.attribution import Block
from tachoscope_analyzers.attempts.processes import HeardProcess, RankProcess, heard
from tachoscope_analyzers.records.life_records import LifeRecords
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.jobs.hang_rule import LEAST_SECONDS_IN_HINDSIGHT, limit_seconds

_EXPLAINED = ("checkpoint", "evaluation", "compile", "data_wait")
"""Where a rank may be for long without being stuck, as long as its heartbeats go on; so it may be collecting garbage."""
_TAKEN_FIRST = ("straggler_wait", "communication", "unexplained", "host_wait", "compute", "data_wait", "host_to_device")
_FIRST_STEPS = 2
"""Compiling, choosing kernels and connecting take place in them: a long first step is not a hang unless a watcher said so."""
_HEARTBEAT_GAPS = 2.5


@dataclass(frozen=True, slots=True)
class HangThreshold:
    """How long a step takes, and from what on it hangs, in seconds. `step_seconds`: None: no step is known."""

    step_seconds: float | None

    @property
    def hang_seconds(self) -> float:
        """Without a finished step for so long, the ranks hang."""
        return limit_seconds(self.step_seconds or 0.0, LEAST_SECONDS_IN_HINDSIGHT)


@dataclass(frozen=True, slots=True)
class Hang:
    """A time without a finished step, since the last finished one.

    Attributes:
        process: the one that is stuck; None: cannot be determined.
        where: the line of code at which it was seen most; empty: at none.
    """

    since: float
    until: float
    process: RankProcess | None
    why: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class HangEvidence:
    """That a watcher saw a hang begin: when, in whose process (empty: it could not tell), and what it was judged by."""

    since: float
    writer: str = ""
    why: str = ""


def normal_of(life: LifeRecords, processes: Sequence[RankProcess]) -> HangThreshold:
    """Return how long a step of the processes takes."""
    return HangThreshold(life.steps.median_seconds({process.writer for process in processes}))


def is_alive(process: RankProcess, seen: HeardProcess, start: float, end: float) -> bool:
    """Return whether a process's heartbeats went on from `start` to `end`. One that sends none is taken for alive.

    Args:
        seen: its heartbeats of that time at least.
    """
    gap = _HEARTBEAT_GAPS * (process.usual_window or LEAST_SECONDS_IN_HINDSIGHT)
    return not process.heartbeats or seen.goes_on(start, end, gap_seconds=gap)


def subtract_hangs(
    block: Block, processes: Sequence[RankProcess], normal: HangThreshold, said: Sequence[HangEvidence] = ()
) -> tuple[Matrix, list[Hang]]:
    """Take the seconds of hangs out of the states of a block's steps.

    Args:
        said: what watchers saw.

    Returns:
        The seconds taken, shape (K, R), and the hangs.
    """
    taken = np.zeros_like(block.wall)
    if normal.step_seconds is None:
        return taken, []
    hangs = []
    long = np.flatnonzero(block.wall.max(axis=1) > normal.hang_seconds).tolist()
    seen = _heard(block, long, processes)
    for step in long:
        found = _in_step(block, step, processes, seen, normal, said)
        if found is not None:
            excess, hang = found
            hangs.append(hang)
            _move(block, step, excess, taken)
    return taken, hangs


def _heard(block: Block, steps: Sequence[int], processes: Sequence[RankProcess]) -> list[HeardProcess]:
    """Return each process's heartbeats of some steps, from the first begin to the last end."""
    if not steps:
        return []
    life, clock = processes[0].life, processes[0].clock
    begins = np.where(block.present, block.begins, np.inf).min(axis=1)
    ends = np.where(block.present, block.ends, -np.inf).max(axis=1)
    times = [(float(begins[step]), float(ends[step])) for step in steps]
    windows = {p.writer: [(clock.monotonic_ns(p.writer, a), clock.monotonic_ns(p.writer, b)) for a, b in times] for p in processes}
    found = heard(life, clock, windows)
    return [found.get(process.writer, HeardProcess([], [])) for process in processes]


def _in_step(
    block: Block,
    step: int,
    processes: Sequence[RankProcess],
    seen: Sequence[HeardProcess],
    normal: HangThreshold,
    said: Sequence[HangEvidence],
) -> tuple[float, Hang] | None:
    present = np.flatnonzero(block.present[step]).tolist()
    spans = {column: (float(block.begins[step, column]), float(block.ends[step, column])) for column in present}
    alive = {c: is_alive(processes[c], seen[c], *spans[c]) for c in present}
    explained = max((_explained(block, step, c) for c in present if alive[c]), default=0.0)
    explained = max(explained - (normal.step_seconds or 0.0), 0.0)  # what is usual of it is in the usual step
    wall = max(block.wall[step, c] for c in present)
    if wall - explained <= normal.hang_seconds:
        return None
    excess = float(wall - explained - (normal.step_seconds or 0.0))
    since, until = min(span[0] for span in spans.values()), max(span[1] for span in spans.values())
    told = next((one for one in said if since - 1.0 <= one.since <= until), None)
    waits = max(block.waiting[step, c] for c in present) >= excess / 2
    stopped = [c for c in present if not alive[c]]
    if block.numbers[step] <= _FIRST_STEPS and not (told or (stopped and waits)):
        return None
    if not (waits or stopped or told):
        return None
    named = next((c for c in present if told is not None and processes[c].writer == told.writer), None)
    if told is not None and named is not None:
        where = seen[named].line_of_code(since, until)
        return excess, Hang(since, until, processes[named], told.why or "so says who watched", where)
    why = "its heartbeats ceased" if stopped else "the others waited for it"
    culprit = stopped[0] if len(stopped) == 1 else _least_waiting(block, step, present)
    if culprit is None:
        return excess, Hang(since, until, None, why)
    return excess, Hang(since, until, processes[culprit], why, seen[culprit].line_of_code(since, until))


def _explained(block: Block, step: int, column: int) -> float:
    return float(block.collecting[step, column]) + sum(float(block.states[name][step, column]) for name in _EXPLAINED)


def _least_waiting(block: Block, step: int, present: list[int]) -> int | None:
    """Return the rank that the others waited for, if it waited less than half as long as any of them."""
    order = sorted(present, key=lambda column: block.waiting[step, column])
    if len(order) == 1:
        return order[0]
    return order[0] if block.waiting[step, order[0]] < 0.5 * block.waiting[step, order[1]] else None


def _move(block: Block, step: int, excess: float, taken: Matrix) -> None:
    for name in (*_TAKEN_FIRST, *(state for state in block.states if state not in _TAKEN_FIRST)):
        part = np.minimum(np.maximum(block.states[name][step], 0.0), excess - taken[step])
        block.states[name][step] -= part
        taken[step] += part
