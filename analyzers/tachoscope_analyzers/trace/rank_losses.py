"""What each step of one rank lost, by class of bottleneck, with the evidence: from idle gaps, exposed work, and poor kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tachoscope_analyzers.steps import Matrix
from tachoscope_analyzers.trace import host_spans as host
from tachoscope_analyzers.trace.idle import CAUSES, HOST_LAUNCH, HOST_PAUSE, SLOW_LAUNCH, by_cause, idle, pieces_of
from tachoscope_analyzers.trace.intervals import EMPTY, Intervals, covered, intersection, union
from tachoscope_analyzers.trace.kinds import Kind
from tachoscope_analyzers.trace.links import Rows
from tachoscope_analyzers.trace.poor_kernels import inefficient, underfilled
from tachoscope_analyzers.trace.states import HOST, step_states
from tachoscope_analyzers.trace.steps import named
from tachoscope_analyzers.trace.view import View
from tachoscope_core.report import Evidence

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

_SINGLE_PROCESS = re.compile(r".*_SingleProcessDataLoaderIter")
_LOADER = re.compile(r"enumerate\(DataLoader\)|.*DataLoader\w*\.__next__")


@dataclass(frozen=True, slots=True)
class Loss:
    """What one class cost each step of a rank.

    Attributes:
        seconds: shape (K,). evidence: where it was seen. certainty: 0 to 1, how well it is told apart from its look-alikes.
        alternative: the look-alike that would explain it as well, "" for none.
    """

    slug: str
    seconds: Matrix
    evidence: tuple[Evidence, ...] = ()
    certainty: float = 1.0
    alternative: str = ""


@dataclass(frozen=True, slots=True)
class RankLosses:
    """One rank's steps and losses, small enough to be sent and kept for thousands of ranks.

    Attributes:
        steps: the ledger by step, in ns, of the device that was busiest, or of the host (device -1): see `step_states`.
        not_measured: for each class that this trace could not show, the missing signal.
    """

    steps: pd.DataFrame
    losses: tuple[Loss, ...]
    not_measured: dict[str, str]


def rank_losses(view: View) -> RankLosses:
    """Return the losses of a rank's steps.

    Time that is neither computing nor one of the losses is in the ledger's `unexplained`, which is a loss of class `unknown`.
    """
    states = step_states(view)
    device = _busiest(states)
    steps = states[states["device"] == device].head(MOST_STEPS).reset_index(drop=True)
    if not len(steps):
        return RankLosses(steps, (), {})
    starts = steps["start_ns"].to_numpy()
    ends = starts + steps["duration_ns"].to_numpy()
    found = [_input(view, steps), *_states(steps)]
    missing: dict[str, str] = {}
    if device == HOST:
        missing |= dict.fromkeys(
            ("h2d_copy", "launch_bound", "host_sync", "underfilled", "compute_inefficient", "memory_thrash", "decode_bandwidth"),
            "work of a device in the trace",
        )
    else:
        found += _idle(view, device, starts, ends)
        for slug, judge in (("underfilled", underfilled), ("compute_inefficient", inefficient)):
            poor = judge(view, device, starts, ends)
            if isinstance(poor, str):
                missing[slug] = poor
            else:
                found.append(Loss(slug, poor.seconds, poor.evidence, _ESTIMATE_CERTAINTY))
    return RankLosses(steps, tuple(loss for loss in found if loss is not None and loss.seconds.any()), missing)


def _busiest(states: pd.DataFrame) -> int:
    if not len(states):
        return HOST
    busy = states.assign(busy=states["duration_ns"] - states["host_wait_ns"] - states["data_wait_ns"] - states["unexplained_ns"])
    sums = busy.groupby("device")["busy"].sum()
    return int(sums.index.to_numpy(dtype=np.int64)[int(sums.to_numpy().argmax())])


def _seconds(steps: pd.DataFrame, state: str) -> Matrix:
    return np.asarray(steps[f"{state}_ns"].to_numpy() / 1e9)


def _states(steps: pd.DataFrame) -> list[Loss]:
    """Return the losses that are a state of the ledger as they stand."""
    slugs = {
        "communication": "comm_exposed",
        "host_to_device": "h2d_copy",
        "checkpoint": "checkpoint_stall",
        "unexplained": "unknown",
    }
    return [Loss(slug, _seconds(steps, state), (_of_state(steps, state),)) for state, slug in slugs.items()]


def _of_state(steps: pd.DataFrame, state: str) -> Evidence:
    seconds = _seconds(steps, state)
    return Evidence(
        signal=f"{state} in the ledger of the step", value=float(seconds.mean()), unit="seconds per step", source=SOURCE
    )


def _input(view: View, steps: pd.DataFrame) -> Loss | None:
    """Return the wait for input. A trace shows where the loop stood, not what a worker process did, so the kind is a likelihood."""
    seconds = _seconds(steps, "data_wait")
    if not seconds.any():
        return None
    trace = view.trace
    loads = named(trace, _LOADER, (Kind.CPU_OP, Kind.ANNOTATION))
    evidence = [_of_state(steps, "data_wait")]
    in_process = named(trace, _SINGLE_PROCESS, (Kind.CPU_OP, Kind.ANNOTATION))
    if len(loads):
        most = trace.names(loads[[int(trace.events["duration"][loads].argmax())]])[0]
        evidence.append(_place(f"seen in {most}", len(loads), "calls"))
    computing = _computing_ratio(view, loads)
    evidence.append(Evidence(signal="operators within the loader's calls", value=computing, unit="ratio", source=SOURCE))
    if computing >= 0.5:
        return Loss("input_preprocess", seconds, tuple(evidence), 0.8, "input_fetch")
    if len(in_process):
        evidence.append(_place("loader that loads in the training process (num_workers=0)", len(in_process), "calls"))
        return Loss("input_workers", seconds, tuple(evidence), 0.9, "input_preprocess")
    return Loss("input_workers", seconds, tuple(evidence), 0.6, "input_preprocess")


def _computing_ratio(view: View, loads: Rows) -> float:
    """Return the share of the loader's calls in which an operator of their thread runs."""
    trace = view.trace
    if not len(loads):
        return 0.0
    calls = union(trace.start[loads], trace.end[loads])
    operators = np.flatnonzero(
        (trace.kind == Kind.CPU_OP) & np.isin(trace.events["track"], np.unique(trace.events["track"][loads]))
    )
    operators = np.setdiff1d(operators, loads)
    within = covered(calls, trace.start[operators], trace.end[operators]) == trace.events["duration"][operators]
    computing = union(trace.start[operators[within]], trace.end[operators[within]])
    return intersection(computing, calls).total / max(calls.total, 1)


def _idle(view: View, device: int, starts: Rows, ends: Rows) -> list[Loss]:
    """Return the losses that are idle gaps of one cause."""
    pieces = pieces_of(view, device, int(starts[0]), int(ends[-1]))
    table = by_cause(idle(view))
    table = table[table["device"] == device]
    found: dict[str, Loss] = {}
    for cause, slug in CLASS_OF_CAUSE.items():
        mine = pieces.cause == CAUSES.index(cause)
        time = Intervals(pieces.start[mine], pieces.end[mine]) if mine.any() else EMPTY
        seconds = covered(time, starts, ends) / 1e9
        evidence = _places(table[table["cause"] == cause])
        if slug in found:
            seconds, evidence = found[slug].seconds + seconds, found[slug].evidence + evidence
        found[slug] = Loss(slug, np.asarray(seconds), evidence)
    return list(found.values())


def _places(table: pd.DataFrame) -> tuple[Evidence, ...]:
    """Return the calls, operators and source lines in which most of the gaps arose."""
    total = table["total_ns"].sum()
    if not total:
        return ()
    kept = table[table["total_ns"] >= _LEAST_PLACE_RATIO * total].head(_MOST_PLACES)
    return tuple(
        Evidence(
            signal="idle: "
            + ", ".join(
                part
                for part in (_with("after ", row["detail"]), _with("in ", row["operator"]), _with("at ", _short(row["source"])))
                if part
            ),
            value=float(row["total_ns"] / total),
            unit="ratio",
            source=f"{row['gaps']} gaps of the device",
        )
        for row in kept.to_dict("records")
    )


def _short(source: str) -> str:
    """Return a source line with the last two parts of its path: `models/resnet.py(132): forward`."""
    path, bracket, rest = source.partition("(")
    return "/".join(path.split("/")[-2:]) + bracket + rest


def _with(word: str, text: str) -> str:
    return f"{word}{text}" if text else ""


def _place(signal: str, value: float, unit: str) -> Evidence:
    return Evidence(signal=signal, value=float(value), unit=unit, source=SOURCE)
