"""What the steps lose to their GPUs, from metric samples: throttled clocks here, poor use of the device in `utilisation`.

All of it is a share of the ledger's `compute`; the ledger stays as it is. A second is lost to one class only: first to throttling,
then to memory that is full, then to devices that wait for their host, are too large, or do work that uses them badly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify.gpu import utilisation as gpu_use
from tachoscope_analyzers.classify.gpu.throttle import BRAKE, HEAT, POWER, Throttled, throttled
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import culprits
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.gpu_by_rank import RankGpu, rank_gpus
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.gpu import GPU_CLOCK, GPU_POWER, GPU_TEMPERATURE, GPU_THROTTLED, GPU_THROTTLED_SECONDS, GPU_WORKLOAD
from tachoscope_core.report.report import Evidence

CLASSES = ("gpu_throttle", "launch_bound", "underfilled", "compute_inefficient", "memory_thrash")
"""What GPU samples can show."""

_SHARED_CERTAINTY = 0.5
_FLAGGED_CERTAINTY = 0.9
_NO_CLOCKS_CERTAINTY = 0.5
_POWER_CERTAINTY = 0.6
"""Of a power cap on all ranks: with kernels that wait for memory, less is lost than the clocks say."""

_ACTION = {
    POWER: "compare the power limit with that of the other devices (nvidia-smi -q -d POWER); raise it if the rack allows",
    HEAT: "check cooling: fans, air flow, neighbours, inlet temperature; move the rank to another device until it is fixed",
    BRAKE: "the power supply asks the device to slow down: have power supplies and the rack's power checked; drain the node",
}


@dataclass(frozen=True, slots=True)
class GpuVerdict:
    """Candidates of the classes above and of the late ranks; for each class that was not measured, the missing signal."""

    candidates: list[Candidate]
    missing: dict[str, str]


def classify(job: JobRecords, steps: Steps, losses: Losses, late: list[Candidate]) -> GpuVerdict:
    """Return what the steps lose to their GPUs.

    Args:
        late: what they lose to ranks that are late by computing. Where low clocks explain it, it is throttling.
    """
    if steps.device == "cpu":
        return GpuVerdict(late, {})
    gpus, missing = rank_gpus(job, steps)
    told = {gpu.rank: throttled(gpu) for gpu in gpus}
    slowed = {rank: one for rank, one in told.items() if isinstance(one, Throttled)}
    unknown = missing | {rank: one for rank, one in told.items() if isinstance(one, str)}
    lost = lost_to_low_clocks(steps, slowed)
    share = _shared_with(late, lost, losses)
    found = _throttling(steps, losses, share, slowed, gpus) if lost.any() else None
    left = losses.common["compute"] - (share.common if found else 0.0)
    use = gpu_use.candidates(steps, np.maximum(left, 0.0), gpus, slowed)
    candidates = [*([found] if found else []), *use.candidates]
    texts = {"gpu_throttle": _missing(unknown, steps)}
    texts |= {slug: _missing(missing | why, steps) for slug, why in use.missing.items()}
    left_late = [_without_name(one, steps, unknown) for one in (share.late if found else late)]
    return GpuVerdict(
        [*(_as_sure_as_sampled(one, job, steps, gpus) for one in candidates), *left_late],
        {slug: text for slug, text in texts.items() if text},
    )


def _without_name(late: Candidate, steps: Steps, unknown: Mapping[int, str]) -> Candidate:
    """Return a late rank as unknown if its clocks are unknown: it may be slow or throttled."""
    ranks = steps.ranks if late.ranks == "all" else late.ranks
    if late.slug != "compute_straggler" or unknown.keys().isdisjoint(ranks):
        return late
    return replace(late, slug="unknown", certainty=_NO_CLOCKS_CERTAINTY, alternative=("compute_straggler", 0.0))


def lost_to_low_clocks(steps: Steps, slowed: Mapping[int, Throttled]) -> Matrix:
    """Return by how much each step would be shorter had no clock been held down, shape (K,): only the latest rank counts.

    What all ranks are given alike of backward is the work of the rank that waited least: it shrinks as that one's does, but by no
    more than this rank is slower than the others where each rank's own work is known.
    """
    rows = np.arange(len(steps.numbers))
    own = sum(steps.own.values(), np.zeros_like(steps.wall))
    slow = _by_rank(steps, slowed)
    shared = np.minimum(steps.shared, steps.own["compute"])
    mine = steps.own["compute"] - shared
    first = steps.waiting.argmin(axis=1)
    slower = 1.0 - _of_others(mine * (1.0 - slow), first) / np.maximum(mine[rows, first], 1e-12)
    shrinks = np.minimum(slow[rows, first], np.maximum(slower, 0.0))
    saved = mine * slow + shared * shrinks[:, None]
    return np.asarray(own.max(axis=1) - (own - saved).max(axis=1))


def _of_others(seconds: Matrix, column: npt.NDArray[np.intp]) -> Matrix:
    """Return the typical seconds of the other ranks, shape (K,); zero with a single rank."""
    ranks = seconds.shape[1]
    if ranks <= 2:
        return np.asarray(seconds.sum(axis=1) - seconds[np.arange(len(seconds)), column])
    return np.asarray(np.partition(seconds, (ranks - 1) // 2, axis=1)[:, (ranks - 1) // 2])


def _by_rank(steps: Steps, slowed: Mapping[int, Throttled]) -> Matrix:
    slow = np.zeros_like(steps.wall)
    for rank, one in slowed.items():
        slow[:, steps.ranks.index(rank)] = one.slow
    return slow


@dataclass(frozen=True, slots=True)
class _Share:
    """What low clocks and the late ranks each answer for.

    Attributes:
        lost: seconds of each step that low clocks answer for, shape (K,); common: the part that is not an excess of a late rank.
        late: candidates of the late ranks that are left. straggler: the one that low clocks explain.
        evidence: how much of it they do. margin: by how much of the step they explain more of it than they leave.
    """

    lost: Matrix
    common: Matrix
    late: list[Candidate]
    straggler: Candidate | None = None
    evidence: tuple[Evidence, ...] = ()
    margin: float = 0.0


def _shared_with(late: list[Candidate], lost: Matrix, losses: Losses) -> _Share:
    """Say what a late rank is: throttled, with all of its excess, if that explains `culprit_coverage` of it; else a straggler that
    keeps all of it, with the explained part as evidence.
    """
    common = np.maximum(lost - losses.excess["compute"].sum(axis=1), 0.0)
    if not late or not lost.any():
        return _Share(lost, common, late)
    first, *others = late
    part = np.minimum(lost, first.seconds)
    explained = float(part.sum() / first.seconds.sum())
    least = threshold("culprit_coverage")
    row = compared(
        "part of the late rank's excess that low clocks explain", explained, least, "ratio", "metric samples and step records"
    )
    if explained < least:
        return _Share(lost - part, lost - part, [replace(first, evidence=[*first.evidence, row]), *others])
    margin = float((2 * part - first.seconds).mean()) / losses.mean_step
    return _Share(np.maximum(lost, first.seconds), common, others, first, (row,), margin)


def _throttling(
    steps: Steps, losses: Losses, share: _Share, slowed: Mapping[int, Throttled], gpus: list[RankGpu]
) -> Candidate | None:
    """Return throttling as a candidate. A power cap on all devices is normal at full load, unless it costs much."""
    who = culprits(steps.own["compute"] * _by_rank(steps, slowed), steps.ranks).ranks
    if share.straggler is not None and share.straggler.ranks != "all" and set(share.straggler.ranks) <= slowed.keys():
        who = share.straggler.ranks
    ranks = [rank for rank in (steps.ranks if who == "all" else who) if rank in slowed]
    cause = _main_cause([slowed[rank] for rank in ranks])
    alternative = ("compute_straggler", share.margin) if share.straggler else None
    certainty = _FLAGGED_CERTAINTY if any(cause in slowed[rank].flagged for rank in ranks) else 1.0
    if cause == POWER and who == "all" and share.straggler is None:
        if share.lost.sum() < threshold("power_cap_share") * losses.step.sum():
            return None
        certainty, alternative = certainty * _POWER_CERTAINTY, ("compute_bound", 0.0)
    evidence = [*_evidence(ranks, slowed, gpus), *share.evidence]
    return Candidate("gpu_throttle", share.lost, who, evidence, certainty, alternative, action=_ACTION.get(cause, ""))


def _main_cause(slowed: Sequence[Throttled]) -> str:
    causes = slowed[0].held_seconds.keys()
    return max(causes, key=lambda cause: sum(one.held_seconds.get(cause, 0.0) for one in slowed))


def _evidence(ranks: list[int], slowed: Mapping[int, Throttled], gpus: list[RankGpu]) -> list[Evidence]:
    named = [slowed[rank] for rank in ranks]
    others = [one.clock_ratio for rank, one in slowed.items() if rank not in ranks]
    causes = {cause: float(np.mean([one.held_seconds.get(cause, 0.0) for one in named])) for cause in named[0].held_seconds}
    rows = [
        measured(
            f"clocks held down by {cause}",
            seconds,
            "seconds within the steps, mean of the named ranks",
            GPU_THROTTLED.name if any(cause in one.flagged for one in named) else GPU_THROTTLED_SECONDS.name,
        )
        for cause, seconds in causes.items()
        if seconds > 0
    ]
    rows.append(
        Evidence(
            signal="SM clock over its maximum while busy",
            value=float(np.mean([one.clock_ratio for one in named])),
            threshold=float(np.mean(others)) if others else 1.0,
            comparison="<",
            unit="ratio",
            source=GPU_CLOCK.name + ("; threshold: the other ranks" if others else ""),
        )
    )
    mine = [gpu for gpu in gpus if gpu.rank in ranks]
    heat = [gpu.values(GPU_TEMPERATURE, "gpu") for gpu in mine]
    power = [
        gpu.mean(gpu.between(gpu.values(GPU_POWER, "usage") / gpu.values(GPU_POWER, "limit")))
        for gpu in mine
        if not gpu.samples.mig
    ]
    known = [float(np.nanmax(one)) for one in heat if not np.isnan(one).all()]
    if known:
        rows.append(measured("hottest that the device was", max(known), "°C", GPU_TEMPERATURE.name))
    if power and not np.isnan(power).all():
        rows.append(measured("power over its limit", np.nanmean(power), "ratio", GPU_POWER.name))
    return rows


def _as_sure_as_sampled(candidate: Candidate, job: JobRecords, steps: Steps, gpus: list[RankGpu]) -> Candidate:
    """Return the candidate with the reliability of its samples: their number, ranks, and other users of the device."""
    ranks = set(steps.ranks if candidate.ranks == "all" else candidate.ranks)
    mine = [gpu for gpu in gpus if gpu.rank in ranks]
    rows = [
        Evidence(
            signal="metric samples of the device within the steps",
            value=float(min(gpu.samples_in_steps for gpu in mine)),
            threshold=threshold("gpu_minimum_samples"),
            comparison=">=",
            unit="samples",
            source=f"{len(mine)} of the {len(ranks)} ranks" if len(mine) < len(ranks) else "all named ranks",
        )
    ]
    others = sorted(set().union(*(gpu.samples.jobs for gpu in mine)) - {job.job})
    if others:
        names = ", ".join(others[:4]) + (", ..." if len(others) > 4 else "")
        rows.append(
            Evidence(
                signal=f"other jobs on the device ({names}), which is included in its samples",
                value=float(len(others)),
                threshold=0.0,
                comparison=">",
                unit="jobs",
                source=GPU_WORKLOAD.name,
            )
        )
    certainty = candidate.certainty * (_SHARED_CERTAINTY if others else 1.0)
    return replace(candidate, certainty=certainty, evidence=[*candidate.evidence, *rows])


def _missing(why: Mapping[int, str], steps: Steps) -> str:
    """Return missing signals as text, each once, with its ranks unless all lack it."""
    ranks: dict[str, list[int]] = {}
    for rank, signal in sorted(why.items()):
        ranks.setdefault(signal, []).append(rank)
    if len(why) == len(steps.ranks) and len(ranks) == 1:
        return next(iter(ranks))
    return "; ".join(
        f"{signal} (rank {', '.join(map(str, some[:8]))}{', ...' if len(some) > 8 else ''})" for signal, some in ranks.items()
    )
