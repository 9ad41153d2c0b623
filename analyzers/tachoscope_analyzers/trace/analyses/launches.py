"""How the host launches the device's work: what the calls cost, how long the work then waits, and how much is queued."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tachoscope_analyzers.stats.ratio import percent
from tachoscope_analyzers.trace.device_time.kernels import GRAPH_LAUNCH
from tachoscope_analyzers.trace.events.callers import outermost_operators
from tachoscope_analyzers.trace.events.intervals import covered, union
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.exact_time import Nanoseconds

Flags = npt.NDArray[np.bool_]


def launch_summary(view: TraceView) -> pd.DataFrame:
    """Return one row per device and kind of work (kernel, memcpy, memset) about its launches.

    Invariant: linked + unlinked = count; work whose launch the trace lacks is counted, never dropped.
    Columns: device, kind, count, linked, unlinked, in_graphs (linked to the launch of a CUDA graph), calls (distinct launch calls),
    call_mean_ns, call_p50_ns, call_p95_ns, call_total_ns (host duration of those calls), delay_mean_ns, delay_p50_ns, delay_p95_ns,
    delay_max_ns (start of the work less end of its call, where that is not negative), early (work that began before its call
    returned: normal on an idle stream), clock_disorder (work that began before its call did: the two clocks disagree), short (work
    that ran for less time than its call), short_percent (of the linked). Delays of work in graphs are those of the graph's first
    work.
    """
    trace, work = view.trace, view.work
    graph = in_graph(view)
    rows = []
    for device in view.devices:
        for kind in (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET):
            mine = (work.device == device) & (work.kind == kind)
            if not mine.any():
                continue
            linked = mine & (work.launch >= 0)
            calls = np.unique(work.launch[linked])
            first = linked & (~graph | _first_of_launch(view))
            rows.append(
                {
                    "device": device,
                    "kind": kind.name.lower(),
                    "count": int(mine.sum()),
                    "linked": int(linked.sum()),
                    "unlinked": int((mine & ~linked).sum()),
                    "in_graphs": int((linked & graph).sum()),
                    "calls": len(calls),
                    **_spread("call", trace.end[calls] - trace.start[calls]),
                    "call_total_ns": int((trace.end[calls] - trace.start[calls]).sum()),
                    **_delays(view, first),
                    **_short(view, linked & ~graph),
                }
            )
    return pd.DataFrame(rows)


def by_operator(view: TraceView) -> pd.DataFrame:
    """Return the launches by the outermost operator around them (empty: none, or no launch known), largest device time first.

    Columns: device, operator, count (device events), calls (distinct launch calls), call_total_ns, device_total_ns, short (as
    above).
    """
    trace, work = view.trace, view.work
    operator = outermost_operators(view, work.launch)
    call = np.where(work.launch >= 0, trace.events["duration"][work.launch], 0) if len(work) else work.launch
    new = _first_of_launch(view)
    duration = work.end - work.start
    frame = pd.DataFrame(
        {
            "device": work.device,
            "operator": np.where(operator >= 0, trace.events["name"][operator], 0) if len(work) else operator,
            "count": 1,
            "calls": new.astype(np.int64),
            "call_total_ns": np.where(new, call, 0),
            "device_total_ns": duration,
            "short": ((work.launch >= 0) & (duration < call)).astype(np.int64),
        }
    )
    table = frame.groupby(["device", "operator"], sort=False).sum().reset_index()
    table["operator"] = trace.strings[table["operator"].to_numpy(dtype=np.int64)]
    return table.sort_values(["device", "device_total_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def by_step(view: TraceView) -> pd.DataFrame:
    """Return the launches of each step of the host (`View.steps`).

    Columns: step, start_ns, duration_ns, launches (calls), device_events (that they launched), call_ns (host time in those calls,
    on any thread, each moment once), call_percent (of the step).
    """
    trace, work, steps = view.trace, view.work, view.steps
    linked = work.launch >= 0
    calls = np.unique(work.launch[linked])
    busy = union(trace.start[calls], trace.end[calls])
    of_call, of_event = steps.step_at(trace.start[calls]), steps.step_at(trace.start[work.launch[linked]])
    table = pd.DataFrame({"step": steps.number, "start_ns": steps.start, "duration_ns": steps.end - steps.start})
    table["launches"] = np.bincount(of_call[of_call >= 0], minlength=len(steps))
    table["device_events"] = np.bincount(of_event[of_event >= 0], minlength=len(steps))
    table["call_ns"] = covered(busy, steps.start, steps.end)
    table["call_percent"] = [percent(part, whole) for part, whole in zip(table["call_ns"], table["duration_ns"], strict=True)]
    return table


def queue_length(view: TraceView) -> pd.DataFrame:
    """Return how much was queued or running on each stream over time: one row for each moment at which that changes.

    Work is in the queue from the begin of the call that launched it (of a graph: all its work) to its own end.
    Invariant: never negative, and 0 in the end. Work without a known launch is not counted (`launch_summary` tells how much).
    Columns: device, stream, time_ns, queued.
    """
    device, stream, begin, end = _queued(view)
    key = np.concatenate([device, device]), np.concatenate([stream, stream])
    time = np.concatenate([begin, end])
    change = np.concatenate([np.ones(len(begin), dtype=np.int64), -np.ones(len(end), dtype=np.int64)])
    order = np.lexsort((time, key[1], key[0]))
    device, stream, time, change = key[0][order], key[1][order], time[order], change[order]
    last = np.append((device[1:] != device[:-1]) | (stream[1:] != stream[:-1]) | (time[1:] != time[:-1]), len(time) > 0)
    last = last[: len(time)]
    # All that came on earlier streams has gone again, so one running sum serves all streams.
    queued = np.cumsum(change)[last]
    return pd.DataFrame({"device": device[last], "stream": stream[last], "time_ns": time[last], "queued": queued})


def queue_summary(view: TraceView) -> pd.DataFrame:
    """Return the queue of each stream from its first launch to its last end.

    Columns: device, stream, span_ns, queued_mean (weighted by time), queued_max, empty_ns, empty_percent.
    """
    table = queue_length(view)
    rows = []
    for (device, stream), part in table.groupby(["device", "stream"], sort=True):
        time, queued = part["time_ns"].to_numpy(), part["queued"].to_numpy()
        lasting = np.diff(time)
        span, empty = int(lasting.sum()), int(lasting[queued[:-1] == 0].sum())
        rows.append(
            {
                "device": device,
                "stream": stream,
                "span_ns": span,
                "queued_mean": float((lasting * queued[:-1]).sum()) / span if span else 0.0,
                "queued_max": int(queued.max()),
                "empty_ns": empty,
                "empty_percent": percent(empty, span),
            }
        )
    columns = ["device", "stream", "span_ns", "queued_mean", "queued_max", "empty_ns", "empty_percent"]
    return pd.DataFrame(rows, columns=columns)


def in_graph(view: TraceView) -> Flags:
    """Return which device events were launched by a call that launches a graph, shape (D,)."""
    trace, launch = view.trace, view.work.launch
    codes = np.array([trace.code(name) for name in GRAPH_LAUNCH])
    known = launch >= 0
    found = np.zeros(len(launch), dtype=bool)
    found[known] = np.isin(trace.events["name"][launch[known]], codes[codes >= 0])
    return found


def _first_of_launch(view: TraceView) -> Flags:
    """Return which device events are the earliest of their launch call, shape (D,)."""
    work = view.work
    order = np.lexsort((work.start, work.launch))
    launch = work.launch[order]
    found = np.zeros(len(work), dtype=bool)
    found[order] = np.append(True, launch[1:] != launch[:-1])[: len(launch)] & (launch >= 0)
    return found


def _delays(view: TraceView, chosen: Flags) -> dict[str, float]:
    trace, work = view.trace, view.work
    start, launch = work.start[chosen], work.launch[chosen]
    delay = start - trace.end[launch]
    late = delay[delay >= 0]
    return {
        **_spread("delay", late),
        "delay_max_ns": float(late.max()) if len(late) else float("nan"),
        "early": int((delay < 0).sum()),
        "clock_disorder": int((start < trace.start[launch]).sum()),
    }


def _short(view: TraceView, chosen: Flags) -> dict[str, float]:
    work = view.work
    short = (work.end - work.start)[chosen] < view.trace.events["duration"][work.launch[chosen]]
    return {"short": int(short.sum()), "short_percent": percent(short.sum(), len(short))}


def _spread(name: str, values: Nanoseconds) -> dict[str, float]:
    nothing = float("nan")
    mean, half, most = (values.mean(), *np.percentile(values, [50, 95])) if len(values) else (nothing, nothing, nothing)
    return {f"{name}_mean_ns": float(mean), f"{name}_p50_ns": float(half), f"{name}_p95_ns": float(most)}


def _queued(view: TraceView) -> tuple[Rows, Rows, Nanoseconds, Nanoseconds]:
    """Return device, stream, and queue interval of all work with a known launch."""
    work = view.work
    known = work.launch >= 0
    launched = np.minimum(view.trace.start[work.launch[known]], work.start[known])
    return work.device[known], work.stream[known], launched, work.end[known]
