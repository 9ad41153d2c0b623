"""What a rank's GPU was sampled to do, compared with the steps of the rank.

Between two samples a counter tells exactly how much was added, a gauge is taken as the mean of the two. Spans that are longer than
`gpu_gap_ratio` usual ones are gaps, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.gpu_samples import GpuSamples
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.metric import Metric


@dataclass(frozen=True, slots=True)
class RankGpu:
    """The GPU of one rank.

    Attributes:
        rank: global rank; column: its place in the matrices of the steps. samples: of its GPU.
        times: of the samples in Unix seconds, shape (N,). known: whether two samples are no gap, shape (N-1,).
        starts, ends: of the rank's steps in Unix seconds, shape (K,).
    """

    rank: int
    column: int
    samples: GpuSamples
    times: Matrix
    known: npt.NDArray[np.bool_]
    starts: Matrix
    ends: Matrix

    @property
    def samples_in_steps(self) -> int:
        """Samples from the begin of the first step to the end of the last."""
        return int(((self.times >= self.starts[0]) & (self.times <= self.ends[-1])).sum())

    def values(self, metric: Metric, *labels: str) -> Matrix:
        """Return the values of a metric, shape (N,), NaN where it was not told."""
        return np.asarray(self.samples.series(metric, *labels), dtype=float)

    def rate(self, counter: Matrix) -> Matrix:
        """Return what a counter, shape (N,), grew by per second between samples, shape (N-1,). NaN where nothing is known.

        Where it fell, the driver was loaded again and counts from zero. What it grew by across samples without it is spread evenly.
        """
        told = ~np.isnan(counter)
        if told.sum() < 2:
            return np.full(len(self.known), np.nan)
        steps = np.diff(counter[told])
        grown = np.concatenate([[0.0], np.cumsum(np.where(steps < 0, counter[told][1:], steps))])
        total = np.interp(self.times, self.times[told], grown, left=np.nan, right=np.nan)
        return np.asarray(np.where(self.known, np.diff(total) / np.diff(self.times), np.nan))

    def between(self, gauge: Matrix) -> Matrix:
        """Return the mean of a gauge, shape (N,), at both ends of each span, shape (N-1,): of one if the other was not told."""
        before, after = gauge[:-1], gauge[1:]
        mean = np.where(np.isnan(before), after, np.where(np.isnan(after), before, (before + after) / 2))
        return np.asarray(np.where(self.known, mean, np.nan))

    def lowest(self, gauge: Matrix) -> Matrix:
        """Return the lower of a gauge's values at both ends of each span, shape (N-1,)."""
        return np.asarray(np.where(self.known, np.fmin(gauge[:-1], gauge[1:]), np.nan))

    def by_step(self, spans: Matrix) -> Matrix:
        """Return the mean over each step, shape (K,), of what is known of it; NaN where nothing is."""
        whole, covered = self._sums(spans)
        return np.asarray(np.divide(whole, covered, out=np.full(len(whole), np.nan), where=covered > 1e-9))

    def mean(self, spans: Matrix) -> float:
        """Return the mean over all steps of what is known of them, NaN if nothing is."""
        whole, covered = self._sums(spans)
        return float(whole.sum() / covered.sum()) if covered.sum() > 1e-9 else float("nan")

    def seconds(self, spans: Matrix) -> float:
        """Return the sum over the steps of a share of time: seconds."""
        return float(self._sums(spans)[0].sum())

    def coverage(self, spans: Matrix) -> float:
        """Return the part of the steps' time of which something is known, 0 to 1."""
        return float(self._sums(spans)[1].sum() / max(float((self.ends - self.starts).sum()), 1e-9))

    def _sums(self, spans: Matrix) -> tuple[Matrix, Matrix]:
        """Return for each step the integral, and the seconds that are known."""
        if not len(spans):
            return np.zeros(len(self.starts)), np.zeros(len(self.starts))
        seconds = np.where(np.isnan(spans), 0.0, np.diff(self.times))
        sums = []
        for part in (np.nan_to_num(spans) * seconds, seconds):
            total = np.concatenate([[0.0], np.cumsum(part)])
            sums.append(np.interp(self.ends, self.times, total) - np.interp(self.starts, self.times, total))
        return sums[0], sums[1]


def rank_gpus(job: JobRecords, steps: Steps) -> tuple[list[RankGpu], dict[int, str]]:
    """Return the GPUs that were sampled often enough, and for each other rank the signal that is missing."""
    found, missing = [], {}
    for column, (rank, writer) in enumerate(zip(steps.ranks, steps.writers, strict=True)):
        samples = job.gpus.by_writer.get(writer)
        if samples is None:
            missing[rank] = job.gpus.missing.get(writer, job.gpus.why_none)
            continue
        ends = steps.unix_ends[:, column]
        gpu = RankGpu(rank, column, samples, np.asarray(samples.times), _known(samples.times), ends - steps.wall[:, column], ends)
        if gpu.samples_in_steps < threshold("gpu_minimum_samples"):
            least = threshold("gpu_minimum_samples")
            missing[rank] = f"at least {least:g} metric samples of its GPU within the steps (there are {gpu.samples_in_steps})"
        else:
            found.append(gpu)
    return found, missing


def _known(times: Sequence[float]) -> npt.NDArray[np.bool_]:
    seconds = np.diff(np.asarray(times))
    return np.asarray(seconds <= threshold("gpu_gap_ratio") * np.median(seconds)) if len(seconds) else np.zeros(0, dtype=bool)
