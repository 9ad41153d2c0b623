"""Numbers of steps over the whole job: which checkpoint an attempt went on from, and which of its steps had been done before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from posixpath import dirname

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts import overlaps
from tachoscope_analyzers.attempts.maintenance import Interval
from tachoscope_analyzers.attempts.processes import Clock, RankProcess
from tachoscope_core.records import records

_CLOCKS_AGREE_SECONDS = 1.0
"""A save on another host may seem to be that much later than the restore that read it."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One attempt: its processes, and the numbers of the whole job that its steps have.

    Attributes:
        pieces: `(s, g)`: steps after its own number s have the job's number g + (number - s); in order.
        done_before: the highest number that attempts before it had finished. highest: by its end.
        checkpoint: reference of what it went on from; empty: it began again. guessed: why the restore was tied as it is, if not by
            its reference. is_new_run: it restored nothing after one that completed: another run of the same name, not a recovery.
        beside: when it ran at once with which earlier attempts, by attempt and generation.
    """

    attempt: int
    generation: int
    processes: list[RankProcess]
    pieces: tuple[tuple[int, int], ...]
    done_before: int
    highest: int
    checkpoint: str
    guessed: str
    is_new_run: bool = False
    beside: Mapping[tuple[int, int], Interval] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, int]:
        """Attempt and generation."""
        return self.attempt, self.generation

    @property
    def start(self) -> float:
        """When the first of its processes was started."""
        return min(process.start for process in self.processes)

    @property
    def end(self) -> float:
        """When the last of its processes was gone."""
        return max(process.end for process in self.processes)

    @property
    def own_steps(self) -> int:
        """The highest number of a step within its processes."""
        return max((process.last_step for process in self.processes), default=0)

    def ran_with(self, other: Run) -> bool:
        """Return whether two attempts ran at once: then neither goes on from where the other ended."""
        return other.key in self.beside or self.key in other.beside

    def numbers(self, own: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the job's numbers of steps, given their numbers within the processes."""
        after = np.array([piece[0] for piece in self.pieces])
        offset = np.array([piece[1] - piece[0] for piece in self.pieces])
        return np.asarray(own + offset[np.maximum(np.searchsorted(after, own, side="left") - 1, 0)])

    def reached(self, own_steps: int) -> int:
        """Return the highest of the job's numbers that the first `own_steps` steps within its processes have; 0: it has none."""
        lasts = [min(after, own_steps) for after, _ in self.pieces[1:]] + [own_steps]
        found = [last for (after, _), last in zip(self.pieces, lasts, strict=True) if last > after]
        return int(self.numbers(np.array(found)).max(initial=0)) if found else 0

    def redone(self, own: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say which steps had been done before: by an earlier attempt, or in this one before it went back to a checkpoint."""
        numbers = self.numbers(own)
        before = np.full(len(own), self.done_before)
        for (_, _), (after, _) in zip(self.pieces, self.pieces[1:], strict=False):
            reached = self.reached(after)
            before = np.where(own > after, np.maximum(before, reached), before)
        return np.asarray(numbers <= before)


def runs(found: Sequence[RankProcess], clock: Clock, completed: Collection[tuple[int, int]] = ()) -> list[Run]:
    """Return the attempts in order, each with the numbers of its steps.

    An attempt's first step follows the checkpoint that it restored before it: the one that the job names, else the newest save of
    the same reference before that; else, where the reference is of no save, the newest save in the same folder (saved under another
    name and renamed). An attempt that restored nothing begins at 1; after one that completed it begins a numbering of its own
    behind all that was done, from which those after it count. What an attempt that ran at once with it does, it does not do again.

    Args:
        completed: attempt and generation of those that are known to have completed.
    """
    done: list[Run] = []
    base = 0
    for key, group in groupby(found, key=lambda one: (one.attempt, one.generation)):
        members = list(group)
        beside = {run.key: when for run in done if (when := overlaps.overlap(run.processes, members, clock)) is not None}
        before = [run for run in done if run.key not in beside]
        highest = max((run.highest for run in before), default=0)
        pieces, checkpoint, guessed = _pieces(members, done, clock, base)
        is_new_run = False
        if not checkpoint and key[1] and not beside and not _failed_before(done, key[0]):
            pieces = [(0, highest)]  # another script of the same command, not the same steps again
        elif not checkpoint and pieces[0] == (0, 0):
            is_new_run = bool(before) and before[-1].key in completed
            base = highest if is_new_run else base
            # Where it went back later, to a step of its own.
            pieces = [(0, base), *((after, step + base if step <= after else step) for after, step in pieces[1:])]
        run = Run(key[0], key[1], members, tuple(pieces), highest, highest, checkpoint, guessed, is_new_run, beside)
        done.append(replace(run, highest=max(highest, run.reached(run.own_steps))))
    return done


def _failed_before(done: Sequence[Run], attempt: int) -> bool:
    before = [process for run in done if run.attempt == attempt for process in run.processes]
    return any(process.ended is None or process.ended.status == "failed" or process.failed for process in before)


def _pieces(members: Sequence[RankProcess], done: Sequence[Run], clock: Clock, base: int) -> tuple[list[tuple[int, int]], str, str]:
    saves = saves_of(done)
    highest = max((run.highest for run in done), default=0)
    pieces, checkpoint, guessed = [(0, 0)], "", ""
    for process in members:
        for row in sorted(process.restored, key=lambda row: row.monotonic_ns):
            finished = process.finished_at(clock.unix_seconds(row) - row.blocking_seconds)
            if finished and row.step < 0:
                continue  # read back in the midst of training (to compare, for an average): it does not say that it goes back
            step, why = (row.step, "") if row.step >= 0 else _step_of(row, saves, clock)
            if step is None:
                continue
            if finished:
                pieces.append((finished, step))
            else:
                if row.step >= 0 and base + row.step <= highest:
                    step = base + row.step  # the job counts from where it began again
                pieces, checkpoint, guessed = [(0, step)], row.reference or checkpoint, why
        if checkpoint or len(pieces) > 1 or pieces != [(0, 0)]:
            break  # all ranks go on from the same checkpoint
    return sorted(pieces), checkpoint or ("step " + str(pieces[0][1]) if pieces[0][1] else ""), guessed


def saves_of(done: Sequence[Run]) -> list[tuple[records.CheckpointSaved, int]]:
    """Return the checkpoints that attempts saved, with the job's step that each is of."""
    return [
        (row, int(run.numbers(np.array([row.step]))[0]) if row.step else run.pieces[0][1])
        for run in done
        for process in run.processes
        for row in process.saves
    ]


def _step_of(
    restored: records.CheckpointRestored, saves: Sequence[tuple[records.CheckpointSaved, int]], clock: Clock
) -> tuple[int | None, str]:
    """Return the job's step that a restore continues from, and how it was identified if not by the reference; None: unknown."""
    began = clock.unix_seconds(restored) - restored.blocking_seconds + _CLOCKS_AGREE_SECONDS
    before = [(clock.unix_seconds(row), step, row.reference) for row, step in saves if clock.unix_seconds(row) <= began]
    same = [one for one in before if one[2] == restored.reference and restored.reference]
    if same:
        return max(same)[1], ""
    if not restored.reference:
        return (max(before)[1], "it has no name, so the newest save before it was taken") if before else (None, "")
    folder = dirname(restored.reference.rstrip("/"))
    near = [one for one in before if one[2] and dirname(one[2].rstrip("/")) == folder]
    if near:
        return max(near)[1], f"no save has the name {restored.reference}, so the newest in its folder was taken"
    return None, ""
