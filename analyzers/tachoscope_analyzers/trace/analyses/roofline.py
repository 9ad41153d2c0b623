"""Roofline: how much work operators did in their time on the device, and how far that is from what the device can do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.analyses import operator_costs
from tachoscope_analyzers.trace.analyses.device_peaks import Peaks, peaks_of, precision_of_type
from tachoscope_analyzers.trace.events.kernel_names import precision_of
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind

COLUMNS = [
    "device",
    "operator",
    "shapes",
    "types",
    "precision",
    "calls",
    "device_ns",
    "flops",
    "bytes",
    "tflops_per_s",
    "gb_per_s",
    "intensity_flops_per_byte",
    "bound",
    "peak_percent",
    "kernel",
]


def roofline(view: TraceView) -> pd.DataFrame:
    """Return work and time of operators by device, name and shapes, longest first. What is not known is NaN, never 0.

    Each device event counts for the innermost operator around its launch whose work is known, so nothing counts twice: `device_ns`
    sums to no more than the device's total. Bytes are what must move at least, so `gb_per_s` may be less than the device moved.
    Columns: device, operator, shapes, types, precision, calls (that reached the device), device_ns (all their events), flops and
    bytes (all calls), tflops_per_s, gb_per_s, intensity_flops_per_byte, bound (`compute`, `memory`, `cache` where
    that much cannot have come from the device's memory, or empty), peak_percent (of the peak that bounds it, see devices.yaml; of
    the memory's for `cache`), kernel (the longest).
    """
    owner, number, costs = _owners(view)
    work = view.work
    on = np.flatnonzero(owner >= 0)
    if not len(on):
        return pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
    frame = pd.DataFrame(
        {
            "device": work.device[on],
            "cost": number[owner[on]],
            "call": owner[on],
            "device_ns": work.end[on] - work.start[on],
            "name": view.trace.events["name"][work.row[on]],
        }
    )
    keys = ["device", "cost"]
    table = frame.groupby(keys, sort=False).agg(calls=("call", "nunique"), device_ns=("device_ns", "sum")).reset_index()
    by_kernel = frame.groupby([*keys, "name"], sort=False)["device_ns"].sum().reset_index().sort_values("device_ns", kind="stable")
    longest = by_kernel.drop_duplicates(keys, keep="last").set_index(keys)["name"]
    table["kernel"] = view.trace.strings[longest.loc[pd.MultiIndex.from_frame(table[keys])].to_numpy()]
    described = costs.iloc[table.pop("cost").to_numpy()].reset_index(drop=True)
    table = pd.concat([table, described], axis=1)
    for name in ("flops", "bytes"):
        table[name] *= table["calls"]
    return _rated(view, table)[COLUMNS].sort_values("device_ns", ascending=False, kind="stable", ignore_index=True)


def coverage(view: TraceView) -> pd.DataFrame:
    """Return of each device how much of its time the roofline tells about.

    Columns: device, device_ns, modelled_ns, modelled_percent.
    """
    work = view.work
    frame = pd.DataFrame({"device": work.device, "device_ns": work.end - work.start})
    frame["modelled_ns"] = np.where(_owners(view)[0] >= 0, frame["device_ns"], 0) if len(frame) else frame["device_ns"]
    table = frame.groupby("device").sum().reset_index()
    table["modelled_percent"] = 100 * table["modelled_ns"] / table["device_ns"].where(table["device_ns"] > 0)
    return table


def _owners(view: TraceView) -> tuple[Rows, Rows, pd.DataFrame]:
    """Return the modelled operator of each device event (-1: none), the index of its cost (-1), and the costs."""
    rows, number, costs = _costs(view)
    of_event = np.full(max(len(view.trace.events), 1), -1, dtype=np.int64)
    of_event[rows] = number
    work = view.work
    at = (
        np.where((work.launch >= 0) & ~_crosses_the_bus(view), view.operator_of[np.maximum(work.launch, 0)], -1)
        if len(work)
        else work.launch
    )
    while (outward := (at >= 0) & (of_event[np.maximum(at, 0)] < 0)).any():
        at = np.where(outward, view.operator_of[np.maximum(at, 0)], at)
    return at, of_event, costs


def _crosses_the_bus(view: TraceView) -> npt.NDArray[np.bool_]:
    """Return which device events are copies from or to the host, which device memory does not limit."""
    work = view.work
    found = np.zeros(len(work), dtype=bool)
    copies = np.flatnonzero(work.kind == Kind.MEMCPY)
    names = view.trace.names(work.row[copies]).tolist()
    found[copies] = [any(word in name for word in ("HtoD", "DtoH", "Host", "Pinned", "Pageable")) for name in names]
    return found


def _costs(view: TraceView) -> tuple[Rows, Rows, pd.DataFrame]:
    """Return the operators with known work, the cost index of each, and the costs; equal arguments share one."""
    trace, table = view.trace, view.trace.operators
    rows = np.asarray(table["row"])
    used = np.unique(trace.events["name"][rows])
    modelled = used[[operator_costs.has_model(name) for name in trace.strings[used].tolist()]] if len(used) else used
    place = np.flatnonzero(np.isin(trace.events["name"][rows], modelled))
    columns = [trace.events["name"][rows[place]], *(table[name][place] for name in ("shapes", "types", "concrete"))]
    number, first = _grouped(columns)
    texts = [trace.strings[column[first]].tolist() for column in columns]
    found = [operator_costs.cost_of(*arguments) for arguments in zip(*texts, strict=True)]
    known = np.array([cost.known for cost in found], dtype=bool)
    costs = pd.DataFrame(
        {
            "operator": texts[0],
            "shapes": ["".join(text.split()) for text in texts[1]],
            "types": ["".join(text.split()) for text in texts[2]],
            "dtype": [cost.dtype for cost in found],
            "flops": np.array([cost.flops for cost in found], dtype=np.float64),
            "bytes": np.array([cost.bytes for cost in found], dtype=np.float64),
        }
    )
    kept = known[number] if len(number) else np.zeros(0, dtype=bool)
    return rows[place[kept]], number[kept], costs


def _grouped(columns: list[npt.NDArray[np.int32]]) -> tuple[Rows, Rows]:
    """Return each row's group of equal values, and one row of each group."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        number = np.unique(number * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1].reshape(-1)
    return number, np.unique(number, return_index=True)[1]


def _rated(view: TraceView, table: pd.DataFrame) -> pd.DataFrame:
    devices = view.trace.meta.devices
    names = {device.id: device.name for device in devices}
    usual = devices[0].name if devices and len(set(names.values())) == 1 else ""  # some writers number devices in two ways
    time = table["device_ns"].where(table["device_ns"] > 0).to_numpy(dtype=np.float64)
    table["tflops_per_s"] = table["flops"] / time / 1e3
    table["gb_per_s"] = table["bytes"] / time
    table["intensity_flops_per_byte"] = table["flops"] / table["bytes"].where(table["bytes"] > 0)
    peaks = [peaks_of(names.get(device, usual)) for device in table["device"].tolist()]
    precisions = [
        _precision(peak, *row)
        for peak, row in zip(peaks, zip(table["dtype"], table["kernel"], table["tflops_per_s"], strict=True), strict=True)
    ]
    table["precision"] = precisions
    compute = np.array([peak.tflops_of(precision) for peak, precision in zip(peaks, precisions, strict=True)])
    memory = np.array([peak.memory_gb_per_s for peak in peaks])
    # Time at the peak of either: the longer of the two bounds the operator.
    computing, moving = table["tflops_per_s"].to_numpy() / compute, table["gb_per_s"].to_numpy() / memory
    no_flops = table["flops"].isna().to_numpy()
    bound = np.select(
        [np.isnan(moving) & ~no_flops, no_flops & ~np.isnan(moving), computing >= moving, moving > computing],
        ["", "memory", "compute", "memory"],
        "",
    )
    table["peak_percent"] = 100 * np.select([bound == "compute", bound == "memory"], [computing, moving], np.nan)
    table["bound"] = np.where((bound == "memory") & (moving > 1), "cache", bound)
    return table


def _precision(peaks: Peaks, dtype: str, kernel: str, tflops: float) -> str:
    """Return an operator's precision: the kernel's name is more exact than its type, since fp32 may be multiplied as tf32."""
    told = precision_of(kernel)
    precision = precision_of_type(dtype)
    if not np.isnan(peaks.tflops_of(told)):
        return told
    return "tf32" if precision == "fp32" and tflops > peaks.tflops_of("fp32") else precision
