"""What each step of one rank lost, by class of bottleneck, with the evidence: from idle gaps, exposed work, and poor kernels."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.stats.arrays import Matrix, distinct
from tachoscope_analyzers.trace.analyses.inefficient_kernels import inefficient, underfilled
from tachoscope_analyzers.trace.device_time.device_use import DeviceUse, device_use
from tachoscope_analyzers.trace.device_time.idle import (
    CAUSES,
    HOST_LAUNCH,
    HOST_PAUSE,
    SLOW_LAUNCH,
    IdlePieces,
    pieces_of,
    places_of_pieces,
    summed,
)
from tachoscope_analyzers.trace.device_time.idle_evidence import input_pauses_of_host, odd_gaps, pauses_of_host, places_of
from tachoscope_analyzers.trace.device_time.ledger import HOST, step_ledger
from tachoscope_analyzers.trace.events import host_spans as host
from tachoscope_analyzers.trace.events.categories import Labels
from tachoscope_analyzers.trace.events.intervals import EMPTY, Intervals, covered, intersection, union
from tachoscope_analyzers.trace.events.launch_links import Rows
from tachoscope_analyzers.trace.events.missing_device_work import device_work_is_lost, holds_no_known_work
from tachoscope_analyzers.trace.events.steps import named
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_core.report.report import Evidence

SOURCE = "profiler trace"
MOST_STEPS = 4_096
_MOST_PLACES = 3
_LEAST_PLACE_RATIO = 0.05
_ESTIMATE_CERTAINTY = 0.7
"""Of seconds that could be saved, where others are seconds that were measured."""

CLASS_OF_CAUSE = {
    host.SYNCHRONISATION: "host_sync",
    HOST_LAUNCH: "launch_bound",
    SLOW_LAUNCH: "launch_bound",
    host.GARBAGE_COLLECTION: "host_pause",
    HOST_PAUSE: "host_pause",
    host.ALLOCATOR: "memory_thrash",
}
"""Class of bottleneck by cause of an idle gap; the other causes are states of the ledger."""

_ONCE_SECONDS = 0.1
"""From here on one launch or allocation is nothing that steps do: the first use of a device, of a kernel or of memory takes so long
(modules are loaded when they are first launched: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#lazy-loading)."""
_OF_FIRST_USE = (HOST_LAUNCH, SLOW_LAUNCH, host.ALLOCATOR)

_OF_DEVICES = ("h2d_copy", "launch_bound", "host_sync", "underfilled", "compute_inefficient", "memory_thrash", "decode_bandwidth")

_WORD = {host.SYNCHRONISATION: "in or after", HOST_LAUNCH: "until", SLOW_LAUNCH: "in a slow"}
"""How the call that tells the cause of a gap stands to it."""

LOADS_IN_PROCESS = "loader that loads in the training process (num_workers=0)"
"""Evidence of a loader without workers; its absence says nothing."""
LOADER_SECONDS = "in the loader's calls"
"""Evidence of the time that they take, whether the device had work meanwhile or not."""
_SINGLE_PROCESS = re.compile(r".*_SingleProcessDataLoaderIter")
_LOADER = re.compile(r"enumerate\(DataLoader\)|.*DataLoader\w*\.__next__")


class Loss(msgspec.Struct, frozen=True):
    """What one class cost each step of a rank.

    Attributes:
        seconds: shape (K,). evidence: where it was seen. certainty: 0 to 1, how well it is told apart from its look-alikes.
        alternative: the look-alike that would explain it as well, "" for none. margin: by which part of the seconds it is behind.
    """

    slug: str
    seconds: Matrix
    evidence: tuple[Evidence, ...] = ()
    certainty: float = 1.0
    alternative: str = ""
    margin: float = 0.0


class RankLosses(msgspec.Struct, frozen=True):
    """One rank's steps and losses, small enough to be sent and kept for thousands of ranks.

    Attributes:
        steps: the ledger by step, in ns, of the device that was busiest, or of the host (device -2): see `step_ledger`.
        not_measured: for each class that this trace could not show, the missing signal.
        use: how busy that device was, None for the host. blind: whether the trace holds too little
            of what the devices, or anyone, did to tell what the steps were spent on.
    """

    steps: npt.NDArray[Any]
    losses: tuple[Loss, ...]
    not_measured: dict[str, str]
    use: DeviceUse | None = None
    blind: bool = False


def rank_losses(view: TraceView) -> RankLosses:
    """Return the losses of a rank's steps.

    Time that is neither computing nor one of the losses is in the ledger's `unexplained`, which is a loss of class `unknown`.
    """
    states = step_ledger(view)
    device = _busiest(states)
    steps = states[states["device"] == device][:MOST_STEPS]
    if not len(steps):
        return RankLosses(steps, (), {})
    starts = steps["start_ns"]
    ends = starts + steps["duration_ns"]
    lost = device_work_is_lost(view) or holds_no_known_work(view)
    found = [_input(view, steps), *_states(steps)]
    missing: dict[str, str] = {}
    if device == HOST:
        missing |= dict.fromkeys(_OF_DEVICES, "work of a device in the trace")
        found += [_nothing_to_see(steps)] if lost else _pauses(view, starts, ends)
    else:
        pieces = pieces_of(view, device, int(starts[0]), int(ends[-1]))
        once = _first_uses(pieces, len(starts))
        places = places_of_pieces(view, pieces)
        found += [*_idle(places, pieces, ~once, starts, ends), _unexplained(view, places, pieces, once, steps)]
        for slug, judge in (("underfilled", underfilled), ("compute_inefficient", inefficient)):
            poor = judge(view, device, starts, ends)
            if isinstance(poor, str):
                missing[slug] = poor
            else:
                found.append(Loss(slug, poor.seconds, poor.evidence, _ESTIMATE_CERTAINTY))
    losses = tuple(loss for loss in found if loss is not None and loss.seconds.any())
    return RankLosses(steps, losses, missing, None if device == HOST else device_use(view, device), lost)


def _busiest(states: npt.NDArray[Any]) -> int:
    if not len(states):
        return HOST
    busy: Rows = states["duration_ns"].copy()
    for idle in ("host_wait_ns", "data_wait_ns", "unexplained_ns"):
        busy -= states[idle]
    numbers: Rows = states["device"]
    devices: list[int] = distinct(numbers).tolist()
    return max(devices, key=lambda device: int(busy[numbers == device].sum()))


def _span(steps: npt.NDArray[Any]) -> tuple[Rows, Rows]:
    """Return begin and end of each step, in ns."""
    begin: Rows = steps["start_ns"]
    duration: Rows = steps["duration_ns"]
    return begin, begin + duration


def _seconds(steps: npt.NDArray[Any], state: str) -> Matrix:
    return np.asarray(steps[f"{state}_ns"] / 1e9)


def _states(steps: npt.NDArray[Any]) -> list[Loss]:
    """Return the losses that are ledger states."""
    slugs = {
        "communication": "comm_exposed",
        "host_to_device": "h2d_copy",
        "checkpoint": "checkpoint_stall",
    }
    return [Loss(slug, _seconds(steps, state), (_of_state(steps, state),)) for state, slug in slugs.items()]


def _of_state(steps: npt.NDArray[Any], state: str) -> Evidence:
    seconds = _seconds(steps, state)
    return measured(f"{state} in the ledger of the step", seconds.mean(), "seconds per step", SOURCE)


def _input(view: TraceView, steps: npt.NDArray[Any]) -> Loss | None:
    """Return the wait for input. A trace does not show worker processes, so its kind is a likelihood."""
    seconds = _seconds(steps, "data_wait")
    if not seconds.any():
        return None
    trace = view.trace
    loads = named(trace, _LOADER, (Kind.CPU_OP, Kind.ANNOTATION))
    evidence = [_of_state(steps, "data_wait")]
    if not len(view.host.of_cause(host.DATA_LOADING).row):
        own = input_pauses_of_host(view)
        evidence += places_of(view, own, len(steps), "before the forward pass the main thread is in no operator for 1 ms or more")
        return Loss("input_workers", seconds, tuple(evidence), 0.6, "input_preprocess")
    in_process = named(trace, _SINGLE_PROCESS, (Kind.CPU_OP, Kind.ANNOTATION))
    if len(loads):
        most = trace.names(loads[[int(trace.events["duration"][loads].argmax())]])[0]
        evidence.append(_place(f"seen in {most}", len(loads), "calls"))
        calls = union(trace.start[loads], trace.end[loads])
        begin, end = _span(steps)
        within = covered(calls, begin, end)
        evidence.append(_place(LOADER_SECONDS, float(within.mean()) / 1e9, "seconds per step"))
    computing = _computing_ratio(view, loads)
    evidence.append(measured("operators within the loader's calls", computing, "ratio", SOURCE))
    if len(in_process):
        evidence.append(_place(LOADS_IN_PROCESS, len(in_process), "calls"))
    if computing >= 0.5:
        return Loss("input_preprocess", seconds, tuple(evidence), 0.8, "input_workers", 2 * computing - 1)
    if len(in_process):
        return Loss("input_workers", seconds, tuple(evidence), 0.9, "input_preprocess", 1 - 2 * computing)
    return Loss("input_workers", seconds, tuple(evidence), 0.6, "input_preprocess")


def _computing_ratio(view: TraceView, loads: Rows) -> float:
    """Return the share of loader calls in which an operator of their thread runs."""
    trace = view.trace
    if not len(loads):
        return 0.0
    calls = union(trace.start[loads], trace.end[loads])
    is_other = np.ones(len(trace.events), dtype=bool)
    is_other[loads] = False
    on_their_threads = np.isin(trace.events["track"], trace.events["track"][loads])
    operators = np.flatnonzero((trace.kind == Kind.CPU_OP) & on_their_threads & is_other)
    within = covered(calls, trace.start[operators], trace.end[operators]) == trace.events["duration"][operators]
    computing = union(trace.start[operators[within]], trace.end[operators[within]])
    return intersection(computing, calls).total / max(calls.total, 1)


def _first_uses(pieces: IdlePieces, steps: int) -> npt.NDArray[np.bool_]:
    """Return which gaps are of a kind that occurs once per job; a single step cannot show that others lack it."""
    long = pieces.end - pieces.start >= _ONCE_SECONDS * 1e9
    return np.asarray(long & np.isin(pieces.cause, [CAUSES.index(cause) for cause in _OF_FIRST_USE]) & (steps == 1))


def _idle(places: tuple[Labels, ...], pieces: IdlePieces, usual: npt.NDArray[np.bool_], starts: Rows, ends: Rows) -> list[Loss]:
    """Return idle gaps with a common cause as losses."""
    durations = covered(union(starts, ends), pieces.start, pieces.end)
    sums = summed(tuple(column[usual] for column in places), pieces.gap[usual], durations[usual])
    found = []
    for slug in dict.fromkeys(CLASS_OF_CAUSE.values()):
        causes = [cause for cause, of in CLASS_OF_CAUSE.items() if of == slug]
        mine = usual & np.isin(pieces.cause, [CAUSES.index(cause) for cause in causes])
        evidence = _places(sums[[cause in causes for cause in sums["cause"].tolist()]], len(starts))
        found.append(Loss(slug, _seconds_in(pieces, mine, starts, ends), evidence))
    return found


def _seconds_in(pieces: IdlePieces, mine: npt.NDArray[np.bool_], starts: Rows, ends: Rows) -> Matrix:
    time = Intervals(pieces.start[mine], pieces.end[mine]) if mine.any() else EMPTY
    return np.asarray(covered(time, starts, ends) / 1e9)


def _places(sums: npt.NDArray[Any], steps: int) -> tuple[Evidence, ...]:
    """Return the calls, operators and lines with most gap time (`idle.summed`), in seconds per step."""
    kept = sums[sums["total_ns"] >= _LEAST_PLACE_RATIO * max(sums["total_ns"].sum(), 1)][:_MOST_PLACES]
    return tuple(
        measured(
            "device idle: " + ", ".join(filter(None, _where(row))),
            row["total_ns"] / 1e9 / steps,
            "seconds per step",
            f"{row['gaps']} {'gap' if row['gaps'] == 1 else 'gaps'} of the device",
        )
        for row in kept
    )


def _where(row: Any) -> tuple[str, str, str]:
    told = f"{_WORD.get(row['cause'], 'in')} {row['detail']}" if row["detail"] else ""
    if not told:
        told = "the host in no operator or call" if row["cause"] == HOST_PAUSE else str(row["cause"]).replace("_", " ")
    return told, _with("in ", row["operator"]), _with("at ", _short(row["source"]))


def _unexplained(
    view: TraceView, places: tuple[Labels, ...], pieces: IdlePieces, once: npt.NDArray[np.bool_], steps: npt.NDArray[Any]
) -> Loss:
    """Return time without a cause, and possible first uses of a device: no steady state is visible there."""
    first = _seconds_in(pieces, once, *_span(steps))
    evidence = [_of_state(steps, "unexplained"), *odd_gaps(view, pieces, len(steps))]
    if once.any():
        evidence = [
            _place(
                f"in single launches or allocations of {_ONCE_SECONDS:g} s and more, as first use takes: record after warm-up",
                first.mean(),
                "seconds per step",
            ),
            *_places(_sums_of(places, pieces, once), len(steps)),
            *evidence,
        ]
    return Loss("unknown", _seconds(steps, "unexplained") + first, tuple(evidence))


def _sums_of(places: tuple[Labels, ...], pieces: IdlePieces, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    return summed(tuple(column[chosen] for column in places), pieces.gap[chosen], (pieces.end - pieces.start)[chosen])


def _nothing_to_see(steps: npt.NDArray[Any]) -> Loss:
    return Loss("unknown", _seconds(steps, "unexplained"), (_place("work that the trace holds of this time", 0, "events"),))


def _pauses(view: TraceView, starts: Rows, ends: Rows) -> list[Loss]:
    """Return the main thread's time outside of operators, for a job without a device."""
    collecting, silent, rest = pauses_of_host(view)
    count = len(starts)
    named_pauses = places_of(view, collecting, count, "garbage collection")
    pauses = places_of(view, silent, count, "the main thread in no operator for 1 ms or more")
    paused = covered(collecting, starts, ends) + covered(silent, starts, ends)
    # Without Python frames, writing a checkpoint in a call that nothing names looks like any other pause.
    unnamed = silent.total > collecting.total and not len(view.trace.python)
    what = "the main thread between operators, under 1 ms each"
    return [
        Loss("host_pause", paused / 1e9, (*named_pauses, *pauses), 0.7 if unnamed else 0.9, "checkpoint_stall" if unnamed else ""),
        Loss("unknown", covered(rest, starts, ends) / 1e9, places_of(view, rest, count, what)),
    ]


def _short(source: str) -> str:
    """Return a source line with the last two parts of its path: `models/resnet.py(132): forward`."""
    path, bracket, rest = source.partition("(")
    return "/".join(path.split("/")[-2:]) + bracket + rest


def _with(word: str, text: str) -> str:
    return f"{word}{text}" if text else ""


def _place(signal: str, value: float, unit: str) -> Evidence:
    return measured(signal, value, unit, SOURCE)
