"""How well the devices are used while they compute, from metric samples: waiting for their host, too large, wrong precision,
memory that is full.

Samples cover the whole step, computing and waiting alike. What a unit did while the rank computed is at most its activity over the
share of computing; this most is judged, so that a job which waits is not called a device that is too large. The seconds are what a
fix could save at most; only a profiler trace or a run with another batch size proves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tachoscope_analyzers.advice import batch
from tachoscope_analyzers.classify.gpu.memory import thrashing
from tachoscope_analyzers.classify.gpu.throttle import Throttled
from tachoscope_analyzers.classify.gpu.waste import Waste, most, row
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.gpu_by_rank import RankGpu
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_MEMORY_BYTES, GPU_POWER, GPU_UTILIZATION
from tachoscope_core.report.report import Evidence

_NOT_THROTTLED = 0.05
"""Power of a device whose clocks are held down for more of its computing says nothing about its work."""

_NEGLIGIBLE = 1e-6
_IDLES = "kernels that run for most of the computing time (this device idles between them; see launch_bound)"
_GPM = "of its GPU (GPM, on Hopper and later, or a dcgm-exporter with profiling fields)"


@dataclass(frozen=True, slots=True)
class UtilisationVerdict:
    """Candidates, and for each class and rank that was not measured the missing signal."""

    candidates: list[Candidate] = field(default_factory=list)
    missing: dict[str, dict[int, str]] = field(default_factory=dict)


Judge = Callable[[RankGpu, float, float], Waste | str]
"""Takes a rank's GPU, its share of computing and the part of it lost to low clocks; returns the waste, or the missing signal."""


def candidates(steps: Steps, left: Matrix, gpus: list[RankGpu], slowed: Mapping[int, Throttled]) -> UtilisationVerdict:
    """Return what the steps lose by using their devices badly.

    Args:
        left: computing that the ranks have in common and that is lost to nothing else, shape (K,).
    """
    use = UtilisationVerdict()
    latest = sum(steps.own.values(), np.zeros_like(steps.wall)).argmax(axis=1)
    judges: tuple[tuple[str, Judge], ...] = (
        ("memory_thrash", lambda gpu, *_: thrashing(gpu, alone=steps.world_size == 1)),
        ("launch_bound", launching),
        ("underfilled", underfilled),
        ("compute_inefficient", inefficient),
    )
    idle_for_memory = np.zeros_like(left)
    whole = left
    for slug, judge in judges:
        ratio, found = np.zeros_like(steps.wall), {}
        missing = use.missing.setdefault(slug, {})
        for gpu in gpus:
            share = float(steps.own["compute"][:, gpu.column].sum() / max(steps.wall[:, gpu.column].sum(), 1e-9))
            slow = slowed.get(gpu.rank)
            waste = judge(gpu, max(share, 1e-9), float(slow.slow.mean()) if slow else 0.0)
            if isinstance(waste, str):
                missing[gpu.rank] = waste
            elif np.any(waste.ratio):
                ratio[:, gpu.column], found[gpu.rank] = waste.ratio, waste
        of_latest = np.clip(ratio[np.arange(len(latest)), latest], 0.0, 1.0)
        lost = left * of_latest
        if slug == "memory_thrash":
            idle_for_memory = lost
        elif slug == "launch_bound":  # of the same idle time
            lost = np.clip(whole * of_latest - idle_for_memory, 0.0, left)
        if lost.mean() > _NEGLIGIBLE * whole.mean():
            use.candidates.append(_candidate(slug, lost, found, steps))
            left = left - lost
    return use


def _candidate(slug: str, lost: Matrix, found: Mapping[int, Waste], steps: Steps) -> Candidate:
    worst = max(found.values(), key=lambda waste: float(np.mean(waste.ratio)))
    ranks: Ranks = "all" if len(found) == len(steps.ranks) else sorted(found)
    alternative = (worst.alternative, 0.0) if worst.alternative else None
    return Candidate(slug, lost, ranks, list(worst.evidence), worst.certainty, alternative, action=worst.action)


def launching(gpu: RankGpu, share: float, slow: float) -> Waste | str:  # noqa: ARG001 - all judges take the same
    """Return how long a device ran no kernel while its rank computed: it had done all that the host had queued.

    GPM counts exactly the time in which kernels ran; utilisation, where there is no GPM, is sampled by the driver.
    """
    source, certainty = f"{GPU_ACTIVE.name}: graphics", 0.8
    samples = gpu.values(GPU_ACTIVE, "graphics")
    if np.isnan(most(gpu, share, GPU_ACTIVE, "graphics")) and not gpu.samples.mig:
        source, certainty, samples = GPU_UTILIZATION.name, 0.6, gpu.values(GPU_UTILIZATION)
    spans = gpu.between(samples)
    if gpu.coverage(spans) < threshold("gpu_covered_ratio"):
        return "utilisation of its GPU"
    by_step = np.clip(gpu.by_step(spans) / share, 0.0, 1.0)
    idle = np.where(by_step < threshold("gpu_busy_ratio"), 1.0 - by_step, 0.0)  # NaN where not sampled: nothing is claimed
    if np.median(by_step[~np.isnan(by_step)]) >= threshold("gpu_busy_ratio"):
        return Waste(0.0)
    busy = float(np.clip(gpu.mean(spans) / share, 0.0, 1.0))
    rows = (row("kernels running while computing, at most", busy, "gpu_busy_ratio", "<", source),)
    return Waste(idle, rows, certainty, "host_sync")


def underfilled(gpu: RankGpu, share: float, slow: float) -> Waste | str:
    """Return what a device leaves unused that runs kernels all the time it computes, but on few of its multiprocessors.

    Without SM activity, power far below its limit stands for it; power that is not says nothing.
    """
    busy = most(gpu, share, GPU_UTILIZATION) if not gpu.samples.mig else most(gpu, share, GPU_ACTIVE, "graphics")
    if np.isnan(busy):
        return "utilisation of its GPU"
    active = most(gpu, share, GPU_ACTIVE, "sm")
    if np.isnan(active):
        return _by_power(gpu, share, slow, busy)
    if active >= threshold("sm_active_low"):
        return Waste(0.0)
    if busy < threshold("gpu_busy_ratio"):
        return _IDLES
    occupancy = most(gpu, share, GPU_ACTIVE, "sm_occupancy")
    rows: tuple[Evidence, ...] = (
        row("multiprocessors active while computing, at most", active, "sm_active_low", "<", f"{GPU_ACTIVE.name}: sm"),
        row("kernels running while computing", busy, "gpu_busy_ratio", ">=", GPU_UTILIZATION.name),
    )
    if not np.isnan(occupancy):
        rows += (measured("warps of those that fit", occupancy, "ratio", f"{GPU_ACTIVE.name}: sm_occupancy"),)
    action = batch.for_activity(active, most_memory(gpu, "used"), most_memory(gpu, "total"))
    return Waste(1.0 - active / threshold("sm_active_good"), rows, 0.8, "launch_bound", action)


def most_memory(gpu: RankGpu, what: str) -> float | None:
    """Return the most device memory, in bytes, that was told within the steps; None if none was."""
    within = gpu.values(GPU_MEMORY_BYTES, what)[(gpu.times >= gpu.starts[0]) & (gpu.times <= gpu.ends[-1])]
    return None if np.isnan(within).all() else float(np.nanmax(within))


def _by_power(gpu: RankGpu, share: float, slow: float, busy: float) -> Waste | str:
    power = gpu.mean(gpu.between(gpu.values(GPU_POWER, "usage") / gpu.values(GPU_POWER, "limit"))) / share
    if gpu.samples.mig or busy < threshold("gpu_busy_ratio") or slow > _NOT_THROTTLED or not power < threshold("power_low_ratio"):
        return f"SM activity {_GPM}"
    rows = (
        row(
            "power over its limit while computing, at most",
            power,
            "power_low_ratio",
            "<",
            f"{GPU_POWER.name}, because SM activity was not measured",
        ),
        row("kernels running while computing", busy, "gpu_busy_ratio", ">=", GPU_UTILIZATION.name),
    )
    return Waste(1.0 - power / threshold("sm_active_good"), rows, 0.4, "compute_inefficient")


def inefficient(gpu: RankGpu, share: float, slow: float) -> Waste | str:  # noqa: ARG001 - all judges take the same
    """Return what a device would save that is full of float32 arithmetic while its tensor cores idle.

    That the arithmetic is matrix products, which tensor cores could do, is likely and not seen. Work that is limited by memory
    bandwidth is not judged: how much of it fusing would save, no metric tells.
    """
    active, tensor, fp32 = (most(gpu, share, GPU_ACTIVE, unit) for unit in ("sm", "tensor", "fp32"))
    if np.isnan([active, tensor, fp32]).any():
        return f"activity of SMs, tensor cores and the float32 pipe {_GPM}"
    if active < threshold("sm_active_good") or tensor >= threshold("tensor_idle_ratio") or fp32 < threshold("fp32_busy_ratio"):
        return Waste(0.0)
    rows = (
        row("multiprocessors active while computing, at most", active, "sm_active_good", ">=", f"{GPU_ACTIVE.name}: sm"),
        row("tensor cores active while computing, at most", tensor, "tensor_idle_ratio", "<", f"{GPU_ACTIVE.name}: tensor"),
        row(
            "float32 pipe active while computing, at most",
            fp32,
            "fp32_busy_ratio",
            ">=",
            f"{GPU_ACTIVE.name}: fp32; whether it is matrix products, only a profiler trace tells",
        ),
    )
    action = 'torch.set_float32_matmul_precision("high") or bf16 autocast, unless the model needs float32; a trace says which'
    return Waste(fp32 * (1.0 - 1.0 / threshold("tf32_gain")), rows, 0.6, "compute_bound", action)
