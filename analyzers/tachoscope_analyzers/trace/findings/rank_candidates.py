"""The candidates that each rank's own trace shows, and how much faster a step would be without them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Culprits, culprits
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.trace.findings.job_losses import JobLosses, by_step
from tachoscope_analyzers.trace.losses.by_rank import SOURCE
from tachoscope_analyzers.trace.ranks.job import JobTraces
from tachoscope_analyzers.trace.ranks.job_quality import ranks_missing
from tachoscope_core.report.report import Evidence

_LEAST_GAIN_RATIO = 0.01
"""Design choice: a replayed step that is shorter by less than that is not a gain."""
_MOST_SPEEDUP = 100.0
"""Design choice: of which less than a hundredth would be left, a trace does not hold enough else to tell how long a step takes."""
_OF_COMPUTE = frozenset({"underfilled", "compute_inefficient"})
_WITH_WAITS_CERTAINTY = 0.5
"""Of a transfer that may as well be waiting for a rank that cannot be compared: two explanations, and nothing between them."""


def by_rank(job: JobTraces, split: JobLosses, elsewhere: dict[str, set[int]]) -> list[Candidate]:
    """Return the candidates that each rank's own trace shows.

    The ranks' mean is what the job loses per step. Where one rank has the loss, what the others wait for it is part of that.

    Args:
        elsewhere: by class, the ranks whose loss beyond the others already stands in a finding of a late rank: that is not counted
            again.
    """
    found = []
    for slug, each in split.seconds.items():
        late = np.isin(split.ranks, list(elsewhere.get(slug, ())))
        seconds = each
        if late.any():
            others = each[:, ~late]
            usual = np.median(others, axis=1, keepdims=True) if others.shape[1] else np.zeros((len(each), 1))
            seconds = np.where(late, np.minimum(each, usual), each)
        if seconds.any():
            found.append(_candidate(job, split, slug, seconds))
    return found


def bounded(candidate: Candidate, split: JobLosses) -> Candidate:
    """Return a candidate whose speed-up is possible: no step is shorter than the computing of the rank that computes least."""
    step, lost = float(split.step.mean()), float(candidate.seconds.mean())
    compute = float(split.states["compute"].mean(axis=0).min())
    speedup = candidate.speedup or step / max(step - lost, 1e-9)
    if compute > 0 and candidate.slug not in _OF_COMPUTE:
        speedup = min(speedup, max(step / compute, 1.0))
    return replace(candidate, speedup=speedup if speedup <= _MOST_SPEEDUP else float("inf"))


def _candidate(job: JobTraces, split: JobLosses, slug: str, seconds: Matrix) -> Candidate:
    who = culprits(seconds, split.ranks)
    lost = seconds.mean(axis=1) + _waits_for(job, split, who, seconds)
    place = int(seconds.sum(axis=0).argmax())
    loss = split.loss[slug][split.ranks[place]]
    evidence = _of_one_rank(split, slug, list(loss.evidence), place)
    speedup, replayed = _replayed(split, slug, split.ranks[place])
    gains = speedup is None or speedup - 1 >= _LEAST_GAIN_RATIO
    large = lost.mean() >= threshold("warning_share") * split.step.mean()
    waits = _maybe_waits(job) if slug == "comm_exposed" else []
    return Candidate(
        slug,
        lost,
        who.ranks if who.persistent and len(split.ranks) > 1 else "all",
        [*evidence, *waits, *replayed],
        min(loss.certainty, _WITH_WAITS_CERTAINTY) if waits else loss.certainty,
        (loss.alternative, loss.margin * float(lost.mean() / split.step.mean())) if loss.alternative else None,
        speedup=speedup,
        level="info" if large and not gains else None,
    )


def _waits_for(job: JobTraces, split: JobLosses, who: Culprits, seconds: Matrix) -> Matrix:
    """Return the ranks' mean wait for the rank with a loss, at most the loss, shape (K,)."""
    if not who.persistent or not isinstance(who.ranks, list) or len(who.ranks) != 1 or not job.compared_collectives:
        return np.zeros(len(split.numbers))
    (rank,) = who.ranks
    own = float(seconds[:, split.ranks.index(rank)].mean())
    waited = by_step(job.collectives[job.collectives["last_rank"] == rank], "added_wait_ns", split)
    most = min(own / float(waited.mean()), 1.0) if waited.any() else 0.0
    return np.asarray(waited * most * (len(split.ranks) - 1) / len(split.ranks))


def _of_one_rank(split: JobLosses, slug: str, evidence: list[Evidence], place: int) -> list[Evidence]:
    """Name the rank of the evidence, since the finding's seconds are a mean over ranks."""
    if len(split.ranks) < 2:
        return evidence
    source = f"{SOURCE} of rank {split.ranks[place]}"
    found: list[Evidence] = []
    for row in evidence:
        in_time = row.unit.startswith("seconds")
        # What the rank waited for late ones is in its own ledger, but no longer in the job's.
        split_off = in_time and slug in {"comm_exposed", "pipeline_bubble"}
        value = float(split.seconds[slug][:, place].mean()) if split_off else row.value
        mean = f"; the finding is the mean of {len(split.ranks)} ranks" if in_time and not found else ""
        found.append(
            msgspec.structs.replace(row, value=value, source=(source if row.source == SOURCE else f"{row.source}, {source}") + mean)
        )
    return found


def _maybe_waits(job: JobTraces) -> list[Evidence]:
    """Return why exposed communication may be waiting for a late rank; empty if all ranks were compared."""
    missing = ranks_missing(job.summaries)
    if missing:
        return [
            measured(
                "slow transfer, or waiting for a late rank: cannot be distinguished without the missing ranks",
                missing,
                "ranks" if missing > 1 else "rank",
                "metadata of the trace",
            )
        ]
    if job.compared_collectives or (len(job.summaries) == 1 and next(iter(job.summaries.values())).world_size == 1):
        return []
    return [
        measured(
            "slow transfer, or waiting for a late rank: cannot be distinguished without collectives that several ranks recorded",
            0,
            "collectives",
            SOURCE,
        )
    ]


def _replayed(split: JobLosses, slug: str, rank: int) -> tuple[float | None, list[Evidence]]:
    """Return the replayed speed-up of a rank without the loss, and how it was computed."""
    told = split.what_if.get(slug, {}).get(rank)
    if told is None or told.refusal:
        return None, []
    gains = told.speedup - 1 >= _LEAST_GAIN_RATIO
    of_rank = f" of rank {rank}" if len(split.ranks) > 1 else ""
    evidence = Evidence(
        signal=f"step{of_rank} without it, by replaying its dependencies"
        if gains
        else f"removing it alone does not shorten the step: other work of that length runs in parallel; step{of_rank} without it",
        value=float(told.step_ns) / 1e9,
        threshold=float(told.replayed_step_ns) / 1e9 if gains else None,
        comparison="<" if gains else "",
        unit="seconds per step",
        source=f"replay; {told.error_percent:.1f} % of the time is not explained by dependencies",
    )
    return float(told.speedup), [evidence]
