"""The device's memory: copies and their bandwidth, calls of the allocator, and what was allocated when."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.events.intervals import covered, gaps, union
from tachoscope_analyzers.trace.events.runtime_calls import Role, roles
from tachoscope_analyzers.trace.events.steps import window
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any
from tachoscope_analyzers.trace.reading.trace import Trace

_DIRECTIONS = (
    ("HtoD", r"(?i)HtoD|HostToDevice|H2D"),
    ("DtoH", r"(?i)DtoH|DeviceToHost|D2H"),
    ("PtoP", r"(?i)PtoP|PeerToPeer|P2P"),
    ("DtoD", r"(?i)DtoD|DeviceToDevice|D2D"),
    ("HtoH", r"(?i)HtoH|HostToHost|H2H"),
)
"""Directions in names of copies, https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html (CUpti_ActivityMemcpyKind)."""
_HOST_MEMORY = (("pageable", r"(?i)pageable"), ("pinned", r"(?i)pinned"))
_ALLOCATOR = (Role.ALLOCATION, Role.FREE)
DEVICE_TYPE_CPU = 0
"""https://github.com/pytorch/pytorch/blob/main/c10/core/DeviceType.h"""


def copies(view: TraceView) -> pd.DataFrame:
    """Return the copies and fills of each device by direction and kind of host memory, longest first.

    Columns: device, direction (HtoD, DtoH, DtoD, PtoP, HtoH, fill, other), host_memory (pageable, pinned, or empty where the name
    does not tell), count, total_ns, mean_ns, bytes (of those that tell), bandwidth_gb_per_s (10^9 bytes, of those that tell; else
    NaN).
    """
    trace, work = view.trace, view.work
    chosen = np.flatnonzero(is_any(work.kind, (Kind.MEMCPY, Kind.MEMSET)))
    codes, place = trace.distinct_names(work.row[chosen])
    texts = trace.strings[codes].tolist()
    direction = np.array([_first(_DIRECTIONS, text, "other") for text in texts], dtype=object)[place]
    memory = np.array([_first(_HOST_MEMORY, text, "") for text in texts], dtype=object)[place]
    direction = np.where(work.kind[chosen] == Kind.MEMSET, "fill", direction)
    size = _sizes(view)[chosen]
    duration = work.end[chosen] - work.start[chosen]
    frame = pd.DataFrame({"device": work.device[chosen], "direction": direction, "host_memory": memory, "count": 1})
    frame["total_ns"] = duration
    frame["bytes"] = np.maximum(size, 0)
    frame["told_ns"] = np.where(size >= 0, duration, 0)
    table = frame.groupby(["device", "direction", "host_memory"], sort=False).sum().reset_index()
    table.insert(5, "mean_ns", table["total_ns"] / table["count"])
    table["bandwidth_gb_per_s"] = table["bytes"] / table.pop("told_ns").replace(0, np.nan)
    return table.sort_values(["device", "total_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def allocator_calls(view: TraceView) -> pd.DataFrame:
    """Return the calls that allocate or free memory of the device or pinned memory of the host, longest first.

    A caching allocator makes none of them in a step; each of them may stop the device.
    Columns: name, calls, calls_in_steps, steps_with_calls, total_ns, max_ns, idle_ns (time in these calls in which no device was
    busy).
    """
    trace, work, steps = view.trace, view.work, view.steps
    rows = np.flatnonzero(trace.kind == Kind.RUNTIME)
    rows = rows[np.isin(roles(trace, rows), _ALLOCATOR)]
    of_step = steps.step_at(trace.start[rows])
    first, last = window(trace, work)
    idle = gaps(union(work.start, work.end), first, last)
    columns = ["name", "calls", "calls_in_steps", "steps_with_calls", "total_ns", "max_ns", "idle_ns"]
    found = []
    for code in np.unique(trace.events["name"][rows]).tolist():
        mine = trace.events["name"][rows] == code
        duration = trace.events["duration"][rows[mine]]
        inside = of_step[mine][of_step[mine] >= 0]
        spent = union(trace.start[rows[mine]], trace.end[rows[mine]])
        values = (
            trace.strings[code],
            int(mine.sum()),
            len(inside),
            len(np.unique(inside)),
            int(duration.sum()),
            int(duration.max()),
            int(covered(idle, spent.starts, spent.ends).sum()),
        )
        found.append(dict(zip(columns, values, strict=True)))
    return pd.DataFrame(found, columns=columns).sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


def timeline(trace: Trace) -> pd.DataFrame:
    """Return the memory over time, one row for each allocation or free of a trace recorded with `profile_memory=True`, by time.

    Columns: time_ns, device_type (0 CPU, 1 CUDA and ROCm), device, bytes (negative when freed), allocated_bytes, reserved_bytes
    (after it, on that device; NaN where the trace does not tell).
    """
    table = trace.memory
    order = np.argsort(table["time"], kind="stable")
    columns = {"time_ns": "time", "device_type": "device_type", "device": "device", "bytes": "bytes"}
    frame = pd.DataFrame({name: table[source][order] for name, source in columns.items()})
    for name in ("allocated_bytes", "reserved_bytes"):
        value = table[name][order]
        frame[name] = np.where(value >= 0, value.astype(np.float64), np.nan)
    return frame


_SUMMARY_COLUMNS = [
    "device_type",
    "device",
    "allocations",
    "frees",
    "first_allocated_bytes",
    "last_allocated_bytes",
    "growth_bytes",
    "peak_allocated_bytes",
    "peak_time_ns",
    "peak_reserved_bytes",
    "reserved_growth_bytes",
    "capacity_bytes",
]


def memory_summary(view: TraceView) -> pd.DataFrame:
    """Return the memory of each device in one row.

    Columns: device_type, device, allocations, frees, first_allocated_bytes, last_allocated_bytes, growth_bytes (last less first),
    peak_allocated_bytes, peak_time_ns, peak_reserved_bytes, reserved_growth_bytes, capacity_bytes (NaN where the trace does not
    tell).
    """
    rows = []
    capacity = {device.id: device.memory_bytes for device in view.trace.meta.devices}
    for _, part in timeline(view.trace).groupby(["device_type", "device"], sort=True):
        kind, device = int(part["device_type"].iloc[0]), int(part["device"].iloc[0])
        allocated, reserved = part["allocated_bytes"].dropna(), part["reserved_bytes"].dropna()
        size = capacity.get(device, 0) if kind != DEVICE_TYPE_CPU else 0
        rows.append(
            {
                "device_type": kind,
                "device": device,
                "allocations": int((part["bytes"] > 0).sum()),
                "frees": int((part["bytes"] < 0).sum()),
                "first_allocated_bytes": _at(allocated, 0),
                "last_allocated_bytes": _at(allocated, -1),
                "growth_bytes": _at(allocated, -1) - _at(allocated, 0),
                "peak_allocated_bytes": float(allocated.max()),
                "peak_time_ns": int(part["time_ns"].to_numpy()[part["allocated_bytes"].argmax()]) if len(allocated) else -1,
                "peak_reserved_bytes": float(reserved.max()),
                "reserved_growth_bytes": _at(reserved, -1) - _at(reserved, 0),
                "capacity_bytes": float(size) if size else float("nan"),
            }
        )
    return pd.DataFrame(rows, columns=_SUMMARY_COLUMNS)


def _at(values: pd.Series[float], place: int) -> float:
    return float(values.iloc[place]) if len(values) else float("nan")


def _first(patterns: tuple[tuple[str, str], ...], text: str, otherwise: str) -> str:
    return next((name for name, pattern in patterns if re.search(pattern, text)), otherwise)


def _sizes(view: TraceView) -> npt.NDArray[np.int64]:
    """Return the bytes of each piece of device work, -1 if unknown, shape (D,)."""
    work = view.work
    if not len(view.trace.device):
        return np.full(len(work), -1, dtype=np.int64)
    return np.where(work.place >= 0, view.trace.device["bytes"][work.place], -1)
