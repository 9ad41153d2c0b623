"""From the records of a job to its report."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np

from tachoscope_analyzers import (
    checkpoints,
    communication,
    gpu_losses,
    host,
    input,  # noqa: A004
    ledger,
    links,
    losses,
    pipeline,
    stragglers,
    waiting_unmeasured,
)
from tachoscope_analyzers.advice.of_job import advised
from tachoscope_analyzers.confidence import Calibration, shipped_calibration
from tachoscope_analyzers.course import course
from tachoscope_analyzers.judge import Candidate, Series, findings, step_seconds
from tachoscope_analyzers.load import JobRecords
from tachoscope_analyzers.provenance import lineage, review
from tachoscope_analyzers.shipped import shipped
from tachoscope_analyzers.steps import Steps, aligned
from tachoscope_core.report import Finding, NotMeasured, QualityNote, Report, Window
from tachoscope_core.taxonomy import BY_SLUG

_OF_RANKS = {"compute_straggler": ("compute", "other"), "input_straggler": ("data_wait",)}
"""Classes that are single ranks' fault, and the causes in which these are late."""
_INPUT = ("input_fetch", "input_preprocess", "input_workers", "input_straggler")


def analyze(job: JobRecords, calibration: Calibration | None = None) -> Report:
    """Judge the last attempt of a job.

    Args:
        calibration: of the findings' confidence; default: the shipped one.

    Raises:
        TachoscopeError: there is no step, or none that all ranks have.
    """
    steps = aligned(job)
    flows = links.flows(job, steps)
    stages = pipeline.find(job, steps)
    steps = pipeline.working(steps) if stages else steps
    split = pipeline.attribute(steps, stages, links.moving(job, steps, flows)) if stages else waiting_unmeasured.attribute(steps)
    late = stragglers.candidates(job, steps, split)
    if stages is None and pipeline.said(steps):
        late = [pipeline.accuses_nobody(one) for one in late]
    gpus = gpu_losses.judge(job, steps, split, late)
    moving, judged = communication.candidates(job, steps, split, flows)
    moving += pipeline.candidates(steps, split)
    if stages or pipeline.visible(job, steps):
        judged |= {"pipeline_bubble", "stage_imbalance"}
    not_measured = _not_measured(steps, gpus.missing, judged)
    unmeasured = {row.class_ for row in not_measured}
    candidates = [
        _without_unmeasured_alternative(one, unmeasured) for one in _candidates(job, steps, split, [*gpus.candidates, *moving])
    ]
    candidates = [_with_speedup(one, steps, split) for one in waiting_unmeasured.believable(candidates, steps, split)]
    found = findings(advised(candidates, job, steps, split), _series(steps, split), calibration or shipped_calibration())
    seen = {finding.class_ for finding in found if finding.class_ in gpu_losses.CLASSES}
    books = ledger.ledgers(steps, pipeline.waits(steps, split))
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
        quality=[*unread(job), *waiting_unmeasured.notes(steps)],
        lineage=lineage(job),
        review=review(job),
        course=course(job, steps, split),
    )


def _candidates(job: JobRecords, steps: Steps, split: losses.Losses, others: list[Candidate]) -> list[Candidate]:
    return [
        *input.candidates(job, steps, split),
        *others,
        *checkpoints.candidates(job, steps, split),
        *host.candidates(job, steps, split),
    ]


def _with_speedup(candidate: Candidate, steps: Steps, split: losses.Losses) -> Candidate:
    """Return the candidate with what mending its ranks alone would bring: then the next latest rank sets the step."""
    causes = _OF_RANKS.get(candidate.slug)
    if causes is None or candidate.ranks == "all" or candidate.speedup is not None:
        return candidate
    saved = np.minimum(losses.saved(steps, causes, candidate.ranks), candidate.seconds).mean()
    return replace(candidate, speedup=split.mean_step / max(split.mean_step - float(saved), 1e-9))


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


def _not_measured(steps: Steps, gpu_signals: dict[str, str], judged: set[str]) -> list[NotMeasured]:
    missing = {slug: signal for slug, signal in missing_signals().items() if slug not in judged}
    if steps.device != "cpu":
        missing.pop("h2d_copy")
        missing = {slug: signal for slug, signal in missing.items() if slug not in gpu_losses.CLASSES} | gpu_signals
        missing["comm_exposed"] = "transfer time apart from waiting (needs a profiler trace or NCCL's inspector)"
        missing["cpu_contention"] = "waiting for a core is measured for training on CPU only"
    elif not steps.cpu_wait_measured:
        missing["cpu_contention"] = "/proc/thread-self/schedstat (this kernel does not keep it)"
    if not steps.loader_seen:
        missing |= dict.fromkeys(_INPUT, "input through a DataLoader or tachoscope.phase('data_wait')")
    missing |= waiting_unmeasured.missing(steps)
    absent = sorted(set(range(steps.world_size)) - set(steps.ranks))
    if absent:
        ranks = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
        of_absent = ("input_straggler", "compute_straggler", "comm_exposed", *(["gpu_throttle"] if steps.device != "cpu" else []))
        missing |= dict.fromkeys(of_absent, f"records of rank {ranks}")
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]
