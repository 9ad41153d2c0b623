"""The host's memory: steps that stand still while pages are reclaimed, swapped or read back.

The kernel's pressure counter (PSI, https://docs.kernel.org/accounting/psi.html) says for how long some task of the host stood
still for memory; a process that reads pages back from storage (major faults) is one that did. What a rank loses is no more than
its own time in that step, and no less than it stood still within computing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.linear_fit import fitted
from tachoscope_core.report.report import Evidence

_NEEDED = ("major_faults", "resident_bytes")


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """What memory pressure costs.

    Attributes:
        seconds: by which each step of each rank stood still, shape (K, R). candidates: none or one.
        measured: whether every rank's heartbeats say how the memory stands.
    """

    seconds: Matrix
    candidates: list[Candidate]
    measured: bool = True


def classify(job: JobRecords, steps: Steps, late: Matrix) -> MemoryVerdict:
    """Return what the steps lose to memory that is short.

    Args:
        late: what each step loses to computing of its late rank, shape (K, R). Where standing still explains most of it, it is all
            memory's: to read a page back is computing too.
    """
    by_rank = job.beats_of(steps.writers)
    nothing = np.zeros_like(steps.wall)
    if not all(beats.has(*_NEEDED).any() for beats in by_rank):
        return MemoryVerdict(nothing, [], measured=False)
    seconds = np.stack([_stood_still(steps, rank, beats) for rank, beats in enumerate(by_rank)], axis=1)
    if not seconds.any():
        return MemoryVerdict(seconds, [])
    explained = np.minimum(late, seconds).sum(axis=0) >= threshold("memory_explained_ratio") * late.sum(axis=0)
    seconds = np.where(seconds.any(axis=0) & explained, np.maximum(seconds, late), seconds)
    hit = [rank for rank, column in zip(steps.ranks, seconds.T, strict=True) if column.any()]
    beats = Heartbeats.joined(own for rank, own in zip(steps.ranks, by_rank, strict=True) if rank in hit)
    lost = seconds[np.arange(len(seconds)), seconds.argmax(axis=1)]
    ranks: Ranks = hit if len(hit) < len(steps.ranks) else "all"
    return MemoryVerdict(seconds, [Candidate("host_memory", lost, ranks, _evidence(beats), 0.8, ("cpu_contention", 0.0))])


def _stood_still(steps: Steps, rank: int, beats: Heartbeats) -> Matrix:
    """Return the seconds of each step that this rank was blocked on memory, shape (K,)."""
    share, suffered = np.zeros(len(steps.numbers)), np.zeros(len(steps.numbers), dtype=bool)
    faults = beats.signal("major_faults")
    suffers = beats.take((faults >= threshold("major_faults_per_second") * beats.windows) & (beats.windows > 0))
    pressure = suffers.signal("pressure_memory_seconds")
    for end, window, seconds in zip(suffers.ends, suffers.windows, pressure, strict=True):
        within = (steps.ends[:, rank] > end - window) & (steps.ends[:, rank] - steps.wall[:, rank] < end)
        suffered |= within
        share[within] = min(seconds / window, 1.0)
    own = sum((steps.own[cause][:, rank] for cause in ("compute", "paused", "other", "data_wait")), np.zeros(len(share)))
    # Some kernels do not count the reclaim of a control group (version 1) as pressure; then the thread's own clocks tell.
    stood_still = np.where(suffered, steps.still[:, rank], 0.0)
    return np.asarray(np.minimum(np.maximum(share * steps.wall[:, rank], stood_still), own))


def _evidence(beats: Heartbeats) -> list[Evidence]:
    window = beats.window_total
    sums = {name: beats.total(name) for name in ("pressure_memory_seconds", "major_faults")}
    rows = [
        measured("memory pressure of the host (PSI some)", sums["pressure_memory_seconds"] / window, "ratio", "heartbeats"),
        compared(
            "pages read back from storage (major faults)",
            sums["major_faults"] / window,
            threshold("major_faults_per_second"),
            "per second and process",
            "heartbeats",
        ),
    ]
    if (swapped := beats.most("swapped_bytes")) > 0:
        rows.append(measured("swapped out, most of a process", swapped, "bytes", "heartbeats"))
    if len(available := beats.told("available_bytes")):
        rows.append(measured("memory available on the host, least", float(available.min()), "bytes", "heartbeats"))
    slopes = [slope for own in beats.by_writer().values() if (slope := resident_slope(own)) is not None]
    if slopes:
        rows.append(measured("resident memory grows by", max(slopes), "bytes per second", "heartbeats"))
    return rows


def resident_slope(beats: Heartbeats) -> float | None:
    """Return by how many bytes a second a process's resident memory grows; None with fewer than three heartbeats that say it."""
    times, resident = beats.ends[beats.has("resident_bytes")], beats.told("resident_bytes")
    return fitted(times - times[0], resident).slope if len(times) >= 3 else None
