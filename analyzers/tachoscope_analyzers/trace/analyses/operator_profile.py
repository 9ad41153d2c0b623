"""What one trace is compared by: its time by state, by operator and by kernel, over its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.trace.device_time.ledger import STATES, step_states
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind, is_any

MOST_ROWS = 2_000
OTHERS = "(others)"
NO_OPERATOR, NO_LAUNCH = "(no operator)", "(launch not recorded)"
_STEP_MARK = "ProfilerStep#"


class TraceProfile(msgspec.Struct, frozen=True):
    """Sums over the steps of a trace, or of all ranks of a job.

    Attributes:
        steps: how many (of each device and rank). step_source: how they were found. step_total_ns: their length, summed.
        states: state, count (of steps), total_ns.
        operators: operator, count, device_ns (of the kernels launched by it and by no operator within it), host_ns (on its thread,
            less the operators within it).
        kernels: kernel, operator (that launched most of it), position (among the device work of one call of it, -1 for none),
            count, total_ns; copies and fills too.
    """

    steps: int
    step_source: str
    step_total_ns: int
    states: pd.DataFrame
    operators: pd.DataFrame
    kernels: pd.DataFrame


def profile(view: TraceView) -> TraceProfile:
    """Return the sums of a trace. Device work counts in the step that launched it, where its launch is known, else began in."""
    states = step_states(view)
    launch, work = view.work.launch, view.work
    launched = np.where(launch >= 0, view.trace.start[launch], work.start) if len(work) else work.start
    chosen = np.flatnonzero(view.steps.step_at(launched) >= 0)
    names, position = _launchers(view, chosen)
    kernels = _kernels(view, chosen, names, position)
    return TraceProfile(
        steps=len(states),
        step_source=view.steps.source,
        step_total_ns=int(states["duration_ns"].sum()),
        states=pd.DataFrame(
            {"state": STATES, "count": len(states), "total_ns": [int(states[f"{name}_ns"].sum()) for name in STATES]}
        ),
        operators=_capped(_operators(view, names, (work.end - work.start)[chosen]), "operator", "device_ns"),
        kernels=_capped(kernels, "kernel", "total_ns"),
    )


def merged(profiles: Iterable[TraceProfile]) -> TraceProfile | None:
    """Return the sum of several traces, None of none; two at a time or all at once is the same while nothing is cut off."""
    parts = list(profiles)
    if not parts:
        return None
    states = pd.concat([part.states for part in parts]).groupby("state", sort=False, as_index=False).sum()
    operators = pd.concat([part.operators for part in parts]).groupby("operator", sort=False, as_index=False).sum()
    kernels = pd.concat([part.kernels for part in parts]).sort_values("total_ns", ascending=False, kind="stable")
    groups = kernels.groupby("kernel", sort=False)
    kernels = groups[["operator", "position"]].first().join(groups[["count", "total_ns"]].sum()).reset_index()
    sources = sorted({part.step_source for part in parts})
    return TraceProfile(
        steps=sum(part.steps for part in parts),
        step_source=sources[0] if len(sources) == 1 else " and ".join(sources),
        step_total_ns=sum(part.step_total_ns for part in parts),
        states=states,
        operators=_capped(operators, "operator", "device_ns"),
        kernels=_capped(kernels[_KERNELS], "kernel", "total_ns"),
    )


_KERNELS = ["kernel", "operator", "position", "count", "total_ns"]


def _launchers(view: TraceView, chosen: Rows) -> tuple[npt.NDArray[Any], Rows]:
    """Return the operator that launched each piece of work, and the work's index within its launch call."""
    trace, launch = view.trace, view.work.launch[chosen]
    operator = np.where(launch >= 0, view.operator_of[launch], -1) if len(view.operator_of) else launch
    unknown = np.where(launch >= 0, NO_OPERATOR, NO_LAUNCH)
    names = np.where(operator >= 0, trace.names(operator), unknown) if len(chosen) else unknown
    names = _mapped(names, lambda name: _STEP_MARK if name.startswith(_STEP_MARK) else name)
    begin = np.where(launch >= 0, trace.start[launch], view.work.start[chosen]) if len(chosen) else launch
    order = np.lexsort((view.work.start[chosen], begin, operator))
    sorted_operator = operator[order]
    first = np.flatnonzero(np.append(True, sorted_operator[1:] != sorted_operator[:-1])) if len(order) else order
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return names, np.where(operator >= 0, position, -1)


def _kernels(view: TraceView, chosen: Rows, names: npt.NDArray[Any], position: Rows) -> pd.DataFrame:
    trace, work = view.trace, view.work
    frame = pd.DataFrame(
        {
            "kernel": trace.events["name"][work.row[chosen]],
            "operator": pd.Categorical(names),
            "position": position,
            "total_ns": (work.end - work.start)[chosen],
        }
    )
    parts = frame.groupby(["kernel", "operator", "position"], observed=True)["total_ns"].agg(["size", "sum"]).reset_index()
    parts = parts.rename(columns={"size": "count", "sum": "total_ns"}).sort_values("total_ns", ascending=False, kind="stable")
    groups = parts.groupby("kernel", sort=False)
    table = groups[["operator", "position"]].first().join(groups[["count", "total_ns"]].sum()).reset_index()
    table["kernel"] = trace.strings[table["kernel"].to_numpy(dtype=np.int64)]
    table["operator"] = table["operator"].astype(object)
    return table[_KERNELS]


def _operators(view: TraceView, launchers: npt.NDArray[Any], durations: Rows) -> pd.DataFrame:
    trace = view.trace
    rows = np.flatnonzero(is_any(trace.kind, (Kind.CPU_OP, Kind.ANNOTATION)))
    inside = np.zeros(len(trace.events), dtype=np.int64)
    outer = view.operator_of[rows] if len(rows) else rows
    np.add.at(inside, outer[outer >= 0], trace.events["duration"][rows[outer >= 0]])
    rows = rows[view.steps.step_at(trace.start[rows]) >= 0]
    host = pd.DataFrame({"operator": trace.events["name"][rows], "host_ns": trace.events["duration"][rows] - inside[rows]})
    table = host.groupby("operator")["host_ns"].agg(["size", "sum"]).reset_index()
    table.columns = pd.Index(["operator", "count", "host_ns"])
    names = trace.strings[table["operator"].to_numpy(dtype=np.int64)]
    table["operator"] = _mapped(names, lambda name: _STEP_MARK if name.startswith(_STEP_MARK) else name)
    table = table.groupby("operator", as_index=False).sum()
    device = pd.DataFrame({"operator": launchers, "device_ns": durations}).groupby("operator")["device_ns"].sum()
    table = table.set_index("operator").join(device, how="outer").fillna(0).astype(np.int64).reset_index()
    return table[["operator", "count", "device_ns", "host_ns"]]


def _mapped(texts: npt.NDArray[Any], function: Any) -> npt.NDArray[Any]:
    known = {text: function(text) for text in set(texts.tolist())}
    return np.array([known[text] for text in texts.tolist()], dtype=object)


def _capped(table: pd.DataFrame, key: str, by: str) -> pd.DataFrame:
    """Return the longest rows, and one for all others, so that sums are kept."""
    table = table.sort_values([by, key], ascending=[False, True], kind="stable", ignore_index=True)
    if len(table) <= MOST_ROWS:
        return table
    rest = table.iloc[MOST_ROWS - 1 :]
    numbers = [column for column in table.columns if column not in {key, "operator", "position"}]
    others: dict[str, Any] = {key: OTHERS, "operator": OTHERS if key == "operator" else NO_OPERATOR, "position": -1}
    others |= {column: rest[column].sum() for column in numbers}
    return pd.concat([table.head(MOST_ROWS - 1), pd.DataFrame([others])], ignore_index=True)[list(table.columns)]
