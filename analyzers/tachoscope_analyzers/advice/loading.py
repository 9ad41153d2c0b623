"""What a job's records tell of its input: the numbers for the advice on loader workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tachoscope_analyzers.advice import workers
from tachoscope_analyzers.advice.expected import step_without
from tachoscope_analyzers.advice.workers import Cores, Input
from tachoscope_analyzers.input import Loader, observe
from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.steps import Steps
from tachoscope_core.records import Heartbeat, JobStarted, StepDone


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
            cores=cores_of(job, steps, step_seconds),
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


def cores_of(job: JobRecords, steps: Steps, step_seconds: float) -> Cores | None:
    """Return the cores of the host that allows the least; None where a rank does not tell what it uses."""
    beats = _beats_by_rank(job, steps)
    hosts: dict[str, list[JobStarted]] = defaultdict(list)
    for start in steps.starts:
        hosts[start.host].append(start)
    found = [_cores_of_host(starts, beats) for starts in hosts.values()]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: workers.shortest_step(step_seconds, one)) if known and len(known) == len(found) else None


def _cores_of_host(starts: Sequence[JobStarted], beats: Mapping[int, list[Heartbeat]]) -> Cores | None:
    used, idle = 0.0, []
    for start in starts:
        mine = beats.get(start.rank, [])
        window = sum(beat.window_seconds for beat in mine)
        if not window or not all({"process_cpu_seconds", "idle_core_seconds"} <= beat.signals.keys() for beat in mine):
            return None
        spent = sum(beat.signals["process_cpu_seconds"] + beat.signals.get("worker_cpu_seconds", 0.0) for beat in mine)
        used += spent / window
        idle.append(sum(beat.signals["idle_core_seconds"] for beat in mine) / window)
    counts = [start.cpu_count for start in starts]
    # Pinned ranks may use no more cores than they are given.
    free = min(float(np.mean(idle)), max(sum(counts) - used, 0.0)) if all(counts) else float(np.mean(idle))
    return Cores(used, free, counts[0] if len(set(counts)) == 1 else 0)


def _beats_by_rank(job: JobRecords, steps: Steps) -> dict[int, list[Heartbeat]]:
    """Return the heartbeats whose windows lie within the judged steps of their rank; all that came after a step where none does."""
    columns = {writer: column for column, writer in enumerate(steps.writers)}
    inside: dict[int, list[Heartbeat]] = defaultdict(list)
    after: dict[int, list[Heartbeat]] = defaultdict(list)
    for beat in job.heartbeats:
        column = columns.get(beat.writer)
        if column is None or beat.step < 1:
            continue
        rank, end = steps.ranks[column], beat.monotonic_ns / 1e9
        after[rank].append(beat)
        start = steps.ends[0, column] - steps.wall[0, column]
        if end - beat.window_seconds >= start and end <= steps.ends[-1, column]:
            inside[rank].append(beat)
    return {rank: inside[rank] or beats for rank, beats in after.items()}


def _bytes(job: JobRecords, steps: Steps, ranks: Sequence[int], step_seconds: float) -> float:
    """Return what a rank reads in a step, its system calls counted, in bytes; of the rank that reads most."""
    found = []
    for rank, beats in _beats_by_rank(job, steps).items():
        window = sum(beat.window_seconds for beat in beats)
        if rank in ranks and window:
            found.append(sum(beat.signals.get("read_bytes", 0.0) for beat in beats) / window * step_seconds)
    return max(found, default=0.0)
