"""The period of a device's work: a kernel that marks each repetition of one and the same sequence."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import distinct
from tachoscope_analyzers.trace.events.launch_links import DeviceWork
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds
from tachoscope_analyzers.trace.reading.trace import Trace

_LEAST_REPETITIONS = 3
_LEAST_KERNELS = 4
"""Kernels in a period: shorter sequences repeat within a layer too."""
_LEAST_EQUAL_RATIO = 0.8
_LEAST_COVERED_RATIO = 0.6
_MOST_UNEQUAL = 2
_MOST_CANDIDATES = 64


def marks_in_device_work(trace: Trace, work: DeviceWork) -> Nanoseconds:
    """Return the starts of the repetitions of a kernel sequence, in ns, ascending; empty where none repeats.

    The mark is the rarest kernel between whose occurrences the same kernels run each time (as a multiset, in four of five
    repetitions), so that the layers of a step are not taken for steps.
    """
    kernels = np.flatnonzero(work.kind == Kind.KERNEL)
    if len(kernels) < _LEAST_REPETITIONS * _LEAST_KERNELS:
        return np.zeros(0, dtype=np.int64)
    devices, counts = np.unique(work.device[kernels], return_counts=True)
    kernels = kernels[work.device[kernels] == devices[counts.argmax()]]
    kernels = kernels[np.argsort(work.start[kernels], kind="stable")]
    names, place, counts = np.unique(trace.events["name"][work.row[kernels]], return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    signature = _running_signature(place, len(names))
    candidates = np.flatnonzero((counts >= _LEAST_REPETITIONS) & (counts * _LEAST_KERNELS <= len(kernels)))
    for code in candidates[np.argsort(counts[candidates], kind="stable")][:_MOST_CANDIDATES]:
        marks = np.flatnonzero(place == code)
        starts = distinct(work.start[kernels[marks]])
        if (
            _repeats(signature, marks, len(kernels))
            and _launched_apart(work.launch[kernels[marks]])
            and _regular(starts, int(work.end.max() - work.start.min()))
        ):
            return starts
    return np.zeros(0, dtype=np.int64)


def _running_signature(place: npt.NDArray[np.int64], names: int) -> npt.NDArray[np.uint64]:
    """Return the running sum of a random number per name: equal differences are equal multisets, almost surely."""
    # SplitMix64: numpy.random takes 10 ms to import.
    weights = np.arange(1, names + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        weights = (weights ^ (weights >> np.uint64(shift))) * np.uint64(factor)
    weights ^= weights >> np.uint64(31)
    return np.append(np.uint64(0), np.cumsum(weights[place], dtype=np.uint64))


def _repeats(signature: npt.NDArray[np.uint64], marks: npt.NDArray[np.int64], kernels: int) -> bool:
    between = np.diff(signature[marks])
    if (marks[-1] - marks[0]) < _LEAST_COVERED_RATIO * kernels or (marks[-1] - marks[0]) < _LEAST_KERNELS * len(between):
        return False
    _, counts = np.unique(between, return_counts=True)
    return int(counts.max()) >= max(_LEAST_REPETITIONS - 1, _LEAST_EQUAL_RATIO * len(between))


def _launched_apart(launches: npt.NDArray[np.int64]) -> bool:
    """Return whether each repetition has its own launch call; repeats within one CUDA graph are layers."""
    known = launches[launches >= 0]
    return len(distinct(known)) == len(known)


def _regular(starts: Nanoseconds, window_ns: int) -> bool:
    """Return whether the repetitions fill the window and have similar lengths."""
    lengths = np.diff(starts)
    if not len(lengths) or int(lengths.sum()) < _LEAST_COVERED_RATIO * window_ns:
        return False
    median = np.median(lengths)
    alike = (lengths * _MOST_UNEQUAL >= median) & (lengths <= _MOST_UNEQUAL * median)
    return float(alike.mean()) >= _LEAST_EQUAL_RATIO
