"""Steps under a profiler are slower than the others, and say nothing of the job: those that `TraceCaptured` names are left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.report.report import QualityNote

_LEAST_LEFT = 2
"""Where hardly a step is left, those under the profiler are better than none."""


def without_profiled(steps: npt.NDArray[np.int64], job: JobRecords, attempt: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the steps of an attempt that no rank was profiled in, or all where hardly any would be left."""
    kept = steps[~_profiled(steps, job, attempt)]
    return kept if len(kept) >= _LEAST_LEFT else steps


def steps_after(kept: npt.NDArray[np.int64], left_out: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the places of the kept steps before which others were left out."""
    after = np.unique(np.searchsorted(kept, left_out))
    return np.asarray(after[(after > 0) & (after < len(kept))])


def seconds(
    kept: npt.NDArray[np.int64], left_out: npt.NDArray[np.int64], begins: npt.NDArray[np.float64], ends: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return how long each rank was at the steps that were left out, shape (R,): no time of the job, and not unexplained either.

    Args:
        kept, left_out: numbers of steps, rising. begins, ends: of the steps that were kept, seconds, shape (K, R).
    """
    after = steps_after(kept, left_out)
    return np.asarray((begins[after] - ends[after - 1]).sum(axis=0))


def _profiled(steps: npt.NDArray[np.int64], job: JobRecords, attempt: int) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(steps), dtype=bool)
    for first, last in {(row.first_step, row.last_step) for row in job.traces if row.attempt == attempt and row.last_step}:
        found |= (steps >= first) & (steps <= last)
    return found


def notes(job: JobRecords) -> list[QualityNote]:
    """Return which steps of the last attempt were left out."""
    attempt = job.steps.last_attempt()
    steps = np.unique(job.steps.in_attempt(attempt).column("step"))
    out = np.setdiff1d(steps, without_profiled(steps, job, attempt))
    if not len(out):
        return []
    which = f"step {out[0]}" if len(out) == 1 else f"{len(out)} steps ({out[0]} to {out[-1]})"
    return [
        QualityNote(what=f"{which} under a profiler", severity="note", means="it makes them slower: they are not in the figures")
    ]
