"""From the records of a job to its report."""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec

from tachoscope_analyzers.attempts import notes
from tachoscope_analyzers.attempts.process_ends import process_ends
from tachoscope_analyzers.classify import hang, outside_torch, stragglers
from tachoscope_analyzers.classify.gpu import losses as gpu_losses
from tachoscope_analyzers.classify.pipeline import attribution
from tachoscope_analyzers.failures.report import failures
from tachoscope_analyzers.findings.calibration import Calibration, shipped_calibration
from tachoscope_analyzers.findings.make import Series, findings, step_seconds
from tachoscope_analyzers.job import unmeasured_waiting
from tachoscope_analyzers.job.classify import Classification, decide
from tachoscope_analyzers.job.trend import course, lasting_changes
from tachoscope_analyzers.ledger import states as ledger
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records import idle_gaps, profiled_steps
from tachoscope_analyzers.records.lineage import lineage, review
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_analyzers.records.window import within
from tachoscope_core.report.report import Finding, QualityNote, Report, Window


def analyze(job: JobRecords, calibration: Calibration | None = None) -> Report:
    """Judge the last attempt of a job.

    Args:
        calibration: of the findings' confidence; default: the shipped one.

    Raises:
        TachoscopeError: the job has no step, or no step that all ranks recorded.
    """
    return report_of(job, decide(job, aligned(job)), calibration)


def verdict(job: JobRecords) -> Report:
    """Judge the last attempt of a job by the rules of `analyze`: window, ledgers and findings only, which takes half the time.

    Raises:
        TachoscopeError: the job has no step, or no step that all ranks recorded.
    """
    return _verdict(job, decide(job, aligned(job)), None)


def verdicts(job: JobRecords) -> list[Report]:
    """Judge the last attempt of a job as `verdict` does, cut where a state changes for good: each piece is judged by itself.

    So a fault that begins or ends within the records is reported with its size while it lasts.

    Raises:
        TachoscopeError: the job has no step, or no step that all ranks recorded.
    """
    decided = decide(job, aligned(job))
    steps = decided.steps
    cuts = [float((steps.unix_ends[place] - steps.wall[place]).mean()) for place in lasting_changes(decided.losses)]
    if not cuts:
        return [_verdict(job, decided, None)]
    return [verdict(within(job, begin, end)) for begin, end in pairwise([0.0, *cuts, math.inf])]


def report_of(job: JobRecords, decided: Classification, calibration: Calibration | None = None) -> Report:
    """Return the report on steps whose causes were looked for; see `analyze`."""
    ends = process_ends(job)
    failed = [one for one in failures(job, ends) if one.attempt >= decided.steps.attempt]
    return msgspec.structs.replace(
        _verdict(job, decided, calibration),
        quality=[
            *notes.notes(ends, decided.steps.attempt, next((one for one in failed if one.attempt == decided.steps.attempt), None)),
            *unread(job),
            *([job.left_out] if job.left_out else []),
            *profiled_steps.notes(job),
            *idle_gaps.notes(decided.steps.gaps),
            *unmeasured_waiting.notes(decided.steps),
        ],
        lineage=lineage(job),
        review=review(job),
        course=course(job, decided.steps, decided.losses),
        memory=decided.memory,
        earlier=job.earlier,
        failures=failed,
    )


def _verdict(job: JobRecords, decided: Classification, calibration: Calibration | None) -> Report:
    steps, split = decided.steps, decided.losses
    found = findings(decided.candidates, _series(steps, split), calibration or shipped_calibration())
    seen = {finding.class_ for finding in found if finding.class_ in (*gpu_losses.CLASSES, "hang")}
    unmeasured = {row.class_ for row in decided.not_measured}
    calm, hung = hang.without_hangs(steps, decided.hung)
    books = ledger.ledgers(calm, attribution.waits(calm, split), hung)
    return Report(
        job=job.job,
        window=Window(start=steps.window_start, end=steps.window_end, steps=len(steps.numbers)),
        ranks=len(steps.ranks),
        sources=[job.source, *([job.gpus.source] if job.gpus.source else [])],
        step_seconds=step_seconds(split.step),
        ledgers=books,
        goodput=books[0].states.get("compute", 0.0) / books[0].wall_seconds if outside_torch.computing_measured(steps) else None,
        findings=[
            *(_without_unmeasured_runner_up(one, unmeasured) for one in stragglers.healthy(steps, split, found, unmeasured)),
            *found,
        ],
        not_measured=[row for row in decided.not_measured if row.class_ not in seen],
    )


def unread(job: JobRecords) -> list[QualityNote]:
    """Return what of the metric samples could not be read."""
    if not job.gpus.unread:
        return []
    what = f"metric samples of the GPUs: {job.gpus.unread[0]}"
    if len(job.gpus.unread) > 1:
        what += f" (and {len(job.gpus.unread) - 1} more)"
    return [QualityNote(what=what, severity="limited", means="GPU signals have gaps there, or are missing")]


def _without_unmeasured_runner_up(finding: Finding, unmeasured: set[str]) -> Finding:
    if finding.runner_up is not None and finding.runner_up.class_ in unmeasured:
        return msgspec.structs.replace(finding, runner_up=None)
    return finding


def _series(steps: Steps, split: Losses) -> Series:
    return Series(split.step, int(steps.numbers[0]), int(steps.numbers[-1]), "step records")
