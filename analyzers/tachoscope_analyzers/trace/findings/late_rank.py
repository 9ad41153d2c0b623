"""A rank that the others wait for step after step: what a fix of it alone would save, and what it does meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.trace.findings.job_losses import JobLosses
from tachoscope_core.report.report import Evidence

_SOURCE = "collectives of all ranks"
_OWN_STATES = ("data_wait", "compute", "host_wait", "host_to_device", "checkpoint", "unexplained")
_CLASS_OF_STATE = {"data_wait": "input_straggler", "checkpoint": "checkpoint_stall"}
_HOST_CLASSES = ("host_pause", "launch_bound", "host_sync", "memory_thrash")
_MAIN_RATIO = 0.5
"""Design choice: a class explains the host's excess if it is more than half of it."""
INPUT = ("input_preprocess", "input_workers", "input_fetch")

_PAUSE = (
    "find out what that rank's training thread does outside of operators (py-spy dump --pid PID, a few times): "
    "logging, garbage collection, a lock or a sleep; take it out of the loop, or do it on all ranks at the same step"
)
_SLOW_HOST = (
    "compare that rank's host with a good one: load, clock and pinning of its cores (taskset -cp PID); the device is not late"
)


class _Excess(msgspec.Struct, frozen=True):
    """What a rank has beyond the median of the others: `state` of the ledger, `cause` within it ("" if none), seconds per step."""

    state: str
    cause: str
    seconds: float


def late_rank(split: JobLosses, row: dict[Any, Any], delay: Matrix) -> list[Candidate]:
    """Return the candidates of a straggler: its main cause, and what else makes it as late as it is.

    A cause costs no more than the rank spends on it beyond the others; the rest of the delay is the next cause's.

    Args:
        row: of `stragglers.stragglers`. delay: seconds by which each step would be shorter if this rank came when the next to last
            does, shape (K,).
    """
    rank = int(row["rank"])
    at_first = row["waited_at_first_ns"] / max(row["waited_ns"], 1)
    certainty = min(1.0 - float(row["chance_ratio"]), 1.0 - at_first)
    whole = float(delay.mean())
    found: list[Candidate] = []
    left = 1.0
    for excess in _excesses(split, rank):
        part = min(excess.seconds / whole, left) if excess.seconds > 0 and whole > 0 else left
        left -= part
        slug, action = _class(excess)
        evidence = [*_evidence_of(row, whole), *_evidence_of_excess(split, rank, excess)]
        # Others may be nearly as late: fixing this one alone saves little, which is not a warning; who is late stays a fact.
        small = part * whole < threshold("warning_share") * split.step.mean()
        if not found or not small:
            found.append(Candidate(slug, part * delay, [rank], evidence, certainty, action=action, level="info" if small else None))
    return found


def counted(late: list[Candidate]) -> dict[str, set[int]]:
    """Return, by class, the ranks whose own loss already stands in a finding of a late rank."""
    found: dict[str, set[int]] = {}
    for candidate in late:
        for slug in INPUT if candidate.slug == "input_straggler" else (candidate.slug,):
            if isinstance(candidate.ranks, list):
                found.setdefault(slug, set()).update(candidate.ranks)
    return found


def _class(excess: _Excess) -> tuple[str, str]:
    """Return the class, and the action if the class's own does not apply."""
    if excess.state != "host_wait":
        return _CLASS_OF_STATE.get(excess.state, "compute_straggler"), ""
    return ("host_pause", _PAUSE) if excess.cause == "host_pause" else ("compute_straggler", _SLOW_HOST)


def _excesses(split: JobLosses, rank: int) -> list[_Excess]:
    """Return where a rank exceeds the others, the largest first; without an excess the least negative state."""
    place = split.ranks.index(rank)
    by_state = {state: _beyond(split.states[state], place) for state in _OWN_STATES}
    first, *others = sorted(by_state, key=by_state.__getitem__, reverse=True)
    states = [first, *(state for state in others if by_state[state] > 0)]
    return [
        _Excess(state, _cause(split, rank, by_state[state]) if state == "host_wait" else "", by_state[state]) for state in states
    ]


def _cause(split: JobLosses, rank: int, host_wait: float) -> str:
    """Return the class that explains most of a rank's extra host wait, "" for none."""
    if rank in split.host_only:  # without a device host_wait is the time in which the main thread is in no operator
        return "host_pause"
    place = split.ranks.index(rank)
    by_class = {slug: _beyond(split.seconds[slug], place) for slug in _HOST_CLASSES if slug in split.seconds}
    cause = max(by_class, key=by_class.__getitem__, default="")
    return cause if cause and by_class[cause] > _MAIN_RATIO * host_wait else ""


def _beyond(seconds: Matrix, place: int) -> float:
    means = seconds.mean(axis=0)
    return float(means[place] - np.median(np.delete(means, place)))


def _evidence_of(row: dict[Any, Any], gain: float) -> list[Evidence]:
    return [
        _evidence("saved if this rank alone came when the next to last does", gain, "seconds per step"),
        _evidence(
            "mean wait of the others for it (in the ledger straggler_wait is the mean of all ranks, this one's 0 included)",
            row["waited_per_step_ns"] / 1e9,
            "seconds per step",
        ),
        _evidence(
            "of that, in the recording's first collective, where a profiler that starts late looks the same",
            row["waited_at_first_ns"] / 1e9 / max(row["steps"], 1),
            "seconds per step",
        ),
        _evidence("collectives in which it came last", row["last_collectives"] / max(row["late_collectives"], 1), "ratio"),
        _evidence(
            "of these, its own was the shortest (needs no clocks)",
            row["shortest_collectives"] / max(row["last_collectives"], 1),
            "ratio",
        ),
    ]


def _evidence_of_excess(split: JobLosses, rank: int, excess: _Excess) -> list[Evidence]:
    """Return a rank's excess over the others as evidence, with its place in the rank's own trace."""
    signal = f"{excess.state} of this rank beyond the others' median"
    if excess.state == "host_wait":
        signal += ": its host is late, not its device" if rank not in split.host_only else ": its main thread is in no operator"
    found = [_evidence(signal, excess.seconds, "seconds per step")]
    slugs = INPUT if excess.state == "data_wait" else (excess.cause or excess.state,)
    for slug in slugs:
        own = split.loss.get(slug, {}).get(rank)
        found += (
            [msgspec.structs.replace(row, source=f"{row.source}, rank {rank}") for row in own.evidence] if own is not None else []
        )
    return found


def _evidence(signal: str, value: float, unit: str) -> Evidence:
    return measured(signal, value, unit, _SOURCE)
