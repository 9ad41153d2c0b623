"""Hangs in hindsight: steps that took far longer than a step takes while peers waited, or while the process stood still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.attempts.attribution import Block
from tachoscope_analyzers.attempts.processes import RankProcess
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.jobs.hang_rule import LEAST_SECONDS_IN_HINDSIGHT, limit_seconds

_EXPLAINED = ("checkpoint", "evaluation", "data_wait")
"""Where a rank may be for long without being stuck, as long as its heartbeats go on."""
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
    """A time without a finished step, since the last finished one. `process`: the one that is stuck; None: cannot be determined."""

    since: float
    until: float
    process: RankProcess | None
    why: str


@dataclass(frozen=True, slots=True)
class HangEvidence:
    """That a watcher saw a hang begin: when, in whose process (empty: it could not tell), and what it was judged by."""

    since: float
    writer: str = ""
    why: str = ""


def normal_of(processes: Sequence[RankProcess]) -> HangThreshold:
    """Return how long a step of the processes takes."""
    walls = [process.ends - process.begins for process in processes if process.steps]
    return HangThreshold(float(np.median(np.concatenate(walls))) if walls else None)


def heartbeat_gap_seconds(process: RankProcess) -> float:
    """Return the gap between heartbeats from which on a process stands still."""
    windows = [beat.window_seconds for beat in process.beats if beat.window_seconds > 0]
    return _HEARTBEAT_GAPS * (float(np.median(windows)) if windows else LEAST_SECONDS_IN_HINDSIGHT)


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
    for step in np.flatnonzero(block.wall.max(axis=1) > normal.hang_seconds):
        found = _in_step(block, int(step), processes, normal, said)
        if found is not None:
            excess, hang = found
            hangs.append(hang)
            _move(block, int(step), excess, taken)
    return taken, hangs


def _in_step(
    block: Block, step: int, processes: Sequence[RankProcess], normal: HangThreshold, said: Sequence[HangEvidence]
) -> tuple[float, Hang] | None:
    present = [column for column in range(len(processes)) if block.rows[step, column] >= 0]
    spans = {column: _span(block, step, column, processes) for column in present}
    alive = {c: processes[c].alive_through(*spans[c], gap_seconds=heartbeat_gap_seconds(processes[c])) for c in present}
    explained = max((sum(block.states[name][step, c] for name in _EXPLAINED) for c in present if alive[c]), default=0.0)
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
        return excess, Hang(since, until, processes[named], told.why or "so says who watched")
    why = "its heartbeats ceased" if stopped else "the others waited for it"
    culprit = stopped[0] if len(stopped) == 1 else _least_waiting(block, step, present)
    return excess, Hang(since, until, None if culprit is None else processes[culprit], why)


def _span(block: Block, step: int, column: int, processes: Sequence[RankProcess]) -> tuple[float, float]:
    process, row = processes[column], block.rows[step, column]
    return float(process.begins[row]), float(process.ends[row])


def _least_waiting(block: Block, step: int, present: list[int]) -> int | None:
    """Return the rank that the others waited for, if it waited for less than half as long as any of them."""
    order = sorted(present, key=lambda column: block.waiting[step, column])
    if len(order) == 1:
        return order[0]
    return order[0] if block.waiting[step, order[0]] < 0.5 * block.waiting[step, order[1]] else None


def _move(block: Block, step: int, excess: float, taken: Matrix) -> None:
    for name in (*_TAKEN_FIRST, *(state for state in block.states if state not in _TAKEN_FIRST)):
        part = np.minimum(np.maximum(block.states[name][step], 0.0), excess - taken[step])
        block.states[name][step] -= part
        taken[step] += part
