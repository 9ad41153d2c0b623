"""How each device spent its time: computing, communicating, copying, idle, with what ran at the same time told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.ratio import percent
from tachoscope_analyzers.trace.device_time.idle import device_window
from tachoscope_analyzers.trace.events.intervals import Intervals, covered, difference, intersection, union
from tachoscope_analyzers.trace.events.kernel_names import COMMUNICATION, MEMCPY, MEMSET
from tachoscope_analyzers.trace.events.steps import Steps
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

if TYPE_CHECKING:
    import pandas as pd

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


class DeviceTime(msgspec.Struct, frozen=True):
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
    mine = work.device == device

    def covering(chosen: npt.NDArray[np.bool_]) -> Intervals:
        return union(work.start[mine & chosen], work.end[mine & chosen])

    communicating, copying = view.classes.is_any(COMMUNICATION), view.classes.is_any(MEMCPY, MEMSET)
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
    parts = []
    for device in view.devices:
        start, _ = device_window(view, device)
        parts.append({"device": [device], "start_ns": [start], **_with_shares(times_of(view, device))})
    return _frame(parts, ["device", "start_ns", *TIMES])


def times_of(view: TraceView, device: int) -> dict[str, Nanoseconds]:
    """Return how a device spent its window: `TIMES`, each of shape (1,)."""
    start, end = device_window(view, device)
    return _over(device_time(view, device), np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))


def by_step(view: TraceView) -> pd.DataFrame:
    """Return the same for each step of each device (`View.device_steps`), with its number in the column step.

    Work before the first step's mark is in no step, so the steps' sums may be below those of `breakdown`.
    """
    steps: Steps = view.device_steps
    parts = []
    for device in view.devices:
        times = _with_shares(_over(device_time(view, device), steps.start, steps.end))
        parts.append({"device": np.full(len(steps), device), "step": steps.number, "start_ns": steps.start, **times})
    return _frame(parts, ["device", "step", "start_ns", *TIMES])


def _frame(parts: list[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    import pandas as pd  # a third of a second, which a report does not need

    return pd.concat([pd.DataFrame(part) for part in parts], ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _over(time: DeviceTime, starts: Nanoseconds, ends: Nanoseconds) -> dict[str, Nanoseconds]:
    busy = covered(time.busy, starts, ends)
    times = {
        "span_ns": ends - starts,
        "busy_ns": busy,
        "idle_ns": ends - starts - busy,
        "compute_ns": covered(time.compute, starts, ends),
        "communication_ns": covered(time.communication, starts, ends),
        "copies_ns": covered(time.copies, starts, ends),
        "overlap_ns": covered(intersection(time.communication, time.compute), starts, ends),
        "exposed_communication_ns": covered(time.exposed_communication, starts, ends),
        "exposed_copies_ns": covered(time.exposed_copies, starts, ends),
    }
    parts = times["compute_ns"] + times["exposed_communication_ns"] + times["exposed_copies_ns"] + times["idle_ns"]
    assert (parts == times["span_ns"]).all(), "the parts of a device's time must sum to its span"
    return times


def _with_shares(times: dict[str, Nanoseconds]) -> dict[str, Any]:
    pairs = {f"{name}_percent": (times[f"{name}_ns"], times["span_ns"]) for name in _SHARES}
    pairs["overlap_percent"] = (times["overlap_ns"], times["communication_ns"])
    return times | {name: [percent(part, whole) for part, whole in zip(*pair, strict=True)] for name, pair in pairs.items()}
