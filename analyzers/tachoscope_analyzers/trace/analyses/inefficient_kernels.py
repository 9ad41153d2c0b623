"""Kernels that keep the device busy without using it: too few blocks, or float32 products beside idle tensor cores."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, precision_of, tensor_cores_of
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_core.report.report import Evidence

BLOCKS_SIGNAL = "blocks per multiprocessor, weighted by time"
"""Evidence of kernels that are too small for the device."""
_SOURCE = "profiler trace"
_NAMES_SHOWN = 2
_NAME_LENGTH = 80
_TF32_GAIN = 4.0
"""Half of the published ratio of TF32 to float32 on an A100 (156 and 19.5 TFLOP/s): what real products reach.
https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"""
_FIRST_WITH_TF32 = 8


class KernelWaste(msgspec.Struct, frozen=True):
    """Seconds of each step, shape (K,), that the kernels cost beyond what they need; an upper bound, and its evidence."""

    seconds: Matrix
    evidence: tuple[Evidence, ...]


def underfilled(view: TraceView, device: int, starts: Rows, ends: Rows) -> KernelWaste | str:
    """Return what kernels with less than one block per multiprocessor leave unused: their time times the empty share of the device.

    Where the trace tells no blocks, it is the missing signal.
    """
    work = view.work
    mine = _kernels(view, device)
    blocks = np.where(work.place >= 0, view.trace.device["blocks_per_sm"][work.place], -1.0) if len(work) else np.zeros(0)
    mine &= blocks >= 0
    if not mine.any():
        return "blocks per multiprocessor of the kernels"
    lost = np.where(mine, (work.end - work.start) * np.clip(1.0 - blocks, 0.0, 1.0), 0.0)
    mean = float(np.average(blocks[mine], weights=np.maximum((work.end - work.start)[mine], 1)))
    evidence = Evidence(
        signal=BLOCKS_SIGNAL,
        value=mean,
        threshold=1.0,
        comparison="<",
        unit="blocks",
        source=f"{_SOURCE}; the loss is an upper bound, since one block may fill a multiprocessor",
    )
    return KernelWaste(_by_step(view, lost, starts, ends), (evidence, *_names(view, lost)))


def inefficient(view: TraceView, device: int, starts: Rows, ends: Rows) -> KernelWaste | str:
    """Return what float32 matrix products would save on tensor cores (TF32).

    Where the device is not known to have TF32, or no name of a matrix kernel tells its precision, it is the missing signal.
    """
    trace, work = view.trace, view.work
    known = next((one for one in trace.meta.devices if one.id == device), None)
    major = int((known.compute_capability.partition(".")[0] if known else "") or 0)
    # AMD's profiler fills the same field with the version of its architecture.
    if known is None or major < _FIRST_WITH_TF32 or known.name.startswith("AMD"):
        return "a device that is known to have TF32"
    codes, place = trace.distinct_names(work.row)
    names = trace.strings[codes]
    is_told = np.array([tensor_cores_of(name) in ("yes", "no") for name in names], dtype=bool)
    is_poor = np.array([tensor_cores_of(name) == "no" and precision_of(name) in ("fp32", "float32") for name in names], dtype=bool)
    mine = _kernels(view, device)
    if not (mine & is_told[place]).any():
        return "matrix kernels with their precision in the name"
    poor = mine & is_poor[place]
    lost = np.where(poor, (work.end - work.start) * (1.0 - 1.0 / _TF32_GAIN), 0.0)
    total = (work.end - work.start)[mine].sum()
    evidence = measured(
        "float32 products without tensor cores, share of the kernels' time",
        (work.end - work.start)[poor].sum() / max(total, 1),
        "ratio",
        f"kernel names; with TF32 they take about 1/{_TF32_GAIN:.0f}",
    )
    return KernelWaste(_by_step(view, lost, starts, ends), (evidence, *_names(view, lost)))


def _kernels(view: TraceView, device: int) -> npt.NDArray[np.bool_]:
    work = view.work
    kernels = (work.device == device) & (work.kind == Kind.KERNEL) & ~view.classes.is_any(COMMUNICATION)
    return np.asarray(kernels, dtype=bool)


def _by_step(view: TraceView, lost: npt.NDArray[np.float64], starts: Rows, ends: Rows) -> Matrix:
    """Return the sum over the kernels that start in each step, in seconds."""
    work = view.work
    step = np.searchsorted(starts, work.start, side="right") - 1
    inside = (step >= 0) & (work.start < ends[np.maximum(step, 0)])
    return np.bincount(step[inside], weights=lost[inside], minlength=len(starts)) / 1e9


def _names(view: TraceView, lost: npt.NDArray[np.float64]) -> tuple[Evidence, ...]:
    codes, place = view.trace.distinct_names(view.work.row)
    if not len(codes) or not lost.any():
        return ()
    sums = np.bincount(place, weights=lost)
    order = np.argsort(sums)[::-1][:_NAMES_SHOWN]
    return tuple(
        measured(f"kernel {view.trace.strings[codes[at]][:_NAME_LENGTH]}", sums[at] / sums.sum(), "ratio", _SOURCE)
        for at in order.tolist()
        if sums[at] > 0
    )
