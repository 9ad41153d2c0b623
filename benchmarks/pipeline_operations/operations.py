"""Recorded operations as dense arrays: the same operations in every step and replica, so that all are replayed at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from benchmarks.pipeline_operations.reading import Recording

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import QualityNote

Array = npt.NDArray[np.float64]
"""Seconds, shape (N, K, D): operations of one replica, steps, replicas. Or what is broadcast to that."""

_KEY = ["stage", "optype", "seq_id"]


@dataclass(frozen=True, slots=True)
class Operation:
    """What one worker does once in each step.

    Attributes:
        chunk: number of the model chunk in the whole model, from 0; -1 for what belongs to none.
        batch: number of the micro-batch within the step; -1 for what belongs to none.
    """

    stage: int
    optype: str
    number: int
    chunk: int
    batch: int


@dataclass(frozen=True, slots=True)
class Operations:
    """The steps that have the same operations on all workers.

    Attributes:
        each: N operations of one replica; all replicas have them.
        start: seconds since the first operation of the step began, shape (N, K, D). duration: in seconds, shape (N, K, D).
        steps: their numbers, shape (K,). ranks: of the workers, shape (stages, D).
        chunks: model chunks over all stages. notes: what was left out.
    """

    each: tuple[Operation, ...]
    start: Array
    duration: Array
    steps: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    chunks: int
    notes: tuple[QualityNote, ...]

    @property
    def end(self) -> Array:
        """Seconds since the step began at which each operation ended, shape (N, K, D)."""
        return self.start + self.duration

    @property
    def step_seconds(self) -> Array:
        """Seconds from the first begin to the last end, shape (K,)."""
        return np.asarray(self.end.max(axis=(0, 2)))

    @property
    def stages(self) -> int:
        """How many pipeline stages there are."""
        return len(self.ranks)

    def of(self, *optypes: str) -> npt.NDArray[np.int64]:
        """Return the numbers of the operations of these types."""
        return np.array([number for number, one in enumerate(self.each) if one.optype in optypes], dtype=np.int64)


def dense(recording: Recording) -> Operations:
    """Return the operations of the steps that have the most common set of them; other steps are left out and noted.

    Raises:
        TachoscopeError: the replicas do not do the same operations, or not the same micro-batches in the same order.
    """
    rows, path = recording.rows, recording.path
    keys = rows[_KEY].drop_duplicates().sort_values(_KEY, ignore_index=True)
    operation = rows[_KEY].merge(keys.reset_index(), on=_KEY, how="left")["index"].to_numpy()
    step, steps = pd.factorize(rows["step"], sort=True)
    replica = rows["dp_rank"].to_numpy()
    shape = (len(keys), len(steps), recording.replicas)
    there = np.zeros(shape, dtype=bool)
    there[operation, step, replica] = True
    chosen, usual = _most_common(there)
    if (usual.any(axis=1) != usual.all(axis=1)).any():
        number = int((usual.any(axis=1) != usual.all(axis=1)).argmax())
        row = keys.iloc[number]
        raise TachoscopeError(
            f"{path}: {row['optype']} {row['seq_id']} of stage {row['stage']} is missing in dp_rank {int(usual[number].argmin())}",
            fix="all replicas must have the same operations, as the same pipeline schedule gives them",
        )
    used = usual.all(axis=1)
    start, duration = np.full(shape, np.nan), np.full(shape, np.nan)
    start[operation, step, replica] = rows["start_ts"].to_numpy()
    duration[operation, step, replica] = rows["duration"].to_numpy()
    start, duration = start[used][:, chosen], duration[used][:, chosen]
    start -= start.min(axis=(0, 2), keepdims=True)
    workers = rows[["stage", "dp_rank", "rank"]].drop_duplicates()
    ranks = np.zeros((recording.stages, recording.replicas), dtype=np.int64)
    ranks[workers["stage"], workers["dp_rank"]] = workers["rank"]
    return Operations(
        each=_named(recording, keys.iloc[np.flatnonzero(used)], rows, operation),
        start=start,
        duration=duration,
        steps=np.asarray(steps, dtype=np.int64)[chosen],
        ranks=ranks,
        chunks=recording.stages * recording.chunks,
        notes=(*recording.notes, *_left_out(len(steps), int(chosen.sum()))),
    )


def _most_common(there: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which steps have the most common set of operations, shape (K,), and that set, shape (N, D)."""
    packed = np.packbits(there.transpose(1, 0, 2).reshape(there.shape[1], -1), axis=1)
    _, first, which, count = np.unique(packed, axis=0, return_index=True, return_inverse=True, return_counts=True)
    most = int(count.argmax())
    return np.asarray(which.reshape(-1) == most), there[:, first[most]]


def _left_out(all_steps: int, kept: int) -> list[QualityNote]:
    if kept == all_steps:
        return []
    severity = "limited" if kept < all_steps / 2 else "note"
    what = f"{all_steps - kept} of {all_steps} steps have other operations than most, and are left out"
    return [QualityNote(what=what, severity=severity, means="the report is about the other steps")]  # type: ignore[arg-type]


def _named(recording: Recording, keys: pd.DataFrame, rows: pd.DataFrame, operation: npt.NDArray[np.int64]) -> tuple[Operation, ...]:
    """Return the operations with their chunk and micro-batch: as recorded where steps and replicas agree, else by their order."""
    labels = rows.groupby(operation)[["gmc", "mb_id"]].agg(["min", "max"]).loc[keys.index]
    chunk, batch = labels[("gmc", "max")], labels[("mb_id", "max")]
    computing = keys["optype"].str.endswith("-compute")
    if (labels[("gmc", "min")] != chunk)[computing].any():
        raise TachoscopeError(
            f"{recording.path}: steps or replicas do not do the model chunks (gmc) in the same order",
            fix="record a job with a fixed pipeline schedule",
        )
    if recording.chunks == 1:
        chunk = chunk.where(~computing, keys["stage"])
    if (labels[("mb_id", "min")] != batch)[computing].any() or (batch[computing] < 0).any():
        batch = keys.groupby([keys["stage"], keys["optype"], chunk]).cumcount()
    return tuple(
        Operation(int(stage), str(optype), int(number), int(of_chunk) if own else -1, int(of_batch) if own else -1)
        for stage, optype, number, of_chunk, of_batch, own in zip(
            keys["stage"], keys["optype"], keys["seq_id"], chunk, batch, computing, strict=True
        )
    )
