"""Kernels by class and by name: how many, how long, how full, and what share of the device's time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.stats.ratio import percent
from tachoscope_analyzers.trace.events.intervals import union
from tachoscope_analyzers.trace.events.kernel_names import MEMCPY, MEMSET, precision_of, tensor_cores_of
from tachoscope_analyzers.trace.events.kernel_names import is_communication as is_communication
from tachoscope_analyzers.trace.events.launch_links import DeviceWork
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace

SMALL_NS = 10_000
"""Kernels below 10 us take about as long to launch as to run (a launch costs the host 5 to 10 us)."""
GRAPH_LAUNCH = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


def by_class(view: TraceView) -> pd.DataFrame:
    """Return the device's work by class, per device, longest first.

    Invariant: `total_ns` sums to the device's busy time plus what runs at the same time on several streams (`summary`).
    Columns: device, class, count, total_ns, share_percent (of the device's total), mean_ns, min_ns, max_ns, std_ns.
    """
    work = view.work
    frame = pd.DataFrame({"device": work.device, "class": _class_names(view), "duration_ns": work.end - work.start})
    return _statistics(frame, ["device", "class"])


def by_name(view: TraceView) -> pd.DataFrame:
    """Return the device's work by name, per device, longest first; columns sum as in `by_class`.

    Columns: device, class, name, tensor_cores (yes, no, unknown, not_applicable), precision, count, total_ns, share_percent,
    mean_ns, min_ns, max_ns, std_ns, occupancy_percent and blocks_per_sm (means weighted by time, NaN where not told).
    """
    trace, work = view.trace, view.work
    duration = work.end - work.start
    frame = pd.DataFrame({"device": work.device, "class": _class_names(view), "name": trace.events["name"][work.row]})
    frame["duration_ns"] = duration
    for column in ("occupancy_percent", "blocks_per_sm"):
        value = _device_column(trace, work, column)
        frame[column] = np.where(value >= 0, value * duration, 0.0)
        frame[f"{column}_weight"] = np.where(value >= 0, duration, 0)
    table = _statistics(frame, ["device", "class", "name"], sums=("occupancy_percent", "blocks_per_sm"))
    table["name"] = trace.strings[table["name"].to_numpy(dtype=np.int64)]
    kernels = ~table["class"].isin([MEMCPY, MEMSET])
    for place, (column, fact) in enumerate((("tensor_cores", tensor_cores_of), ("precision", precision_of))):
        told = [fact(name) if kernel else "not_applicable" for name, kernel in zip(table["name"], kernels, strict=True)]
        table.insert(3 + place, column, told)
    return table


def summary(view: TraceView) -> pd.DataFrame:
    """Return one row per device about its kernels (copies and fills apart).

    Invariant: `total_ns` = `busy_ns` + `overlap_ns`, where overlap counts time on which n kernels run together n - 1 times.
    Columns: device, kernels, total_ns, busy_ns, overlap_ns, small_kernels (below 10 us), small_kernels_percent, small_time_percent,
    in_graphs_percent (of kernels whose launch is known, those launched by a CUDA graph), occupancy_percent, blocks_per_sm (weighted
    by time; NaN where the trace does not tell), tensor_core_time_percent (of matrix kernels whose name tells; NaN without).
    """
    trace, work = view.trace, view.work
    matrix = _tensor_core_use(trace, work)
    occupancy, blocks = (_device_column(trace, work, column) for column in ("occupancy_percent", "blocks_per_sm"))
    graph = np.isin(_launch_names(trace, work), GRAPH_LAUNCH)
    rows = []
    for device in view.devices:
        mine = (work.device == device) & (work.kind == Kind.KERNEL)
        duration = (work.end - work.start)[mine]
        total, busy = int(duration.sum()), union(work.start[mine], work.end[mine]).total
        small = duration < SMALL_NS
        told = matrix[mine] >= 0
        rows.append(
            {
                "device": device,
                "kernels": int(mine.sum()),
                "total_ns": total,
                "busy_ns": busy,
                "overlap_ns": total - busy,
                "small_kernels": int(small.sum()),
                "small_kernels_percent": percent(small.sum(), len(small)),
                "small_time_percent": percent(duration[small].sum(), total),
                "in_graphs_percent": percent((graph & mine).sum(), (mine & (work.launch >= 0)).sum()),
                "occupancy_percent": _weighted(occupancy[mine], duration),
                "blocks_per_sm": _weighted(blocks[mine], duration),
                "tensor_core_time_percent": percent(duration[told & (matrix[mine] == 1)].sum(), duration[told].sum()),
            }
        )
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


SUMMARY_COLUMNS = [
    "device",
    "kernels",
    "total_ns",
    "busy_ns",
    "overlap_ns",
    "small_kernels",
    "small_kernels_percent",
    "small_time_percent",
    "in_graphs_percent",
    "occupancy_percent",
    "blocks_per_sm",
    "tensor_core_time_percent",
]


def _class_names(view: TraceView) -> npt.NDArray[np.object_]:
    return np.array(view.classes.texts, dtype=object)[view.classes.number]


def _statistics(frame: pd.DataFrame, keys: list[str], sums: tuple[str, ...] = ()) -> pd.DataFrame:
    groups = frame.groupby(keys, sort=False)
    duration = groups["duration_ns"]
    table = pd.DataFrame(
        {"count": duration.size(), "total_ns": duration.sum(), "mean_ns": duration.mean(), "min_ns": duration.min()}
    )
    table["max_ns"] = duration.max()
    table["std_ns"] = duration.std(ddof=0)
    for column in sums:
        table[column] = groups[column].sum() / groups[f"{column}_weight"].sum().replace(0, np.nan)
    table = table.reset_index()
    whole = table.groupby("device")["total_ns"].transform("sum")
    table.insert(len(keys) + 2, "share_percent", 100.0 * table["total_ns"] / whole.replace(0, np.nan))
    return table.sort_values(["device", "total_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def _device_column(trace: Trace, work: DeviceWork, column: str) -> npt.NDArray[np.float64]:
    """Return a column of the device table for each piece of work, -1 if unknown, shape (D,)."""
    if not len(trace.device):
        return np.full(len(work), -1.0)
    return np.where(work.place >= 0, trace.device[column][work.place], -1.0)


def _weighted(values: npt.NDArray[np.float64], weights: npt.NDArray[np.int64]) -> float:
    told = values >= 0
    whole = int(weights[told].sum())
    return float((values[told] * weights[told]).sum()) / whole if whole else float("nan")


def _launch_names(trace: Trace, work: DeviceWork) -> npt.NDArray[np.object_]:
    """Return the name of each piece of work's launch call, empty for none, shape (D,)."""
    code = np.where(work.launch >= 0, trace.events["name"][work.launch], 0) if len(work) else np.zeros(0, dtype=np.int64)
    return np.asarray(trace.strings[code])


def _tensor_core_use(trace: Trace, work: DeviceWork) -> npt.NDArray[np.int8]:
    """Return 1 for kernels that use tensor cores, 0 for other matrix kernels, -1 for the rest, shape (D,)."""
    number = {"yes": 1, "no": 0}
    codes, place = trace.distinct_names(work.row)
    use = np.array([number.get(tensor_cores_of(text), -1) for text in trace.strings[codes]], dtype=np.int8)
    return np.asarray(use[place] if len(codes) else use)
