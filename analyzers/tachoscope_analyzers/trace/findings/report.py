"""From the traces of a job to its report: one trace or a thousand ranks."""

from __future__ import annotations

import msgspec
import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Series, findings, healthy_finding, step_seconds
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.trace.device_time.device_use import DeviceUse, use_evidence, use_note
from tachoscope_analyzers.trace.findings.advice import advised
from tachoscope_analyzers.trace.findings.job_candidates import across_ranks
from tachoscope_analyzers.trace.findings.job_losses import JobLosses, job_losses
from tachoscope_analyzers.trace.findings.late_rank import counted
from tachoscope_analyzers.trace.findings.rank_candidates import bounded, by_rank
from tachoscope_analyzers.trace.losses.by_rank import SOURCE
from tachoscope_analyzers.trace.ranks.job import JobTraces
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import TRAINING_STATES
from tachoscope_core.report.report import Finding, Ledger, NotMeasured, QualityNote, Report, Window
from tachoscope_core.report.report import Source as ReportSource
from tachoscope_core.report.taxonomy import BY_SLUG

_MOST_RANK_LEDGERS = 64
_AT_WORK = ("compute", "communication", "host_to_device")

FOUND = (
    "input_preprocess",
    "input_workers",
    "input_straggler",
    "h2d_copy",
    "compute_bound",
    "compute_inefficient",
    "launch_bound",
    "underfilled",
    "host_sync",
    "host_pause",
    "compute_straggler",
    "data_imbalance",
    "pipeline_bubble",
    "comm_exposed",
    "slow_link",
    "memory_thrash",
    "checkpoint_stall",
    "decode_bandwidth",
    "unknown",
)
"""Classes that profiler traces can show."""


def report(job: JobTraces, name: str) -> Report:
    """Judge a job by its traces.

    Raises:
        TachoscopeError: no trace holds a step, or even any event; or nothing says that the traces are of one job.
    """
    _refuse_unrelated(job)
    split = job_losses(job)
    if not len(split.numbers):
        raise TachoscopeError(
            f"the traces of {name} contain no event with a duration", fix="record with torch.profiler, see docs/guides/traces.md"
        )
    series = Series(split.step, int(split.numbers[0]), int(split.numbers[-1]), SOURCE)
    across = across_ranks(job, split)
    candidates = [bounded(candidate, split) for candidate in [*by_rank(job, split, counted(across)), *across]]
    world = max((one.world_size or 1 for one in job.summaries.values()), default=len(job.summaries))
    found = findings(advised(candidates, series.mean, max(world, len(job.summaries))), series)
    if all(one.small for one in found):
        found = [*_healthy(job, split, series), *found]
    ledgers = _ledgers(split)
    start, end = _window(job)
    return Report(
        job=name,
        window=Window(start=start, end=end, steps=len(split.numbers)),
        ranks=len(job.summaries),
        sources=[_source(path, events) for path, events in _files(job)],
        step_seconds=step_seconds(split.step),
        ledgers=ledgers,
        goodput=_goodput(job, ledgers[0]),
        findings=[_with_own_rank(finding, job) for finding in found],
        not_measured=_not_measured(job, split),
        quality=_quality(job, split),
    )


def _refuse_unrelated(job: JobTraces) -> None:
    """Refuse unrelated traces: their means and advice would be meaningless."""
    apart = {"nothing_in_common", "no_common_time"} <= {problem for _, _, problem, _ in job.problems}
    if apart and all(one.rank is None for one in job.summaries.values()):
        raise TachoscopeError(
            f"these {len(job.summaries)} traces do not appear to be of one job: none names its rank, they share no collective, "
            "and their times do not overlap",
            fix="analyze one at a time, or compare two with --baseline",
        )


def _with_own_rank(finding: Finding, job: JobTraces) -> Finding:
    """Return a finding of one file of a larger job as its rank's: other ranks are unknown."""
    (rank, only), *others = job.summaries.items()
    if others or only.rank is None or (only.world_size or 1) < 2:
        return finding
    return msgspec.structs.replace(finding, ranks=[rank])


def _goodput(job: JobTraces, whole: Ledger) -> float | None:
    """Return the share of computing; None if a rank's trace is too short."""
    blind = any(one.judgement.losses.blind for one in job.summaries.values() if one.judgement)
    return whole.states.get("compute", 0.0) / whole.wall_seconds if whole.wall_seconds and not blind else None


def _device_uses(job: JobTraces) -> dict[int, DeviceUse]:
    """Return how busy each rank's device was."""
    told = {rank: one.judgement.losses.use for rank, one in job.summaries.items() if one.judgement is not None}
    return {rank: use for rank, use in told.items() if use is not None}


def _healthy(job: JobTraces, split: JobLosses, series: Series) -> list[Finding]:
    """Return that devices, or hosts without devices, were almost always busy, if so."""
    slug = "decode_bandwidth" if split.decoding else "compute_bound"
    rest = {"comm_exposed": split.states["communication"], "launch_bound": split.states["host_wait"]}
    runner_up = max(rest, key=lambda name: float(rest[name].mean()))
    behind = (runner_up, float(rest[runner_up].mean()))
    uses = _device_uses(job)
    if split.decoding or not uses:
        return healthy_finding(slug, split.states["compute"].mean(axis=1), series, behind, use_evidence(uses))
    if min(use.busy for use in uses.values()) < threshold("compute_bound_share"):
        return []
    working = sum((split.states[state] for state in _AT_WORK), np.zeros_like(split.states["compute"]))
    return healthy_finding(slug, working.mean(axis=1), series, behind, use_evidence(uses), "the device at work, share of the step")


def _ledgers(split: JobLosses) -> list[Ledger]:
    by_rank = [
        _ledger({state: values[:, place] for state, values in split.states.items()}, rank) for place, rank in enumerate(split.ranks)
    ]
    whole = _ledger({state: values.sum(axis=1) for state, values in split.states.items()}, None)
    return [whole, *by_rank[:_MOST_RANK_LEDGERS]] if len(by_rank) > 1 else [whole]


def _ledger(states: dict[str, Matrix], rank: int | None) -> Ledger:
    sums = {state: float(states[state].sum()) for state in TRAINING_STATES if state in states}
    return Ledger(
        unit="rank", rank=rank, wall_seconds=sum(sums.values()), states={state: value for state, value in sums.items() if value > 0}
    )


def _window(job: JobTraces) -> tuple[float, float]:
    summaries = job.summaries.values()
    return min(one.start_ns for one in summaries) / 1e9, max(one.end_ns for one in summaries) / 1e9


def _files(job: JobTraces) -> list[tuple[str, int]]:
    files = [(str(one.path), one.events) for one in job.summaries.values()]
    if len(files) <= 2:
        return files
    return [(f"{files[0][0]} and {len(files) - 1} more", sum(events for _, events in files))]


def _source(path: str, events: int) -> ReportSource:
    return ReportSource(path=path, records=events, unit="events")


def _not_measured(job: JobTraces, split: JobLosses) -> list[NotMeasured]:
    missing = {slug: signal for slug, signal in missing_signals().items() if slug not in FOUND}
    missing |= split.not_measured
    missing |= dict.fromkeys(
        ("input_fetch", "cpu_contention"), "what processes and disks of the host did (run under `tachoscope run`)"
    )
    if len(job.summaries) < 2:
        signal = "traces of the other ranks"
        missing |= dict.fromkeys(("input_straggler", "compute_straggler", "data_imbalance", "slow_link"), signal)
    elif not job.compared_collectives:
        missing |= dict.fromkeys(
            ("input_straggler", "compute_straggler", "data_imbalance", "slow_link"), "collectives that ranks share"
        )
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]


def _quality(job: JobTraces, split: JobLosses) -> list[QualityNote]:
    """Return notes that limit the conclusions, the worst first, each once."""
    notes: dict[tuple[str, str, str], list[int]] = {}
    for rank, summary in job.summaries.items():
        for note in summary.judgement.quality if summary.judgement else ():
            notes.setdefault((note.severity, note.what, note.means), []).append(rank)
    several = len(job.summaries) > 1
    found = [
        QualityNote(severity=severity, what=what + (f" (rank {', '.join(map(str, ranks[:8]))})" if several else ""), means=means)  # type: ignore[arg-type]
        for (severity, what, means), ranks in notes.items()
    ]
    refusals = {told.refusal for by_rank in split.what_if.values() for told in by_rank.values() if told.refusal}
    found += [
        QualityNote(
            what=refusal, severity="note", means="`if fixed` subtracts the loss instead of replaying the step: an upper bound"
        )
        for refusal in sorted(refusals)[:1]
    ]
    found += [
        _job_note(problem, detail)
        for _, _, problem, detail in job.problems
        if problem in {"missing_ranks", "unreadable"} or (several and problem not in {"cut", "empty"})
    ]
    found += use_note(_device_uses(job))
    order = {"bad": 0, "limited": 1, "note": 2}
    return sorted(found, key=lambda note: order[note.severity])


def _job_note(problem: str, detail: str) -> QualityNote:
    means = {
        "missing_ranks": "if the late rank is one of them, waiting for it cannot be distinguished from slow transfer",
        "missing_in_group": "waiting times of missing ranks are unknown",
        "clocks_not_aligned": "their waiting and transfer cannot be distinguished",
        "nothing_in_common": "no straggler can be named",
        "no_rank": "ranks in the findings are numbers of files",
        "unreadable": "left out",
    }.get(problem, "what depends on it is left out")
    severity = "note" if problem in {"steps_left_out", "collectives_left_out"} else "limited"
    return QualityNote(what=detail, severity=severity, means=means)  # type: ignore[arg-type]
