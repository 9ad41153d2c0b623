"""The host: waiting for a core, pauses of the training thread, and what nothing explains."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tachoscope_analyzers.classify import core_takers
from tachoscope_analyzers.classify.input_pipeline import seen_lines
from tachoscope_analyzers.classify.stragglers import busy_other
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks, culprits
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps, lines_seen
from tachoscope_analyzers.stats import spikes
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.report import Evidence


def candidates(job: JobRecords, steps: Steps, losses: Losses, short_of_memory: Matrix | None = None) -> list[Candidate]:
    """Return what the step loses to CPU contention, to pauses, to launching, and to time outside of all measured phases.

    Args:
        short_of_memory: seconds of each step in which a rank stood still for memory, shape (K, R): these are no pauses.
    """
    memory = short_of_memory if short_of_memory is not None else np.zeros_like(steps.wall)
    return [*_contention(job, steps, losses), *_pauses(job, steps, losses, memory), *_unexplained(job, steps, losses)]


def _lost(losses: Losses, *causes: str) -> Matrix:
    parts = [losses.common[cause] + losses.excess[cause].sum(axis=1) for cause in causes]
    return np.asarray(np.sum(parts, axis=0))


def _contention(job: JobRecords, steps: Steps, losses: Losses) -> list[Candidate]:
    lost = _lost(losses, "cpu_wait")
    if not steps.cpu_wait_measured or not lost.any():
        return []
    evidence = [
        measured(
            "ready to run but without a core, the rank that each step lasted for",
            lost.mean(),
            "seconds per step",
            "schedstat of the training thread",
        ),
        measured(
            "the same, mean of all ranks", steps.own["cpu_wait"].mean(), "seconds per step", "schedstat of the training thread"
        ),
    ]
    windows = job.heartbeats.window_total
    pressure = job.heartbeats.total("pressure_cpu_seconds")
    if windows and job.heartbeats.has("pressure_cpu_seconds").any():
        evidence.append(measured("CPU pressure of the host (PSI some)", pressure / windows, "ratio", "heartbeats"))
    who = culprits(steps.own["cpu_wait"], steps.ranks).ranks
    found = core_takers.find_takers(job, steps, who)
    return [
        Candidate(
            "cpu_contention",
            lost,
            who,
            [*evidence, *found.evidence],
            action=found.action,
            at_most=found.at_most,
            cause=found.cause,
            condition=found.condition,
        )
    ]


_FIXES = {
    "gc": "gc.freeze() after the set-up, and collect garbage on all ranks at the same step",
    "evaluation": "validate less often, or on fewer batches",
    "paused": "look at the line that the evidence names: take it out of the loop, or do it in another thread or process",
}
_PAUSES = {"gc": "garbage collection", "evaluation": "evaluation", "paused": "standing still"}


def _pauses(job: JobRecords, steps: Steps, losses: Losses, memory: Matrix) -> list[Candidate]:
    still = np.maximum(_lost(losses, "paused") - memory.max(axis=1), 0.0)
    by_cause = {"gc": _lost(losses, "gc"), "evaluation": _lost(losses, "evaluation"), "paused": still}
    lost = np.asarray(np.sum(list(by_cause.values()), axis=0))
    if not lost.any():
        return []
    pausing = np.asarray(np.sum([steps.own[cause] for cause in _PAUSES], axis=0))
    who = culprits(pausing, steps.ranks).ranks
    evidence = [
        measured(_PAUSES[cause], seconds.mean(), "seconds per step", "step records")
        for cause, seconds in by_cause.items()
        if seconds.any()
    ]
    when = spikes.rhythm(lost, steps.numbers)
    evidence += spikes.evidence(when)
    if len(steps.ranks) > 1 and when.kind != "steady" and who == "all":
        evidence.append(
            measured(
                "steps with a pause in which only one rank has it, and the others wait",
                spikes.single_rank_ratio(pausing),
                "ratio",
                "step records",
            )
        )
    cause = max(by_cause, key=lambda one: float(by_cause[one].sum()))
    ranks = steps.ranks if who == "all" else who
    if cause != "paused":
        evidence += seen_lines(job, steps, cause, ranks)
    elif still.any():
        evidence += _standing_still(job, steps, ranks)
    return [Candidate("host_pause", lost, who, evidence, action=_FIXES[cause], cause=cause)]


def _standing_still(job: JobRecords, steps: Steps, ranks: list[int]) -> list[Evidence]:
    """Return evidence of a held interpreter lock, and the line at which the thread was seen."""
    writers = {writer for writer, rank in zip(steps.writers, steps.ranks, strict=True) if rank in ranks}
    beats = job.heartbeats.of_writers(writers)
    ticks = beats.total("ticks")
    late = beats.total("late_ticks")
    phases = ("pause", "forward") if steps.device == "cpu" else ("pause", "other")
    rows = next((found for phase in phases if (found := seen_lines(job, steps, phase, ranks))), [])
    if ticks and late:
        lock = "interpreter's lock held by another thread, the sampler's looks that came late by it"
        rows.append(measured(lock, late / ticks, "ratio", "heartbeats"))
    return rows


_OF_MODELS = ("forward", "backward", "_call_impl", "_wrapped_call_impl")


def model_share(lines: Mapping[str, int]) -> float:
    """Return the ratio of the samples whose line, `file:line function`, is in a function that runs a model."""
    functions = {line: line.rpartition(" ")[2].rpartition(".")[2] for line in lines}
    of_models = sum(count for line, count in lines.items() if functions[line].endswith(_OF_MODELS))
    return of_models / max(sum(lines.values()), 1)


def _unexplained(job: JobRecords, steps: Steps, losses: Losses) -> list[Candidate]:
    """Return time outside of all phases. A rank that is late by computing is a straggler instead."""
    late = losses.excess["other"] * ~busy_other(steps).astype(bool)
    found = []
    shared: tuple[Matrix, Ranks] = (losses.common["other"], "all")
    for seconds, ranks in (shared, (late.sum(axis=1), culprits(late, steps.ranks).ranks)):
        if not seconds.any():
            continue
        columns = [steps.ranks.index(rank) for rank in (steps.ranks if ranks == "all" else ranks)]
        total = sum(float(steps.own["other"][:, column].sum()) for column in columns)
        busy = sum(float(steps.other_cpu[:, column].sum()) for column in columns)
        seen_ranks = [steps.ranks[column] for column in columns]
        in_model = model_share(lines_seen(job, steps, "other", seen_ranks))
        evidence = [
            measured("CPU used in the unexplained time", busy / total if total else 0.0, "ratio", "step records"),
            *spikes.evidence(spikes.rhythm(seconds, steps.numbers)),
            *seen_lines(job, steps, "other", seen_ranks),
        ]
        if in_model:
            evidence.append(
                compared(
                    "samples of it within the model, which is computing and no loss",
                    in_model,
                    threshold("model_samples_ratio"),
                    "ratio",
                    "stack samples in other",
                )
            )
        computing = in_model >= threshold("model_samples_ratio")
        found.append(Candidate("unknown", seconds, ranks, evidence, at_most="info" if computing else "critical"))
    launching = _lost(losses, "launch")
    if launching.any():
        evidence = [
            measured("device idle while the host did not wait for data", launching.mean(), "seconds per step", "device events")
        ]
        found.append(Candidate("unknown", launching, "all", evidence, 0.5, ("launch_bound", 0.0)))
    return found
