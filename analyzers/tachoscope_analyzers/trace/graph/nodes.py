"""The nodes of a dependency graph: host calls and device events of a window, and moments at which threads hand work over."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.events.runtime_calls import Role, roles
from tachoscope_analyzers.trace.events.thread_handover import Handovers
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.graph.waits import Calls, Queues
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace

Array = npt.NDArray[np.int64]


class Node(IntEnum):
    """What a node is; `ORIGIN` is the begin of the window and `END` its end."""

    ORIGIN = 0
    CALL = 1
    WAIT = 2
    MARK = 3
    DEVICE = 4
    END = 5


NOWHERE = -(1 << 40)
"""The place of the window's begin and end."""


class Layout(msgspec.Struct, frozen=True):
    """Nodes before they are put in order: origin, host nodes by thread and time, device events by stream and time, end; shape (N,).

    Attributes:
        row: event, -1 for none. kind: `Node`. role: `Role` of calls. place: track, ~p for a device event of stream p.
        arrive: when its thread came to it, begin: when the work on it began, finish: when it was done, all in ns.
        launching, waiting: node of each call for what it launches, and for what it waits for, shape (C,). They differ where a call
            waits for its own copy. marks: node of each moment of a hand-over. first_device: node of the first device event.
        last: node at which the main thread ends, -1 without one.
    """

    row: Array
    kind: npt.NDArray[np.uint8]
    role: npt.NDArray[np.uint8]
    place: Array
    arrive: Array
    begin: Array
    finish: Array
    launching: Array
    waiting: Array
    marks: Array
    first_device: int
    last: int


def calls_between(trace: Trace, launch: Array, start: int, end: int) -> tuple[Calls, Array]:
    """Return the calls of a window that launch, wait or allocate, and the call of which each of `launch` (rows) is part (-1: none).

    Only outermost calls stand alone: what the runtime calls of the driver belongs to it.
    """
    times = trace.events["start"]
    rows = np.flatnonzero((trace.kind == Kind.RUNTIME) & (times < end))
    rows = rows[trace.end[rows] > start]
    launching = np.zeros(len(trace.kind), dtype=bool)
    launching[launch[launch >= 0]] = True
    track, begin, finish = (
        trace.events["track"][rows].astype(np.int64),
        np.maximum(times[rows], start),
        np.minimum(trace.end[rows], end),
    )
    order = np.lexsort((-finish, begin, track))
    rows, track, begin, finish = rows[order], track[order], begin[order], finish[order]
    reach = finish - start + track * (end - start + 1)
    outer = reach > np.append(np.int64(-1), np.maximum.accumulate(reach)[:-1])[: len(rows)]
    of_outer = np.cumsum(outer) - 1
    role = np.zeros(int(outer.sum()), dtype=np.uint8)
    np.maximum.at(role, of_outer, roles(trace, rows))
    matters = role != Role.OTHER
    matters[of_outer[launching[rows]]] = True
    number = np.cumsum(matters) - 1
    of_row = np.full(len(trace.kind), -1, dtype=np.int64)
    of_row[rows] = np.where(matters, number, -1)[of_outer] if len(rows) else -1
    kept = np.flatnonzero(outer)[matters]
    return Calls(rows[kept], track[kept], begin[kept], finish[kept], role[matters]), np.where(launch >= 0, of_row[launch], -1)


def queues_between(view: TraceView, device: Array, call: Array, start: int, end: int) -> Queues:
    """Return the device events at positions `device` of the view's work, clipped to a window."""
    work = view.work
    keys = np.stack([work.device[device], work.stream[device]])
    new = np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0))[: len(device)]
    stream = np.cumsum(new) - 1
    begin = np.maximum(work.start[device], start)
    launch = work.launch[device]
    enqueued = np.where(launch >= 0, view.trace.start[launch] if len(view.trace.start) else 0, np.minimum(start, 0))
    return Queues(
        stream=stream,
        begin=begin,
        end=np.minimum(work.end[device], end),
        enqueued=_rising(enqueued, stream),
        call=call,
        pageable=_pageable(view.trace, work.row[device]),
        names=[(int(one), int(other)) for one, other in keys[:, new].T],
    )


def _pageable(trace: Trace, rows: Array) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(rows), dtype=bool)
    copies = np.flatnonzero(trace.kind[rows] == Kind.MEMCPY)
    found[copies] = ["Pageable" in name for name in trace.names(rows[copies]).tolist()]
    return found


def _rising(values: Array, group: Array) -> Array:
    if not len(values):
        return values
    low, span = int(values.min()), int(values.max() - values.min()) + 1
    return np.asarray(np.maximum.accumulate(values - low + group * span) - group * span + low)


class WindowEnds(msgspec.Struct, frozen=True):
    """The window (ns), the main thread (-1: none) and when it ends."""

    start: int
    end: int
    main: int
    last: int


def layout(
    view: TraceView, device: Array, calls: Calls, queues: Queues, waits: tuple[Array, Array], moments: Handovers, ends: WindowEnds
) -> Layout:
    """Return the nodes. `device` are positions of the view's work, `waits` pairs of device event and call."""
    size = len(calls.row)
    host, split = _host(calls, queues, waits, moments, ends)
    order = np.lexsort((host["turn"], host["arrive"], host["place"]))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)
    waiting = number[:size].copy()
    waiting[split] = number[size : size + len(split)]
    marks = number[size + len(split) :]
    events = {
        "row": view.work.row[device],
        "kind": np.full(len(device), Node.DEVICE),
        "role": np.zeros(len(device)),
        "place": ~queues.stream,
        "arrive": queues.begin,
        "begin": queues.begin,
        "finish": queues.end,
    }
    bounds = {"row": (-1, -1), "kind": (Node.ORIGIN, Node.END), "role": (0, 0), "place": (NOWHERE, NOWHERE)}
    columns: dict[str, Array] = {}
    for name, values in events.items():
        first, final = bounds.get(name, (ends.start, ends.end))
        columns[name] = np.concatenate([[first], host[name][order], values, [final]]).astype(np.int64)
    return Layout(
        kind=columns.pop("kind").astype(np.uint8),
        role=columns.pop("role").astype(np.uint8),
        **columns,
        launching=number[:size],
        waiting=waiting,
        marks=marks[: len(moments.time)],
        first_device=len(order) + 1,
        last=int(marks[-1]) if ends.main >= 0 else -1,
    )


def _host(
    calls: Calls, queues: Queues, waits: tuple[Array, Array], moments: Handovers, ends: WindowEnds
) -> tuple[dict[str, npt.NDArray[Any]], Array]:
    """Return columns of host nodes (calls, waiting parts of calls, moments), and which are split."""
    awaited = calls.begin.copy()
    np.maximum.at(awaited, waits[1], queues.end[waits[0]])
    resumed = np.minimum(awaited, calls.end)
    waits_at_all, own = np.zeros(len(calls.row), dtype=bool), np.zeros(len(calls.row), dtype=bool)
    waits_at_all[waits[1]] = True
    own[waits[1][queues.call[waits[0]] == waits[1]]] = True
    split = np.flatnonzero(own)
    track, time = moments.track, moments.time
    if ends.main >= 0:
        track, time = np.append(track, ends.main), np.append(time, ends.last)
    nothing = np.full(len(time), -1, dtype=np.int64)
    kind = np.where(waits_at_all & ~own, Node.WAIT, Node.CALL)
    parts = {
        "row": (calls.row, calls.row[split], nothing),
        "kind": (kind, np.full(len(split), Node.WAIT), np.full(len(time), Node.MARK)),
        "role": (calls.role, calls.role[split], np.zeros(len(time), dtype=np.uint8)),
        "place": (calls.track, calls.track[split], track),
        "arrive": (calls.begin, calls.begin[split], time),
        "begin": (np.where(own, calls.begin, resumed), resumed[split], time),
        "finish": (np.where(own, calls.begin, calls.end), calls.end[split], time),
        "turn": (np.ones(len(calls.row)), np.full(len(split), 2), np.zeros(len(time))),
    }
    return {name: np.concatenate(columns) for name, columns in parts.items()}, split
