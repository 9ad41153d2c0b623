"""What a job's records say about its input: the numbers for the advice on loader workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tachoscope_analyzers.advice import idle_workers, workers
from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.advice.expected_step import step_without
from tachoscope_analyzers.advice.handover import handover_seconds
from tachoscope_analyzers.advice.worker_limits import RankResources, limit
from tachoscope_analyzers.advice.workers import Input
from tachoscope_analyzers.classify.input_pipeline import Loader, observe
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.cores import Cores, beats_by_rank, cores_of
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_analyzers.records.steps import Steps


def advice(candidate: Candidate, job: JobRecords, steps: Steps, step_seconds: float) -> Advised:
    """Return what to do about workers; none where a number is missing, or the late rank is another one each step."""
    late = candidate.slug == "input_straggler"
    if late and candidate.ranks == "all":
        return NONE
    ranks = steps.ranks if candidate.ranks == "all" else candidate.ranks
    loader = observe(job, steps, ranks)
    found = input_of(job, steps, ranks, step_seconds, step_without(candidate, step_seconds), loader, late=late)
    waits = candidate.seconds > 0.1 * candidate.seconds.max()
    if loader.workers and _in_bursts(float(waits.mean()), loader):
        return _bursts(waits.sum(), float(waits.mean()), float(candidate.seconds[waits].mean()), found, loader)
    if loader.idle is not None and loader.idle >= threshold("idle_workers_ratio"):
        return idle_workers.advice(_idle(steps, ranks, found, loader))
    return workers.advice(found) if found.making else NONE


def input_of(
    job: JobRecords,
    steps: Steps,
    ranks: Sequence[int],
    step_seconds: float,
    rest: float,
    loader: Loader | None = None,
    *,
    late: bool = False,
) -> Input:
    """Return what the input of some ranks costs.

    Args:
        rest: seconds of a step without the wait. loader: what was observed, if it is known already. late: these ranks alone are.
    """
    loader = loader or observe(job, steps, list(ranks))
    made_in = loader.workers * step_seconds if loader.workers else making(job, steps, ranks)
    cores, settings = cores_of(job, steps), loader.settings
    reads = not loader.workers and (loader.busy is None or loader.busy < threshold("loader_busy_ratio")) and loader.reading > 0.5
    found = Input(
        step=step_seconds,
        rest=rest,
        making=made_in,
        workers=loader.workers,
        ranks=tuple(ranks) if late else (),
        computing=loader.busy,
        cores=cores,
        bytes=_bytes(job, steps, ranks, step_seconds) if reads else 0.0,
        # A late rank then waits as the others do, which is in the rest of the step.
        handover=0.0 if late else handover_seconds(settings.batch_bytes if settings else 0.0, _batches(job, steps, ranks)),
        splits=None if settings is None else not settings.iterable or settings.shards,
    )
    return replace(found, limit=limit(_room(job, steps, loader, cores, found), settings, _ranks_on_a_host(steps)))


def _bursts(count: int, ratio: float, wait: float, found: Input, loader: Loader) -> Advised:
    """Return advice on few long waits: as many as the loader had iterators mark the starts of epochs."""
    settings = loader.settings
    begin = settings is not None and not settings.persistent_workers and 2 * settings.iterators > count
    expected = max(found.rest, found.step - ratio * wait)
    if begin and expected < threshold("worthwhile_step_ratio") * found.step:
        return workers.start_of_workers(ratio, wait, found.step, expected)
    return workers.long_waits(ratio, wait, found.step, persistent=settings.persistent_workers if settings else None)


def _idle(steps: Steps, ranks: Sequence[int], found: Input, loader: Loader) -> idle_workers.Idle:
    columns = [steps.ranks.index(rank) for rank in ranks]
    waited = float(steps.own["data_wait"][:, columns].sum())
    busy = float(steps.data_cpu[:, columns].sum()) / waited if waited else float("nan")
    return idle_workers.Idle(
        step=found.step,
        rest=found.rest,
        handover=found.handover,
        workers=loader.workers,
        idle=loader.idle or 0.0,
        workers_cpu=None if loader.busy is None else loader.busy * loader.workers * found.step,
        thread_busy=None if np.isnan(busy) else busy,
        only_computes=not set(loader.kinds) - {"poll", "cpu", "lock", "unknown"},
        pins=loader.settings is not None and loader.settings.pin_memory,
    )


def _ranks_on_a_host(steps: Steps) -> int:
    """Return the number of ranks on the host with most of them."""
    return max(Counter(start.host for start in steps.starts).values(), default=1)


def _room(job: JobRecords, steps: Steps, loader: Loader, cores: Cores | None, costs: Input) -> RankResources:
    """Return what a rank may use: of the host's cores and memory an equal part.

    Pinned ranks have cores of their own: then what is used and idle together tells more cores than those of one rank.
    """
    ranks = _ranks_on_a_host(steps)
    own = min((start.cpu_count for start in steps.starts), default=0)
    share = max(own // ranks, int((cores.used + cores.idle) / ranks + 0.5) if cores else 0) or min(own, 1)
    busy = (
        0.0 if loader.busy is not None and loader.busy < threshold("loader_busy_ratio") else _computing(steps, loader, cores, costs)
    )
    beats = [*beats_by_rank(job, steps).values()]
    worker, whole = (max((own.most(name) for own in beats), default=0.0) for name in ("worker_bytes", "resident_bytes"))
    free = [float(told.min()) for own in beats if len(told := own.told("available_bytes"))]
    # A worker that was not seen yet may come to hold all that the training process does.
    goal = workers.expected_step(costs) if costs.rest > 0 else 0.0
    needed = workers.keeping_up(costs.made, goal) if goal > 0 else 0
    return RankResources(share, busy, needed, loader.workers, worker or whole, min(free, default=0.0) / ranks)


def _computing(steps: Steps, loader: Loader, cores: Cores | None, costs: Input) -> float:
    """Return the cores that a rank's computing uses in the rest of the step: at least one, at most one per thread."""
    threads = max((start.cpu_threads for start in steps.starts), default=1) if steps.device == "cpu" else 1
    if cores is None or costs.rest <= 0 or loader.busy is None:
        return float(max(threads, 1))
    spent = cores.used / _ranks_on_a_host(steps) * costs.step - loader.busy * costs.making
    return min(max(spent / costs.rest, 1.0), float(max(threads, 1)))


def _batches(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> float:
    """Return the batches of a step, by its backward calls."""
    calls = rows_of(job, steps, ranks).column("backward_calls")
    return max(float(calls.mean()), 1.0) if len(calls) else 1.0


def _in_bursts(waiting_ratio: float, loader: Loader) -> bool:
    """Return whether too few steps wait for a lack of workers: w workers deliver w batches at a time, so one step in w waits."""
    return waiting_ratio < 0.5 / loader.workers


def rows_of(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> StepTable:
    """Return the records of the judged steps of some ranks."""
    wanted = set(ranks)
    writers = {writer for writer, rank in zip(steps.writers, steps.ranks, strict=True) if rank in wanted}
    first, last = int(steps.numbers[0]), int(steps.numbers[-1])
    numbers = job.steps.column("step")
    return job.steps.take(job.steps.is_of(writers) & (numbers >= first) & (numbers <= last))


def making(job: JobRecords, steps: Steps, ranks: Sequence[int]) -> float:
    """Return the seconds of a step's input made in the training process, of the rank that needs longest.

    All that the host spent in the loader, and not only what the device waited for.
    """
    rows = rows_of(job, steps, ranks)
    if not rows:
        return 0.0
    _, places = np.unique(rows.column("rank"), return_inverse=True)
    seconds = np.bincount(places, weights=np.nan_to_num(rows.column("data_wait_seconds")))
    return float((seconds / np.bincount(places)).max())


def _bytes(job: JobRecords, steps: Steps, ranks: Sequence[int], step_seconds: float) -> float:
    """Return the bytes that the rank with most reads per step, by its system calls."""
    found = []
    for rank, beats in beats_by_rank(job, steps).items():
        if rank in ranks and (window := beats.window_total):
            found.append(beats.total("read_bytes") / window * step_seconds)
    return max(found, default=0.0)
