"""Operators and modules with the time that they took on the host and on the device, their own and with what they called."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.nesting import parents
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any

Array = npt.NDArray[np.int64]

UNLINKED = "(launch not in an operator)"
OUTSIDE_MODULES = "(launch not in a module)"
MODULE = re.compile(r"nn\.Module: ")
COLUMNS = ["name", "kind", "count", "self_device_ns", "total_device_ns", "self_host_ns", "total_host_ns", "device_share_percent"]


def by_operator(view: TraceView, *, per_step: bool = False) -> pd.DataFrame:
    """Return operators and annotations by name, most device time first; the last row is device work launched in none of them.

    Invariant: `self_device_ns` sums to the durations of all device events, to the nanosecond. `total_device_ns` of an operator that
    calls itself (by name) counts its outermost call only.
    Columns: (step: by begin of the call, as the trace numbers them, -1 for none,) name, kind (`operator` or `annotation`), count,
    self_device_ns (events launched in it and in no operator within), total_device_ns, self_host_ns, total_host_ns,
    device_share_percent (of self_device_ns).
    """
    trace = view.trace
    rows = np.flatnonzero(is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION)))
    return _table(view, rows, view.operator_of, per_step=per_step)


def by_module(view: TraceView, *, per_step: bool = False) -> pd.DataFrame:
    """Return modules (`nn.Module: Linear_0`, where the trace has Python frames or names of modules) in the same columns.

    An operator belongs to the innermost module around it on its thread; a backward pass on another thread is in no module. Without
    modules the table is empty.
    """
    trace = view.trace
    codes = np.zeros(max(len(trace.strings), 1), dtype=bool)
    host = is_any(trace.kind, (Kind.PYTHON, Kind.ANNOTATION, Kind.CPU_OP))
    used = np.unique(trace.events["name"][host])
    codes[used] = [MODULE.match(name) is not None for name in trace.strings[used].tolist()]
    modules = np.flatnonzero(host & codes[trace.events["name"]])
    if not len(modules):
        return pd.DataFrame(columns=(["step"] if per_step else []) + COLUMNS)
    calls = np.unique(view.work.launch[view.work.launch >= 0])
    both = np.concatenate([modules, np.setdiff1d(calls, modules)])
    both = both[np.argsort(both, kind="stable")]
    inner = parents(trace.events["track"][both], trace.start[both], trace.end[both])
    around = np.full(len(trace.kind), -1, dtype=np.int64)
    around[both] = np.where(inner >= 0, both[np.maximum(inner, 0)], -1)
    is_module = np.zeros(len(trace.kind), dtype=bool)
    is_module[modules] = True
    while (outward := (around >= 0) & ~is_module[np.maximum(around, 0)]).any():  # a call within another call
        around[outward] = around[around[outward]]
    table = _table(view, modules, around, per_step=per_step)
    return table.replace({"kind": {"operator": "module", "annotation": "module"}, "name": {UNLINKED: OUTSIDE_MODULES}})


def _table(view: TraceView, rows: Rows, around: Rows, *, per_step: bool) -> pd.DataFrame:
    """Return the table of `rows`, where `around` is the innermost of them around each event (-1: none)."""
    trace, work = view.trace, view.work
    device = np.zeros(len(trace.kind) + 1, dtype=np.int64)  # the last one takes what is launched in none
    at = np.where(work.launch >= 0, around[np.maximum(work.launch, 0)], -1) if len(work) else work.launch
    np.add.at(device, at, work.end - work.start)
    total = _with_inner(rows, around, device)
    duration = trace.events["duration"][rows]
    inner = np.zeros(len(trace.kind) + 1, dtype=np.int64)
    np.add.at(inner, around[rows] if len(rows) else rows, duration)
    outermost = ~_recursive(view, rows, around)
    frame = pd.DataFrame(
        {
            "step": _number(view, trace.start[rows]),
            "code": trace.events["name"][rows],
            "annotation": trace.kind[rows] == Kind.ANNOTATION,
            "count": 1,
            "self_device_ns": device[rows],
            "total_device_ns": np.where(outermost, total[rows], 0),
            "self_host_ns": np.maximum(duration - inner[rows], 0),
            "total_host_ns": np.where(outermost, duration, 0),
        }
    )
    keys = ["step", "code"] if per_step else ["code"]
    kinds = frame.groupby(keys, sort=False)["annotation"].all()
    table = frame.drop(columns=["annotation", *({"step", "code"} - set(keys))]).groupby(keys, sort=False).sum()
    table["kind"] = np.where(kinds, "annotation", "operator")
    table = table.reset_index()
    table.insert(0, "name", trace.strings[table.pop("code").to_numpy(dtype=np.int64)] if len(table) else [])
    rest = _unlinked(view, at, per_step=per_step)
    table = (
        pd.concat([table.sort_values("self_device_ns", ascending=False, kind="stable"), rest], ignore_index=True)
        if len(table)
        else rest
    )
    table["device_share_percent"] = 100 * table["self_device_ns"] / max(int((work.end - work.start).sum()), 1)
    return table[(["step"] if per_step else []) + COLUMNS]


def _unlinked(view: TraceView, at: Rows, *, per_step: bool) -> pd.DataFrame:
    """Return rows for device work launched outside of operators."""
    work = view.work
    lost = np.flatnonzero(at < 0)
    frame = pd.DataFrame({"step": _number(view, work.start[lost]), "self_device_ns": work.end[lost] - work.start[lost], "count": 1})
    if not per_step:
        frame["step"] = -1
    table = frame.groupby("step").sum().reset_index()
    return table.assign(name=UNLINKED, kind="device", total_device_ns=table["self_device_ns"], self_host_ns=0, total_host_ns=0)


def _number(view: TraceView, times: Array) -> Array:
    at = view.steps.step_at(times)
    return np.where(at >= 0, view.steps.number[np.maximum(at, 0)], -1) if len(view.steps) else at


def _with_inner(rows: Rows, around: Rows, own: Array) -> Array:
    """Return sums over each event and all events within it."""
    total = own.copy()
    depth = np.zeros(len(rows), dtype=np.int64)
    at = around[rows] if len(rows) else rows
    while (inside := at >= 0).any():
        depth += inside
        at = np.where(inside, around[np.maximum(at, 0)], -1)
    for level in range(int(depth.max(initial=0)), 0, -1):
        here = rows[depth == level]
        np.add.at(total, around[here], total[here])
    return total


def _recursive(view: TraceView, rows: Rows, around: Rows) -> npt.NDArray[np.bool_]:
    """Return which events are nested in another of the same name."""
    name = view.trace.events["name"]
    found = np.zeros(len(rows), dtype=bool)
    at = around[rows] if len(rows) else rows
    while (inside := at >= 0).any():
        found |= inside & (name[np.maximum(at, 0)] == name[rows])
        at = np.where(inside, around[np.maximum(at, 0)], -1)
    return found
