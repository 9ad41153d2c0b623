"""What the training thread did outside of loaders, models and backward, by what it was seen doing there.

The probe's clocks tell how long the thread was between the batch and the model, between the model and backward, and after the
optimizer, and how much of that it ran. What it was at work for is sampled (`Heartbeat.activity`): a statement that makes the
model's input is input wherever in the loop it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_core.records.records import SHARED_PHASES

Matrix = npt.NDArray[np.float64]
Column = Callable[[str], Matrix]

CAUSE_OF_PHASE = {"loss": "compute", "forward": "compute", "preparation": "data_wait", "data_wait": "data_wait", "other": "other"}
RUNNING = ("cpu", "unknown")


@dataclass(frozen=True, slots=True)
class MovedToData:
    """What became waiting for data, less what was taken from it: wall and CPU seconds, each of shape (K, R)."""

    seconds: Matrix
    cpu_seconds: Matrix


def move(beats: Sequence[Heartbeats], column: Column, own: dict[str, Matrix]) -> MovedToData:
    """Move the time of the shared phases between the causes in `own` as the samples tell; the sums stay.

    Args:
        beats: of the process of each column.
    """
    moved = MovedToData(np.zeros_like(own["compute"]), np.zeros_like(own["compute"]))
    for rank, of_rank in enumerate(beats):
        seen = _seen(of_rank)
        for phase in SHARED_PHASES:
            counts = seen.get(phase, Counter())
            if counts.total() < threshold("minimum_samples"):
                continue
            still = still_seconds(column, rank, (phase,))
            running = column(f"{phase}_seconds")[:, rank] - still
            for belongs_to, (of_running, of_still) in _shares(counts).items():
                source, target = CAUSE_OF_PHASE[phase], CAUSE_OF_PHASE.get(belongs_to)
                if target is None or target == source:
                    continue
                part = np.minimum(running * of_running + still * of_still, own[source][:, rank])
                own[source][:, rank] -= part
                own[target][:, rank] += part
                sign = 1.0 if target == "data_wait" else -1.0 if source == "data_wait" else 0.0
                moved.seconds[:, rank] += sign * part
                moved.cpu_seconds[:, rank] += sign * np.minimum(running * of_running, part)
    return moved


def _seen(beats: Heartbeats) -> dict[str, Counter[tuple[str, str]]]:
    """Return the samples of each phase by the phase that they belong to, and what the thread was seen doing."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for seen, times in beats.different():
        for phase, counts in seen.activity.items():
            for key, count in counts.items():
                belongs_to, _, kind = key.partition(" ")
                found.setdefault(phase, Counter())[belongs_to, kind] += times * count
    return found


def seen_for_input(beats: Heartbeats) -> Counter[str]:
    """Return what the thread was seen doing while it made or fetched input outside of loaders, in samples by kind."""
    found: Counter[str] = Counter()
    for phase, counts in _seen(beats).items():
        for (belongs_to, kind), count in counts.items():
            if CAUSE_OF_PHASE.get(belongs_to) == "data_wait" and phase in SHARED_PHASES:
                found[kind] += count
    return found


def _shares(counts: Counter[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return for each phase that samples belong to its share of the running time, and of that of standing still."""
    sums: dict[str, list[int]] = {}
    for (belongs_to, kind), count in counts.items():
        sums.setdefault(belongs_to, [0, 0])[kind not in RUNNING] += count
    totals = [sum(row[index] for row in sums.values()) for index in (0, 1)]
    both = sum(totals)
    return {
        belongs_to: (
            row[0] / totals[0] if totals[0] else sum(row) / both,
            row[1] / totals[1] if totals[1] else sum(row) / both,
        )
        for belongs_to, row in sums.items()
    }


def still_seconds(column: Column, rank: int, phases: Sequence[str]) -> Matrix:
    """Return the seconds of each step in which the thread neither ran nor wanted a core in these phases, shape (K,).

    It waits for a core where it runs, so that a phase has of that what it has of the CPU time outside of backward. In steps in
    which the clocks were not read: what the phases last longer than usual, by the share of standing still in that in other steps.
    """
    wall = np.sum([column(f"{phase}_seconds")[:, rank] for phase in phases], axis=0)
    cpu = np.sum([column(f"{phase}_cpu_seconds")[:, rank] for phase in phases], axis=0)
    all_cpu = np.sum([column(f"{phase}_cpu_seconds")[:, rank] for phase in _TAKING_CORES], axis=0)
    delay = column("step_delay_seconds")[:, rank] - np.nan_to_num(column("backward_delay_seconds")[:, rank])
    read = ~np.isnan(cpu) & ~np.isnan(delay)
    if not read.any():
        return np.zeros_like(wall)
    of_these = np.divide(cpu, all_cpu, out=np.ones_like(cpu), where=all_cpu > 0)
    still = np.where(read, np.maximum(wall - cpu - delay * of_these, 0.0), 0.0)
    longer = np.maximum(wall - np.median(wall[read] - still[read]), 0.0)
    known = float(longer[read].sum())
    share = min(float(still[read].sum()) / known, 1.0) if known > 0 else 0.0
    return np.asarray(np.where(read, still, share * longer))


_TAKING_CORES = ("data_wait", "preparation", "forward", "loss", "optimizer", "checkpoint", "evaluation", "compile", "gc", "other")


def input_share_of_standing_still(beats: Heartbeats, phase: str) -> float:
    """Return which share of standing still in a phase was waiting for input, as `move` took it."""
    counts = _seen(beats).get(phase, Counter())
    if counts.total() < threshold("minimum_samples"):
        return 0.0
    return _shares(counts).get("data_wait", (0.0, 0.0))[1]
