"""The report on a job whose workers recorded their operations."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pipeline_operations.attribution import Attribution, attribute
from benchmarks.pipeline_operations.causes import SOURCE, bubble_ratio, candidates, inherent, refused
from benchmarks.pipeline_operations.operations import Array, Operations, dense
from benchmarks.pipeline_operations.reading import Recording, read
from benchmarks.pipeline_operations.states import ledgers, states
from benchmarks.pipeline_operations.step_sum import Part, parts

from tachoscope_analyzers.findings.make import Series, findings, healthy_finding, step_seconds
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Finding, NotMeasured, QualityNote, Report, Window
from tachoscope_core.report.report import Source as ReportSource
from tachoscope_core.report.taxonomy import BY_SLUG

FOUND = (
    "compute_bound",
    "host_pause",
    "compute_straggler",
    "data_imbalance",
    "pipeline_bubble",
    "stage_imbalance",
    "comm_exposed",
    "network_degraded",
    "slow_link",
    "unknown",
)
"""Classes that recorded operations can show."""
_NO_HOST = "what the host did (operations of the device are recorded here)"


def judged(path: Path, name: str = "") -> tuple[Report, list[Part]]:
    """Read a recording of operations and judge it; return also the summands of the mean step.

    Raises:
        TachoscopeError: it cannot be read, or its operations do not fit together.
    """
    recording = read(path)
    operations = dense(recording)
    try:
        found = attribute(operations)
    except TachoscopeError as error:  # which does not know of files
        raise TachoscopeError(f"{path}: {error}") from None
    split = states(operations, found)
    books = ledgers(operations, split)
    begin = float(recording.rows["start_ts"].min())
    made = Report(
        job=name or recording.name,
        window=Window(
            start=begin, end=float((recording.rows["start_ts"] + recording.rows["duration"]).max()), steps=len(operations.steps)
        ),
        ranks=operations.ranks.size,
        sources=[ReportSource(path=str(path), records=len(recording.rows), unit="events")],
        step_seconds=step_seconds(found.step),
        ledgers=books,
        goodput=books[0].states.get("compute", 0.0) / books[0].wall_seconds if books[0].wall_seconds else None,
        findings=_findings(operations, found, split),
        not_measured=_not_measured(operations),
        quality=_quality(recording, operations, found),
    )
    return made, parts(found)


def report(path: Path, name: str = "") -> Report:
    """Return the report alone; see `judged`."""
    return judged(path, name)[0]


def _findings(operations: Operations, found: Attribution, split: dict[str, Array]) -> list[Finding]:
    """Return the causes of the gap to the ideal step; if none is large, what the ideal step loses itself; else that all is well."""
    series = Series(found.step, int(operations.steps[0]), int(operations.steps[-1]), SOURCE)
    if not series.mean:
        return []
    if found.refusal:
        waiting = (split["straggler_wait"] + split["pipeline_bubble"]).mean(axis=(0, 2))
        return findings(refused(found, waiting), series)
    own = inherent(operations, found)
    behind = max(own, key=lambda one: float(one.seconds.mean()))
    computing = split["compute"].mean(axis=(0, 2))
    return (
        findings(candidates(operations, found), series)
        or findings(own, series)
        or healthy_finding("compute_bound", computing, series, (behind.slug, float(behind.seconds.mean())))
    )


def _not_measured(operations: Operations) -> list[NotMeasured]:
    missing = {slug: signal for slug, signal in missing_signals().items() if slug not in FOUND}
    missing |= dict.fromkeys(("input_fetch", "input_preprocess", "input_workers", "input_straggler", "cpu_contention"), _NO_HOST)
    missing |= dict.fromkeys(("launch_bound", "host_sync", "checkpoint_stall", "h2d_copy"), _NO_HOST)
    if operations.stages < 2:
        missing |= dict.fromkeys(("pipeline_bubble", "stage_imbalance"), "pipeline stages: this job has one")
    if operations.ranks.shape[1] < 2:
        missing["compute_straggler"] = "another replica: with one a slow worker and a stage with more work look the same"
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]


def _quality(recording: Recording, operations: Operations, found: Attribution) -> list[QualityNote]:
    """Return what bounds the conclusions, the worst first, and the sum that the findings are parts of."""
    notes = []
    if found.refusal:
        notes.append(
            QualityNote(what=found.refusal, severity="bad", means="nothing is attributed: the clocks of workers may differ")
        )
    unknown = sorted({operations.each[number].optype for number in found.effects.unknown.tolist()})
    if unknown:
        notes.append(
            QualityNote(
                what=f"operations of unknown kind: {', '.join(unknown[:4])}",
                severity="limited",
                means="beyond what they usually take they count as unexplained, and what they wait for as their own time",
            )
        )
    if recording.tensor_size is not None and recording.tensor_size > 1:
        what = f"a worker is {recording.tensor_size} devices (tensor parallelism)"
        notes.append(QualityNote(what=what, severity="note", means="which of them is slow is not recorded"))
    notes += operations.notes
    if not found.refusal and operations.stages > 1:
        share = f"{bubble_ratio(operations):.0%} of the computing of an ideal step is the pipeline's own bubble"
        means = "it is part of the ideal, not of a cause: more micro-batches or an interleaved schedule make it smaller"
        notes.append(QualityNote(what=share, severity="note", means=means))
    return sorted(notes, key=lambda note: ("bad", "limited", "note").index(note.severity))
