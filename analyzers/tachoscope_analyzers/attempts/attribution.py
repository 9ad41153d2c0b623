"""Every second of every step of an attempt in one state, as in the ledger of one attempt, but of all steps that a rank recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts.processes import RankProcess
from tachoscope_analyzers.ledger.states import STATE_OF_CAUSE
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_analyzers.records.steps import columns, split_steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.catalogue import UNEXPLAINED

BLOCK_CELLS = 200_000
"""Steps times ranks that are attributed at a time: a life of days has millions, and each needs some 60 numbers meanwhile."""
LEAST_STEPS = 500
"""Steps of a block of very many ranks."""

STATES = (*dict.fromkeys(STATE_OF_CAUSE.values()), "communication", "straggler_wait")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some consecutive steps of an attempt: K of them, R processes.

    Attributes:
        numbers: within the processes, shape (K,). present: which steps each process recorded, shape (K, R).
        wall, begins, ends: seconds of each step, and when it began and ended, shape (K, R); 0 where a rank has no record of it.
        states: seconds by state, each of shape (K, R); they sum to `wall`. collecting: part of them in garbage collection.
    """

    numbers: npt.NDArray[np.int64]
    present: npt.NDArray[np.bool_]
    wall: Matrix
    begins: Matrix
    ends: Matrix
    states: dict[str, Matrix]
    collecting: Matrix

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
    last = max(process.last_step for process in known)
    first = min(process.first_step for process in known)
    size = max(BLOCK_CELLS // len(processes), LEAST_STEPS)
    for begin in range(first, last + 1, size):
        block = _block(processes, begin, begin + size)
        if len(block.numbers):
            yield block


def _block(processes: Sequence[RankProcess], begin: int, end: int) -> Block:
    found = processes[0].life.steps.between([process.writer for process in processes], begin, end)
    tables = [found.get(process.writer, StepTable()) for process in processes]
    numbers = np.unique(np.concatenate([table.column("step") for table in tables]))
    shape = (len(numbers), len(processes))
    rows = np.full(shape, -1, dtype=np.int64)
    wall, begins, ends = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for column, (process, table) in enumerate(zip(processes, tables, strict=True)):
        steps = np.searchsorted(numbers, table.column("step"))
        rows[steps, column] = np.arange(len(table))
        wall[steps, column], ends[steps, column] = table.column("wall_seconds"), process.clock.step_ends(process.writer, table)
        begins[steps, column] = ends[steps, column] - wall[steps, column]
    present = np.asarray(rows >= 0)
    block = Block(numbers, present, wall, begins, ends, {state: np.zeros(shape) for state in STATES}, np.zeros(shape))
    complete = np.asarray(present.all(axis=1), dtype=np.bool_)
    world = max(process.world_size for process in processes)
    filling = _Filling(block, processes, tables, rows, together=world > 1)
    if processes[0].device == "cpu":
        for column in range(shape[1]):
            filling.fill(present[:, column], [column])
    else:  # on accelerators, waiting is what other ranks did not need
        filling.fill(complete, list(range(shape[1])))
        for column in range(shape[1]):
            filling.fill(~complete & present[:, column], [column])
    if len(processes) >= world:
        _split_waiting(block, complete)
    return block


@dataclass(frozen=True, slots=True, eq=False)
class _Filling:
    """Attributes the steps of a block; `rows`: place of each step in its process's table, shape (K, R)."""

    block: Block
    processes: Sequence[RankProcess]
    tables: Sequence[StepTable]
    rows: npt.NDArray[np.int64]
    together: bool

    def fill(self, which: npt.NDArray[np.bool_], ranks: list[int]) -> None:
        """Attribute steps of processes that all have them; their waiting is `communication`."""
        steps = np.flatnonzero(which)
        if not len(steps):
            return
        tables = [columns(self.tables[column].take(self.rows[steps, column])) for column in ranks]

        def column_of(name: str) -> Matrix:
            return np.stack([table[name] for table in tables], axis=1).astype(float)

        block, processes = self.block, [self.processes[column] for column in ranks]
        starts, beats = [process.started for process in processes], [process.heartbeats for process in processes]
        split = split_steps(column_of, starts, beats, device=processes[0].device, together=self.together)
        where = np.ix_(steps, np.array(ranks))
        for cause, seconds in split.own.items():
            block.states[STATE_OF_CAUSE[cause]][where] += seconds
        block.collecting[where] = split.own["gc"]
        block.states["communication"][where] += split.waiting
        # Phases sum to the step to the nanosecond, device times over many steps only.
        block.states[UNEXPLAINED][where] += block.wall[where] - sum(split.own.values()) - split.waiting


def _split_waiting(block: Block, complete: npt.NDArray[np.bool_]) -> None:
    waiting = block.states["communication"]
    transfer = np.where(complete, waiting.min(axis=1, initial=np.inf), np.inf)[:, None]
    block.states["straggler_wait"] += np.maximum(waiting - transfer, 0.0)
    np.minimum(waiting, transfer, out=waiting)
