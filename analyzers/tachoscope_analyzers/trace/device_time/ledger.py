"""The ledger of a trace: each nanosecond of each step of a device, or of the host where there is none, in exactly one state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.device_time.before_forward import input_pauses
from tachoscope_analyzers.trace.device_time.breakdown import DeviceTime, device_time
from tachoscope_analyzers.trace.device_time.idle import (
    CAUSES,
    HOST_LAUNCH,
    HOST_PAUSE,
    KERNEL_GAP,
    KERNEL_WAIT,
    SLOW_LAUNCH,
    UNEXPLAINED,
    pieces_of,
)
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.host_spans import MARKER
from tachoscope_analyzers.trace.events.intervals import EMPTY, Intervals, covered, difference, intersection, union
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.missing_device_work import device_work_is_lost, holds_no_known_work
from tachoscope_analyzers.trace.events.steps import Steps, named
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_core.metrics.training import TRAINING_STATES

if TYPE_CHECKING:
    import pandas as pd

STATE_OF_CAUSE = {
    host.DATA_LOADING: "data_wait",
    host.CHECKPOINT: "checkpoint",
    host.EVALUATION: "evaluation",
    host.COMMUNICATION: "communication",
    host.ALLOCATOR: "host_wait",
    host.GARBAGE_COLLECTION: "host_wait",
    HOST_PAUSE: "host_wait",
    host.SYNCHRONISATION: "host_wait",
    HOST_LAUNCH: "host_wait",
    SLOW_LAUNCH: "host_wait",
    KERNEL_GAP: "compute",
    KERNEL_WAIT: "unexplained",
    UNEXPLAINED: "unexplained",
}
"""State of idle time by its cause. The short gaps between queued kernels are the device's own: nobody made it wait."""

HOST = -2
"""Stands for the device in the ledger of a trace without device work; -1 is a device whose number its writer does not tell."""
STATES = ("compute", "communication", "host_to_device", "data_wait", "host_wait", "checkpoint", "evaluation", "unexplained")
assert set(STATES) <= set(TRAINING_STATES)
LEDGER = np.dtype(
    [(name, np.int64) for name in ("device", "step", "start_ns", "duration_ns", *(f"{state}_ns" for state in STATES))]
)

_COLLECTIVE = re.compile(r"(gloo|nccl|mpi|ucc|c10d|rccl|xccl):|record_param_comms|.*\bbarrier$")
_ACROSS = re.compile(r"(?i).*(HtoD|DtoH|PtoP|HostToDevice|DeviceToHost|PeerToPeer|memcpy32_h2d|H2D|D2H)")


def step_states(view: TraceView) -> pd.DataFrame:
    """Return the ledger, see `step_ledger`."""
    import pandas as pd  # a third of a second, which a report does not need

    return pd.DataFrame(step_ledger(view))


def step_ledger(view: TraceView) -> npt.NDArray[Any]:
    """Return the ledger: one row for each step of each device, or of the host (device -2) in a trace without device work.

    Where the work of the devices is lost, or nothing that the trace holds is known, it is one row a step, all of it unexplained.

    Invariant: the states of a row sum to its `duration_ns`, to the nanosecond.
    Fields (`LEDGER`): device, step, start_ns, duration_ns, then nanoseconds by state: `compute_ns` (kernels that do not
    communicate, copies within the device, and gaps of up to 10 us between queued kernels), `communication_ns` (exposed),
    `host_to_device_ns` (exposed copies between host and device), `data_wait_ns`, `host_wait_ns` (the device is idle while the
    host launches, synchronises, allocates or pauses), `checkpoint_ns`, `evaluation_ns`, `unexplained_ns`.
    """
    steps = view.device_steps
    found = [_rows(device, steps, device_states(view, device)) for device in view.devices]
    if device_work_is_lost(view) or holds_no_known_work(view):
        found = [_rows(HOST, steps, {"unexplained": union(steps.start, steps.end)})]
    elif not len(view.work):
        found = [_rows(HOST, steps, host_states(view))]
    table = np.concatenate(found)
    total = sum((table[f"{state}_ns"] for state in STATES), np.zeros(len(table), dtype=np.int64))
    assert (total == table["duration_ns"]).all(), "the states of a step must sum to it"
    return table


def device_states(view: TraceView, device: int) -> dict[str, Intervals]:
    """Return the set of time of each state over the steps of a device; the sets are disjoint and cover them."""
    steps = view.device_steps
    start, end = int(steps.start[0]), int(steps.end[-1])
    time = device_time(view, device)
    across = _exposed_across(view, device, time)
    found = {
        "compute": union(
            *_together(time.compute, difference(time.exposed_copies, across)),
        ),
        "communication": time.exposed_communication,
        "host_to_device": across,
    }
    pieces = pieces_of(view, device, start, end)
    for cause, state in STATE_OF_CAUSE.items():
        mine = pieces.cause == CAUSES.index(cause)
        idle = Intervals(pieces.start[mine], pieces.end[mine])
        found[state] = union(*_together(found.get(state, EMPTY), idle))
    evaluating = view.host.of_cause(host.EVALUATION).time
    found = {state: difference(times, evaluating) for state, times in found.items()}
    found["evaluation"] = evaluating
    return found


def host_states(view: TraceView) -> dict[str, Intervals]:
    """Return the set of time of each state over the steps of the host, judged by its main thread.

    Operators of any thread are compute (autograd has its own); a collective counts where none of them runs. What is left is
    the time in which the program was outside all operators: data_wait in pauses before the forward pass (`input_pauses`), else
    host_wait.
    """
    trace, steps = view.trace, view.device_steps
    if not len(steps):
        return dict.fromkeys(STATES, EMPTY)
    rest = Intervals(steps.start, steps.end)
    operators = np.flatnonzero(trace.kind == Kind.CPU_OP)
    operators = operators[~_matching(view, operators, MARKER) & ~_matching(view, operators, _COLLECTIVE)]
    optimizer = named(trace, re.compile(r"Optimizer\."), (Kind.ANNOTATION, Kind.CPU_OP))
    collectives = named(trace, _COLLECTIVE, (Kind.ANNOTATION, Kind.CPU_OP))
    order = (
        ("evaluation", view.host.of_cause(host.EVALUATION).time),
        ("data_wait", view.host.of_cause(host.DATA_LOADING).time),
        ("checkpoint", view.host.of_cause(host.CHECKPOINT).time),
        ("compute", _time(view, np.concatenate([operators, optimizer]))),
        ("communication", _time(view, collectives)),
    )
    found: dict[str, Intervals] = {}
    for state, times in order:
        found[state] = intersection(rest, times)
        rest = difference(rest, times)
    waiting = input_pauses(trace, steps, rest)
    found["data_wait"] = union(*_together(found["data_wait"], waiting))
    found["host_wait"] = difference(rest, waiting)
    return found


def _rows(device: int, steps: Steps, found: dict[str, Intervals]) -> npt.NDArray[Any]:
    rows = np.zeros(len(steps), dtype=LEDGER)
    rows["device"], rows["step"], rows["start_ns"] = device, steps.number, steps.start
    rows["duration_ns"] = steps.end - steps.start
    for state in STATES:
        rows[f"{state}_ns"] = covered(found.get(state, EMPTY), steps.start, steps.end)
    return rows


def _together(one: Intervals, other: Intervals) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.concatenate([one.starts, other.starts]), np.concatenate([one.ends, other.ends])


def _exposed_across(view: TraceView, device: int, time: DeviceTime) -> Intervals:
    """Return the exposed copies between host and device, or between devices."""
    work = view.work
    mine = np.flatnonzero((work.device == device) & (work.kind == Kind.MEMCPY))
    mine = mine[_matching(view, work.row[mine], _ACROSS)]
    return intersection(time.exposed_copies, union(work.start[mine], work.end[mine]))


def _matching(view: TraceView, rows: Rows, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Return which events' names start with a pattern, shape of `rows`."""
    codes, place = view.trace.distinct_names(rows)
    found = np.array([pattern.match(text) is not None for text in view.trace.strings[codes]], dtype=bool)
    return np.asarray(found[place] if len(codes) else found)


def _time(view: TraceView, rows: Rows) -> Intervals:
    return union(view.trace.start[rows], view.trace.end[rows])
