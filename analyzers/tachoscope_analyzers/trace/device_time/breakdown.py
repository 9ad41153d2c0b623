"""How each device spent its time: computing, communicating, copying, idle, with what ran at the same time told apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.device_time.idle import device_window
from tachoscope_analyzers.trace.device_time.kernels import percent
from tachoscope_analyzers.trace.events.intervals import Intervals, covered, difference, intersection, union
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, MEMCPY, MEMSET
from tachoscope_analyzers.trace.events.steps import Steps
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

TIMES = [
    "span_ns",
    "busy_ns",
    "idle_ns",
    "compute_ns",
    "communication_ns",
    "copies_ns",
    "overlap_ns",
    "exposed_communication_ns",
    "exposed_copies_ns",
]
_SHARES = ("busy", "idle", "compute", "exposed_communication", "exposed_copies")


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Sets of time in which a device was busy, computed, communicated, copied (copies and fills), and did the last two alone."""

    busy: Intervals
    compute: Intervals
    communication: Intervals
    copies: Intervals
    exposed_communication: Intervals
    exposed_copies: Intervals


def device_time(view: TraceView, device: int) -> DeviceTime:
    """Return the sets of time of a device; compute, exposed communication and exposed copies make up its busy time."""
    work = view.work
    kind = view.classes
    mine = work.device == device

    def covering(chosen: npt.NDArray[np.bool_]) -> Intervals:
        return union(work.start[mine & chosen], work.end[mine & chosen])

    communicating = kind == COMMUNICATION
    copying = (kind == MEMCPY) | (kind == MEMSET)
    busy, compute = covering(np.ones(len(work), dtype=bool)), covering(~communicating & ~copying)
    communication = covering(communicating)
    exposed = difference(communication, compute)
    kernels = covering(~copying)
    return DeviceTime(busy, compute, communication, covering(copying), exposed, difference(busy, kernels))


def breakdown(view: TraceView) -> pd.DataFrame:
    """Return how each device spent its window, from the start of its first event to the end of its last, whatever launched them.

    Invariant: compute_ns + exposed_communication_ns + exposed_copies_ns + idle_ns = span_ns, to the nanosecond.
    Columns: device, start_ns, span_ns, busy_ns, idle_ns, compute_ns, communication_ns, copies_ns (copies and fills), overlap_ns (of
    communication and compute), exposed_communication_ns (without compute), exposed_copies_ns (without any kernel), shares of the
    span as *_percent, and overlap_percent, the share of the communication under which the device computed.
    """
    frames = []
    for device in view.devices:
        start, end = device_window(view, device)
        frame = _over(device_time(view, device), np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))
        frame.insert(0, "device", device)
        frame.insert(1, "start_ns", start)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["device", "start_ns", *TIMES])


def by_step(view: TraceView) -> pd.DataFrame:
    """Return the same for each step of each device (`View.device_steps`), with its number in the column step.

    Work before the first step's mark is in no step, so the steps' sums may be below those of `breakdown`.
    """
    steps: Steps = view.device_steps
    frames = []
    for device in view.devices:
        frame = _over(device_time(view, device), steps.start, steps.end)
        frame.insert(0, "device", device)
        frame.insert(1, "step", steps.number)
        frame.insert(2, "start_ns", steps.start)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["device", "step", "start_ns", *TIMES])


def _over(time: DeviceTime, starts: Nanoseconds, ends: Nanoseconds) -> pd.DataFrame:
    busy = covered(time.busy, starts, ends)
    frame = pd.DataFrame(
        {
            "span_ns": ends - starts,
            "busy_ns": busy,
            "idle_ns": ends - starts - busy,
            "compute_ns": covered(time.compute, starts, ends),
            "communication_ns": covered(time.communication, starts, ends),
            "copies_ns": covered(time.copies, starts, ends),
            "overlap_ns": covered(intersection(time.communication, time.compute), starts, ends),
            "exposed_communication_ns": covered(time.exposed_communication, starts, ends),
            "exposed_copies_ns": covered(time.exposed_copies, starts, ends),
        },
        columns=TIMES,
    )
    parts = frame[["compute_ns", "exposed_communication_ns", "exposed_copies_ns", "idle_ns"]].sum(axis=1)
    assert (parts == frame["span_ns"]).all(), "the parts of a device's time must sum to its span"
    for name in _SHARES:
        frame[f"{name}_percent"] = [percent(part, whole) for part, whole in zip(frame[f"{name}_ns"], frame["span_ns"], strict=True)]
    pairs = zip(frame["overlap_ns"], frame["communication_ns"], strict=True)
    frame["overlap_percent"] = [percent(part, whole) for part, whole in pairs]
    return frame
