"""From the records of a job to its report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np

from tachoscope_analyzers import (
    checkpoints,
    communication,
    data_imbalance,
    gpu_losses,
    host,
    host_memory,
    input,  # noqa: A004
    integrity,
    ledger,
    losses,
    staleness,
    stragglers,
)
from tachoscope_analyzers.judge import Candidate, Series, findings, step_seconds
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.provenance import lineage, review
from tachoscope_analyzers.shipped import shipped
from tachoscope_analyzers.steps import Steps, aligned
from tachoscope_core.report import Finding, NotMeasured, QualityNote, Report, Window
from tachoscope_core.taxonomy import BY_SLUG

_INPUT = ("input_fetch", "input_preprocess", "input_workers", "input_straggler")


def analyze(job: JobRecords) -> Report:
    """Judge the last attempt of a job.

    Raises:
        TachoscopeError: there is no step, or none that all ranks have.
    """
    steps = aligned(job)
    split = losses.attribute(steps)
    late = stragglers.late_by_computing(steps, split)
    memory = host_memory.judge(job, steps, late)
    uneven = data_imbalance.judge(steps, np.maximum(late - memory.seconds, 0.0), split)
    numbers, updates = integrity.judge(job, steps), staleness.judge(job, steps)
    gpus = gpu_losses.judge(job, steps, split, stragglers.candidates(job, steps, split, memory.seconds + uneven.seconds))
    measured = {
        "host_memory": memory.measured,
        "data_imbalance": uneven.measured,
        "silent_corruption": numbers.measured,
        "async_staleness": updates.measured,
    }
    not_measured = _not_measured(steps, gpus.missing, measured)
    unmeasured = {row.class_ for row in not_measured}
    judged = [*gpus.candidates, *memory.candidates, *uneven.candidates, *numbers.candidates, *updates.candidates]
    every = [*_candidates(job, steps, split, judged), *host.candidates(job, steps, split, memory.seconds)]
    candidates = [_without_unmeasured_alternative(one, unmeasured) for one in every]
    found = findings(candidates, _series(steps, split))
    seen = {finding.class_ for finding in found if finding.class_ in gpu_losses.CLASSES}
    books = ledger.ledgers(steps)
    return Report(
        job=job.job,
        window=Window(start=steps.window_start, end=steps.window_end, steps=len(steps.numbers)),
        ranks=len(steps.ranks),
        sources=[job.source, *([job.gpus.source] if job.gpus.source else [])],
        step_seconds=step_seconds(steps.wall.max(axis=1)),
        ledgers=books,
        goodput=books[0].states.get("compute", 0.0) / books[0].wall_seconds,
        findings=found or [_without_unmeasured_runner_up(one, unmeasured) for one in stragglers.healthy(steps, split, found)],
        not_measured=[row for row in not_measured if row.class_ not in seen],
        quality=unread(job),
        lineage=lineage(job),
        review=review(job),
    )


def _candidates(job: JobRecords, steps: Steps, split: losses.Losses, computing: list[Candidate]) -> list[Candidate]:
    return [
        *input.candidates(job, steps, split),
        *computing,
        *communication.candidates(steps, split),
        *checkpoints.candidates(job, steps, split),
    ]


def unread(job: JobRecords) -> list[QualityNote]:
    """Return what of the metric samples could not be read."""
    if not job.gpus.unread:
        return []
    what = f"metric samples of the GPUs: {job.gpus.unread[0]}"
    if len(job.gpus.unread) > 1:
        what += f" (and {len(job.gpus.unread) - 1} more)"
    return [QualityNote(what=what, severity="limited", means="GPU signals have gaps there, or are missing")]


def _without_unmeasured_alternative(candidate: Candidate, unmeasured: set[str]) -> Candidate:
    """Return the candidate without a look-alike of which nothing is known: it cannot be said to be behind."""
    if candidate.alternative is not None and candidate.alternative[0] in unmeasured:
        return replace(candidate, alternative=None)
    return candidate


def _without_unmeasured_runner_up(finding: Finding, unmeasured: set[str]) -> Finding:
    if finding.runner_up is not None and finding.runner_up.class_ in unmeasured:
        return msgspec.structs.replace(finding, runner_up=None)
    return finding


def _series(steps: Steps, split: losses.Losses) -> Series:
    return Series(split.step, int(steps.numbers[0]), int(steps.numbers[-1]), "step records")


@cache
def missing_signals() -> dict[str, str]:
    """Return, for each class that the step records alone cannot show, the signal that is missing."""
    loaded: dict[str, str] = shipped("coverage.yaml")
    return loaded


def _not_measured(steps: Steps, gpu_signals: dict[str, str], measured: dict[str, bool]) -> list[NotMeasured]:
    missing = {slug: signal for slug, signal in missing_signals().items() if not measured.get(slug, False)}
    if not measured["data_imbalance"]:
        missing["data_imbalance"] = data_imbalance.MISSING
    if steps.device != "cpu":
        missing.pop("h2d_copy")
        missing = {slug: signal for slug, signal in missing.items() if slug not in gpu_losses.CLASSES} | gpu_signals
        missing["comm_exposed"] = "transfer time apart from waiting (needs a profiler trace or NCCL's inspector)"
        missing["cpu_contention"] = "waiting for a core is measured for training on CPU only"
    elif not steps.cpu_wait_measured:
        missing["cpu_contention"] = "/proc/thread-self/schedstat (this kernel does not keep it)"
    if not steps.loader_seen:
        missing |= dict.fromkeys(_INPUT, "input through a DataLoader or tachoscope.phase('data_wait')")
    absent = sorted(set(range(steps.world_size)) - set(steps.ranks))
    if absent:
        ranks = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        missing |= dict.fromkeys(("input_straggler", "compute_straggler", "comm_exposed"), f"records of rank {ranks}")
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]
