"""Compute: one rank that is late by its own computing, and the healthy case in which all time is computing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify import late_rank_intervals as persistence
from tachoscope_analyzers.classify.input_pipeline import seen_lines
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks, against_others, culprits
from tachoscope_analyzers.findings.evidence import compared
from tachoscope_analyzers.findings.make import Candidate, Series, healthy_finding
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats import spikes
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.report.report import Evidence, Finding


def busy_other(steps: Steps) -> Matrix:
    """Return, by rank, whether the time outside of the measured phases was spent computing, shape (R,) of bool.

    Where no loader was seen, that computing may as well be making batches: then it is not told.
    """
    if not steps.loader_seen:
        return np.zeros(len(steps.ranks), dtype=bool)
    other = steps.own["other"].sum(axis=0)
    busy = steps.other_cpu.sum(axis=0)
    return np.asarray(busy >= threshold("culprit_coverage") * np.maximum(other, 1e-9))


def late_by_computing(steps: Steps, losses: Losses) -> Matrix:
    """Return what each step loses to its late rank's own computing, in that rank's column, shape (K, R)."""
    return np.asarray(losses.excess["compute"] + losses.excess["other"] * busy_other(steps))


def candidates(job: JobRecords, steps: Steps, losses: Losses, explained: Matrix | None = None) -> list[Candidate]:
    """Return what the step loses to ranks that compute for longer than the others.

    A straggler is the same rank, and late step after step, in the whole run or in stretches of it. When the late rank changes, or
    is late in some steps only, and neither its data nor memory explain it, it may be uneven work or the machine's jitter: unknown,
    and only where it is more than jitter costs a healthy job.

    Args:
        explained: what of it has another cause (data, memory), in the column of the late rank, shape (K, R).
    """
    late = late_by_computing(steps, losses)
    if explained is not None:
        late = np.maximum(late - explained, 0.0)
    if not late.any():
        return []
    who = culprits(late, steps.ranks)
    ranks = steps.ranks if who.ranks == "all" else who.ranks
    when = _when_late(late[:, np.isin(steps.ranks, ranks)].sum(axis=1), steps, who.ranks)
    evidence = [
        against_others("own computing of the late rank", steps.own["compute"], ranks, steps.ranks, ">"),
        against_others("waiting of the late rank in collectives", steps.waiting, ranks, steps.ranks, "<"),
        Evidence(
            signal="part of the loss that stays with these ranks",
            value=who.coverage if who.persistent else float(late.sum(axis=0).max() / late.sum()),
            threshold=threshold("culprit_coverage"),
            comparison=">=" if who.persistent else "<",
            unit="ratio",
            source="step records",
        ),
        compared(
            "part of the steps in which these ranks are late, while they are",
            when.ratio,
            threshold("straggler_steps"),
            "ratio",
            "step records",
        ),
        *spikes.evidence(spikes.rhythm(late.sum(axis=1), steps.numbers)),
        *seen_lines(job, steps, "forward", ranks),
    ]
    if not who.persistent or when.ratio < threshold("straggler_steps"):
        return _jitter(late.sum(axis=1), losses, evidence)
    seconds = late.sum(axis=1) * when.steps
    rest = _jitter(late.sum(axis=1) - seconds, losses, evidence)
    if steps.device == "cpu" and not steps.cpu_wait_measured:  # it may have waited for a core
        return [Candidate("unknown", seconds, who.ranks, evidence, 0.5, ("compute_straggler", 0.0)), *rest]
    return [Candidate("compute_straggler", seconds, who.ranks, evidence), *rest]


def _jitter(seconds: Matrix, losses: Losses, evidence: list[Evidence]) -> list[Candidate]:
    """Return what late ranks cost that nothing explains, shape (K,), if it is more than a healthy job loses by them."""
    if seconds.sum() < threshold("jitter_share") * losses.step.sum():
        return []
    return [Candidate("unknown", seconds, "all", evidence, 0.5)]


@dataclass(frozen=True, slots=True)
class _When:
    """In which steps ranks are late, shape (K,), and the ratio of these in which they cost something."""

    steps: npt.NDArray[np.bool_]
    ratio: float


def _when_late(late: Matrix, steps: Steps, ranks: Ranks) -> _When:
    """Return when these ranks are late: in the whole run, or where they are not, in stretches of it.

    A rank that becomes slow in the middle of a run is late in each step from then on, whatever it lost before.

    Args:
        late: what each step loses to the ranks, shape (K,).
    """
    step = steps.wall.max(axis=1)
    whole = _When(np.ones(len(late), dtype=bool), _late_ratio(late, step))
    if ranks == "all" or whole.ratio >= threshold("straggler_steps"):
        return whole
    within = np.zeros(len(late), dtype=bool)
    for one in persistence.late_ranks(steps) or ():
        for stretch in one.stretches if one.rank in ranks else ():
            within |= (steps.numbers >= stretch.first_step) & (steps.numbers <= stretch.last_step)
    if not within.any():
        return whole
    return max(whole, _When(within, _late_ratio(late[within], step[within])), key=lambda when: when.ratio)


def _late_ratio(late: Matrix, step: Matrix) -> float:
    """Return the ratio of the steps, shape (K,), in which ranks are late; of a loss that is in few of them, the ratio of these."""
    even = float((late >= late.mean() / 4).mean())
    return float(persistence.is_late(late, step).mean()) if even >= threshold("steady_steps") else even


def healthy(steps: Steps, losses: Losses, found: list[Finding], unmeasured: Collection[str]) -> list[Finding]:
    """Return the finding that all is well with the step: computing has at least its share, and only small losses were found.

    A device that was done with all as soon as its host had queued it may have waited for the host, and is not called healthy where
    no samples say whether kernels ran.

    Args:
        unmeasured: classes that were neither found nor ruled out.
    """
    if any(not one.small for one in found) or steps.waiting_unmeasured or (steps.device_keeps_up and "launch_bound" in unmeasured):
        return []
    series = Series(losses.step, int(steps.numbers[0]), int(steps.numbers[-1]), "step records")
    rest = {"comm_exposed": losses.transfer, "input_workers": losses.common["data_wait"]}
    slug, seconds = max(rest.items(), key=lambda item: float(item[1].mean()))
    return healthy_finding("compute_bound", losses.common["compute"], series, (slug, float(seconds.mean())))
