"""Device memory that is full, and what metrics show that it costs.

Full memory alone is no fault: PyTorch's allocator keeps what it freed. It costs when pages or offloaded state move over PCIe in
every step, or when kernels run for less of the time than while it was not full. Retries of the allocator themselves are no metric.
https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify.gpu.waste import Waste, row
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.records.gpu_by_rank import RankGpu
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.gpu import GPU_LINK_RATE, GPU_MEMORY_BYTES, GPU_PCIE_BYTES, GPU_PCIE_LINK, GPU_UTILIZATION
from tachoscope_core.report.report import Evidence

Mask = npt.NDArray[np.bool_]
"""Of spans between samples."""

_FASTEST_LINK = {"generation": 5.0, "width": 16.0}
"""Assumed where they are not told: the faster the link, the less of it is busy."""

_ALLOCATOR = "allocator statistics of the device (its memory is full, which a caching allocator also does when all is well)"


def thrashing(gpu: RankGpu, *, alone: bool) -> Waste | str:
    """Return what full memory costs a rank, or the signal that is missing.

    Args:
        alone: whether the job has one rank; others exchange gradients, and without NVLink that goes over PCIe as well.
    """
    total = gpu.values(GPU_MEMORY_BYTES, "total")
    ratios = np.divide(gpu.values(GPU_MEMORY_BYTES, "used"), total, out=np.full(len(total), np.nan), where=total > 0)
    used = gpu.between(ratios)
    if gpu.coverage(used) < threshold("gpu_covered_ratio"):
        return "device memory of its GPU, used and total"
    full = used >= threshold("memory_full_ratio")
    if not full.any():
        return Waste(0.0)
    memory = row(
        "device memory used over total, while it is full",
        float(used[full].mean()),
        "memory_full_ratio",
        ">=",
        GPU_MEMORY_BYTES.name,
    )
    return _moving(gpu, full, memory, alone=alone) or _idling(gpu, full, memory) or _ALLOCATOR


def _moving(gpu: RankGpu, full: Mask, memory: Evidence, *, alone: bool) -> Waste | None:
    """Return the time of transfers while memory is full, at the link's full rate: a lower bound, since paging is slower."""
    if gpu.samples.mig:
        return None  # the link is the whole GPU's
    received, sent = (_bytes_per_second(gpu, direction) for direction in ("receive", "transmit"))
    both = received + sent
    moving = full & (both >= threshold("memory_traffic_bytes_per_second"))
    if not moving.any():
        return None
    link = _link_bytes_per_second(gpu)
    busy = np.where(moving, np.minimum(np.fmax(received, sent) / link, 1.0), np.where(np.isnan(both), np.nan, 0.0))
    evidence = (
        memory,
        row(
            "bytes over PCIe, both directions, while memory is full",
            float(both[moving].mean()),
            "memory_traffic_bytes_per_second",
            ">=",
            GPU_PCIE_BYTES.name + ("" if alone else "; gradients over PCIe look the same"),
            "bytes per second",
        ),
        measured("rate of the PCIe link, one direction", link, "bytes per second", GPU_PCIE_LINK.name),
    )
    by_step = np.nan_to_num(gpu.by_step(busy))
    return Waste(by_step, evidence, 0.6 if alone else 0.4, "h2d_copy" if alone else "comm_exposed", _MOVING_ACTION)


_MOVING_ACTION = (
    "keep state on the device: a smaller batch, activation checkpointing, optimizer state in shards (FSDP, ZeRO) "
    "instead of unified memory or offloading to the host"
)


def _idling(gpu: RankGpu, full: Mask, memory: Evidence) -> Waste | None:
    """Return the kernel time missing while memory is full, compared with other spans."""
    running = gpu.between(gpu.values(GPU_UTILIZATION))
    with_, without = (running[spans & ~np.isnan(running)] for spans in (full, ~full & gpu.known))
    least = threshold("gpu_minimum_samples")
    if len(with_) < least or len(without) < least or not without.mean():
        return None
    fall = 1.0 - float(with_.mean() / without.mean())
    if fall < threshold("utilization_fall_ratio"):
        return None
    evidence = (memory, row("utilisation lost while memory is full", fall, "utilization_fall_ratio", ">=", GPU_UTILIZATION.name))
    by_step = fall * np.nan_to_num(gpu.by_step(np.where(gpu.known, full.astype(float), np.nan)))
    return Waste(by_step, evidence, 0.5, "launch_bound")


def _bytes_per_second(gpu: RankGpu, direction: str) -> Matrix:
    """Return bytes a second over PCIe, from the driver's counter or its sampled rate."""
    counted = gpu.rate(gpu.values(GPU_PCIE_BYTES, direction))
    return counted if not np.isnan(counted).all() else gpu.between(gpu.values(GPU_LINK_RATE, "pcie", direction))


def _link_bytes_per_second(gpu: RankGpu) -> float:
    told = {what: gpu.values(GPU_PCIE_LINK, what, "current") for what in _FASTEST_LINK}
    link = _FASTEST_LINK | {what: float(np.nanmax(values)) for what, values in told.items() if not np.isnan(values).all()}
    return float(threshold("pcie_gen3_lane_bytes_per_second") * 2.0 ** (link["generation"] - 3.0) * link["width"])
