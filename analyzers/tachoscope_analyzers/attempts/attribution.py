"""Every second of every step of an attempt in one state, as in the ledger of one attempt, but of all steps that a rank recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts.processes import RankProcess
from tachoscope_analyzers.ledger.states import STATE_OF_CAUSE
from tachoscope_analyzers.records.steps import columns, split_steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.catalogue import UNEXPLAINED

BLOCK_CELLS = 200_000
"""Steps times ranks that are attributed at a time: a life of days has millions, and each needs some 60 numbers meanwhile."""

STATES = (*dict.fromkeys(STATE_OF_CAUSE.values()), "communication", "straggler_wait")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some consecutive steps of an attempt: K of them, R processes.

    Attributes:
        numbers: within the processes, shape (K,). rows: place of each in its process's steps, shape (K, R), -1 where it has none.
        wall: seconds of each step, shape (K, R); 0 where a rank has no record of it.
        states: seconds by state, each of shape (K, R); they sum to `wall`.
    """

    numbers: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    wall: Matrix
    states: dict[str, Matrix]

    @property
    def waiting(self) -> Matrix:
        """Seconds blocked in collectives, shape (K, R)."""
        return self.states["communication"] + self.states["straggler_wait"]


def blocks(processes: Sequence[RankProcess]) -> Iterator[Block]:
    """Yield the steps of the processes of one attempt, in order.

    A step that not all ranks recorded counts too: its waiting is `communication`, since it cannot be split.
    """
    known = [process for process in processes if process.steps]
    if not known:
        return
    last = max(int(process.numbers[-1]) for process in known)
    first = min(int(process.numbers[0]) for process in known)
    size = max(BLOCK_CELLS // len(processes), 500)
    for begin in range(first, last + 1, size):
        block = _block(processes, begin, begin + size)
        if len(block.numbers):
            yield block


def _block(processes: Sequence[RankProcess], begin: int, end: int) -> Block:
    slices = [slice(*np.searchsorted(process.numbers, (begin, end))) for process in processes]
    numbers = np.unique(np.concatenate([process.numbers[part] for process, part in zip(processes, slices, strict=True)]))
    shape = (len(numbers), len(processes))
    rows = np.full(shape, -1, dtype=np.int64)
    for column, (process, part) in enumerate(zip(processes, slices, strict=True)):
        rows[np.searchsorted(numbers, process.numbers[part]), column] = np.arange(part.start, part.stop)
    block = Block(numbers, rows, np.zeros(shape), {state: np.zeros(shape) for state in STATES})
    complete = np.asarray((rows >= 0).all(axis=1), dtype=np.bool_)
    world = max(process.world_size for process in processes)
    if processes[0].device == "cpu":
        for column in range(shape[1]):
            _fill(block, processes, rows[:, column] >= 0, [column], together=world > 1)
    else:  # on accelerators, waiting is what other ranks did not need
        _fill(block, processes, complete, list(range(shape[1])), together=world > 1)
        for column in range(shape[1]):
            _fill(block, processes, ~complete & (rows[:, column] >= 0), [column], together=world > 1)
    if len(processes) >= world:
        _split_waiting(block, complete)
    return block


def _fill(
    block: Block, processes: Sequence[RankProcess], which: npt.NDArray[np.bool_], ranks: list[int], *, together: bool
) -> None:
    """Attribute the chosen steps of the chosen processes, all of which have them; their waiting is `communication`."""
    steps = np.flatnonzero(which)
    if not len(steps):
        return
    tables = [columns(processes[column].table.take(block.rows[steps, column])) for column in ranks]

    def column_of(name: str) -> Matrix:
        return np.stack([table[name] for table in tables], axis=1).astype(float)

    wall = column_of("wall_seconds")
    starts, beats = [processes[column].started for column in ranks], [processes[column].beats for column in ranks]
    split = split_steps(column_of, starts, beats, device=processes[ranks[0]].device, together=together)
    where = np.ix_(steps, np.array(ranks))
    block.wall[where] = wall
    for cause, seconds in split.own.items():
        block.states[STATE_OF_CAUSE[cause]][where] += seconds
    block.states["communication"][where] += split.waiting
    # Phases sum to the step to the nanosecond, device times over many steps only.
    block.states[UNEXPLAINED][where] += wall - sum(split.own.values()) - split.waiting


def _split_waiting(block: Block, complete: npt.NDArray[np.bool_]) -> None:
    waiting = block.states["communication"]
    transfer = np.where(complete, waiting.min(axis=1, initial=np.inf), np.inf)[:, None]
    block.states["straggler_wait"] += np.maximum(waiting - transfer, 0.0)
    np.minimum(waiting, transfer, out=waiting)
