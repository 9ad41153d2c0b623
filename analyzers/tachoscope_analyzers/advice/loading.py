"""What a job's records tell of its input: the numbers for the advice on loader workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from tachoscope_analyzers.advice import workers
from tachoscope_analyzers.advice.expected import step_without
from tachoscope_analyzers.advice.workers import Input
from tachoscope_analyzers.cores import beats_by_rank, cores_of
from tachoscope_analyzers.input import Loader, observe
from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.steps import Steps
from tachoscope_core.records import StepDone


def advice(candidate: Candidate, job: JobRecords, steps: Steps, step_seconds: float) -> str:
    """Return how many workers to set; empty where a number is missing, or the late rank is another one each step."""
    late = candidate.slug == "input_straggler"
    if late and candidate.ranks == "all":
        return ""
    ranks = steps.ranks if candidate.ranks == "all" else candidate.ranks
    loader = observe(job, steps, ranks)
    rest = step_without(candidate, step_seconds)
    waits = candidate.seconds > 0.1 * candidate.seconds.max()
    if loader.workers and _in_bursts(float(waits.mean()), loader):
        return workers.start_of_workers(float(waits.mean()), float(candidate.seconds[waits].mean()), step_seconds, rest)
    made_in = loader.workers * step_seconds if loader.workers else making(job, steps, ranks)
    if not made_in:
        return ""
    return workers.advice(
        Input(
            step=step_seconds,
            rest=rest,
            making=made_in,
            workers=loader.workers,
            ranks=tuple(ranks) if late else (),
            computing=loader.busy,
            cores=cores_of(job, steps),
            bytes=_bytes(job, steps, ranks, step_seconds) if candidate.slug == "input_fetch" and not loader.workers else 0.0,
        )
    )


def _in_bursts(waiting_ratio: float, loader: Loader) -> bool:
    """Say whether too few steps wait for a want of workers: w of them bring w batches at a time, so that one step in w waits."""
    return waiting_ratio < 0.5 / loader.workers


def rows_of(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> Iterator[StepDone]:
    """Yield the records of the judged steps of some ranks."""
    wanted = set(ranks)
    writers = {writer for writer, rank in zip(steps.writers, steps.ranks, strict=True) if rank in wanted}
    first, last = int(steps.numbers[0]), int(steps.numbers[-1])
    return (row for row in job.steps if row.writer in writers and first <= row.step <= last)


def making(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> float:
    """Return the seconds of a step's input made in the training process, of the rank that needs longest.

    All that the host spent in the loader, and not only what the device waited for.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    for row in rows_of(job, steps, ranks):
        seconds[row.rank].append(row.phase_seconds.get("data_wait", 0.0))
    return max((float(np.mean(values)) for values in seconds.values()), default=0.0)


def _bytes(job: JobRecords, steps: Steps, ranks: Sequence[int], step_seconds: float) -> float:
    """Return what a rank reads in a step, its system calls counted, in bytes; of the rank that reads most."""
    found = []
    for rank, beats in beats_by_rank(job, steps).items():
        window = sum(beat.window_seconds for beat in beats)
        if rank in ranks and window:
            found.append(sum(beat.signals.get("read_bytes", 0.0) for beat in beats) / window * step_seconds)
    return max(found, default=0.0)
