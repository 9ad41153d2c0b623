"""Operators by the path of calls that led to them: a tree, with the time of each on the host and on the device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.analyses.operator_tree import UNLINKED
from tachoscope_analyzers.trace.events.steps import PROFILER_STEP
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any

Array = npt.NDArray[np.int64]

COLUMNS = ["parent", "name", "count", "self_device_ns", "total_device_ns", "self_host_ns", "total_host_ns"]
STEP = "ProfilerStep"
"""All steps are one node: what is within them is summed."""
OTHERS = "others"


def operator_paths(view: TraceView) -> pd.DataFrame:
    """Return one row for each path of operators and annotations, parents before their children.

    Device time counts for the innermost operator around its launch, as in `operator_tree.by_operator`. Invariants: `self_device_ns`
    sums to the durations of all device events; a total is the row's own plus the totals of the rows below it.
    Columns: parent (position of a row, -1 for the outermost), name, count, self_device_ns, total_device_ns, self_host_ns,
    total_host_ns. The last row is device work that was launched in no operator, where there is any.
    """
    trace, work = view.trace, view.work
    rows = np.flatnonzero(is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION)))
    parent, path, levels = _paths(view, rows)
    device = np.zeros(len(trace.kind) + 1, dtype=np.int64)  # the last one takes what is launched in none
    at = np.where(work.launch >= 0, view.operator_of[np.maximum(work.launch, 0)], -1) if len(work) else work.launch
    np.add.at(device, at, work.end - work.start)
    around, duration = view.operator_of[rows], trace.events["duration"][rows]
    inner = np.zeros(len(trace.kind) + 1, dtype=np.int64)
    np.add.at(inner, around, duration)
    own_device, own_host, count = (np.zeros(len(parent), dtype=np.int64) for _ in range(3))
    np.add.at(own_device, path, device[rows])
    np.add.at(own_host, path, np.maximum(duration - inner[rows], 0))
    np.add.at(count, path, 1)
    first = np.full(len(parent), -1, dtype=np.int64)
    first[path[::-1]] = rows[::-1]
    names = [STEP if PROFILER_STEP.match(name) else name for name in trace.names(first).tolist()] if len(first) else []
    table = pd.DataFrame({"parent": parent, "name": names, "count": count, "self_device_ns": own_device})
    table["total_device_ns"] = _totals(parent, levels, own_device)
    table["self_host_ns"] = own_host
    table["total_host_ns"] = _totals(parent, levels, own_host)
    lost, nowhere = int((at < 0).sum()), int(device[-1])
    rest = pd.DataFrame([(-1, UNLINKED, lost, nowhere, nowhere, 0, 0)] if lost else [], columns=COLUMNS)
    return pd.concat([table, rest], ignore_index=True)[COLUMNS] if len(table) and lost else (rest if lost else table[COLUMNS])


def largest(paths: pd.DataFrame, column: str, most: int) -> pd.DataFrame:
    """Return the paths that are largest in a column of totals, and for what is left of each parent one row `others`.

    At most `most` rows; the totals of the outermost sum to the same as in `paths`. Columns as there, without those of own time.
    """
    total = paths[column].to_numpy(dtype=np.int64)
    order = np.argsort(-total, kind="stable")[: (most - 1) // 2]  # a parent is no smaller than its children, and stands before them
    kept = np.sort(order[total[order] > 0])
    place = np.full(len(paths) + 1, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    parent = paths["parent"].to_numpy(dtype=np.int64)
    shown = paths.iloc[kept].assign(parent=place[parent[kept]])
    dropped = np.setdiff1d(np.flatnonzero(total > 0), kept)
    dropped = dropped[(parent[dropped] < 0) | (place[parent[dropped]] >= 0)]  # what is below a dropped one is in it
    rest = paths.iloc[dropped].assign(parent=place[parent[dropped]]).groupby("parent", as_index=False)[["count", column]].sum()
    columns = ["parent", "name", "count", column]
    both: pd.DataFrame = pd.concat([shown[columns], rest.assign(name=OTHERS)[columns]], ignore_index=True)
    return both


def _paths(view: TraceView, rows: Array) -> tuple[Array, Array, list[slice]]:
    """Return each path's parent, each event's path, and the paths by depth."""
    trace, around = view.trace, view.operator_of
    steps = np.array([PROFILER_STEP.match(text) is not None for text in trace.strings], dtype=bool)
    code = np.where(steps[trace.events["name"][rows]], int(np.argmax(steps)) if len(steps) else 0, trace.events["name"][rows])
    depth, at = np.zeros(len(rows), dtype=np.int64), around[rows]
    while (inside := at >= 0).any():
        depth += inside
        at = np.where(inside, around[np.maximum(at, 0)], -1)
    path_of_event = np.full(len(trace.kind) + 1, -1, dtype=np.int64)
    parents: list[Array] = []
    levels: list[slice] = []
    known = 0
    for level in range(int(depth.max(initial=-1)) + 1):
        here = np.flatnonzero(depth == level)
        above = path_of_event[around[rows[here]]]
        keys, place = np.unique(above * len(steps) + code[here], return_inverse=True)
        path_of_event[rows[here]] = known + place.reshape(-1)
        parents.append(keys // len(steps))
        levels.append(slice(known, known + len(keys)))
        known += len(keys)
    parent = np.concatenate(parents) if parents else np.zeros(0, dtype=np.int64)
    return parent, path_of_event[rows], levels


def _totals(parent: Array, levels: list[slice], own: Array) -> Array:
    total = own.copy()
    for level in reversed(levels[1:]):
        np.add.at(total, parent[level], total[level])
    return total
