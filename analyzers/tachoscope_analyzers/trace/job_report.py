"""From the traces of a job to its report: one trace or a thousand ranks."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.analyze import missing_signals
from tachoscope_analyzers.culprits import culprits
from tachoscope_analyzers.judge import Candidate, Series, findings, healthy_finding
from tachoscope_analyzers.steps import Matrix
from tachoscope_analyzers.trace.job_candidates import across_ranks
from tachoscope_analyzers.trace.job_losses import JobLosses, job_losses
from tachoscope_analyzers.trace.rank_losses import SOURCE
from tachoscope_analyzers.trace.ranks import JobTraces
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.names import TRAINING_STATES
from tachoscope_core.report import Evidence, Finding, Ledger, NotMeasured, QualityNote, Report, StepSeconds, Window
from tachoscope_core.report import Source as ReportSource
from tachoscope_core.taxonomy import BY_SLUG

_MOST_RANK_LEDGERS = 64

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
        TachoscopeError: no trace holds a step, or even any event.
    """
    split = job_losses(job)
    if not len(split.numbers):
        raise TachoscopeError(
            f"the traces of {name} hold no event with a duration", fix="record with torch.profiler, see docs/traces.md"
        )
    series = Series(split.step, int(split.numbers[0]), int(split.numbers[-1]), SOURCE)
    candidates = [*_by_rank(split), *across_ranks(job, split)]
    found = findings(candidates, series)
    ledgers = _ledgers(split)
    p50, p95, p99 = (float(value) for value in np.quantile(split.step, [0.5, 0.95, 0.99]))
    start, end = _window(job)
    return Report(
        job=name,
        window=Window(start=start, end=end, steps=len(split.numbers)),
        ranks=len(job.summaries),
        sources=[_source(path, events) for path, events in _files(job)],
        step_seconds=StepSeconds(mean=series.mean, p50=p50, p95=p95, p99=p99),
        ledgers=ledgers,
        goodput=ledgers[0].states.get("compute", 0.0) / ledgers[0].wall_seconds if ledgers[0].wall_seconds else None,
        findings=found or _healthy(split, series),
        not_measured=_not_measured(job, split),
        quality=_quality(job, split),
    )


def _by_rank(split: JobLosses) -> list[Candidate]:
    """Return the candidates that each rank's own trace shows; the ranks' mean is what the job loses per step."""
    found = []
    for slug, seconds in split.seconds.items():
        who = culprits(seconds, split.ranks)
        ranks = who.ranks if who.persistent and len(split.ranks) > 1 else "all"
        worst = split.ranks[int(seconds.sum(axis=0).argmax())]
        loss = split.loss[slug][worst]
        runner_up = (loss.alternative, 0.0) if loss.alternative else None
        speedup, replayed = _replayed(split, slug, worst)
        evidence = [*loss.evidence, *replayed]
        found.append(Candidate(slug, seconds.mean(axis=1), ranks, evidence, loss.certainty, runner_up, speedup=speedup))
    return found


def _replayed(split: JobLosses, slug: str, rank: int) -> tuple[float | None, list[Evidence]]:
    """Return the speed-up of a rank without the loss, by replay, and how it was come by."""
    told = split.what_if.get(slug, {}).get(rank)
    if told is None or told.refusal:
        return None, []
    evidence = Evidence(
        signal=f"step of rank {rank} without it, by replaying its dependencies"
        if len(split.ranks) > 1
        else "step without it, by replay",
        value=float(told.step_ns) / 1e9,
        threshold=float(told.replayed_step_ns) / 1e9,
        comparison="<",
        unit="seconds per step",
        source=f"replay; {told.error_percent:.1f} % of the time is not explained by dependencies",
    )
    return float(min(told.speedup, 1e6)), [evidence]


def _healthy(split: JobLosses, series: Series) -> list[Finding]:
    compute = split.states["compute"].mean(axis=1)
    slug = "decode_bandwidth" if split.decoding else "compute_bound"
    rest = {"comm_exposed": split.states["communication"], "launch_bound": split.states["host_wait"]}
    runner_up = max(rest, key=lambda name: float(rest[name].mean()))
    return healthy_finding(slug, compute, series, (runner_up, float(rest[runner_up].mean())))


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
    elif not len(job.collectives):
        missing |= dict.fromkeys(
            ("input_straggler", "compute_straggler", "data_imbalance", "slow_link"), "collectives that ranks share"
        )
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]


def _quality(job: JobTraces, split: JobLosses) -> list[QualityNote]:
    """Return what bounds the conclusions, the worst first; the same note of several ranks once."""
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
    if several:
        found += [
            _job_note(row["problem"], row["detail"])
            for row in job.quality.to_dict("records")
            if row["problem"] not in {"cut", "empty"}
        ]
    order = {"bad": 0, "limited": 1, "note": 2}
    return sorted(found, key=lambda note: order[note.severity])


def _job_note(problem: str, detail: str) -> QualityNote:
    means = {
        "missing_ranks": "a rank that is not here may be the one that the others wait for",
        "missing_in_group": "waits of ranks that are not here are not known",
        "clocks_not_aligned": "waiting and transfer are not told apart for them",
        "nothing_in_common": "no straggler can be named",
        "no_rank": "ranks in the findings are numbers of files",
    }.get(problem, "what depends on it is left out")
    severity = "note" if problem in {"steps_left_out", "collectives_left_out"} else "limited"
    return QualityNote(what=detail, severity=severity, means=means)  # type: ignore[arg-type]
