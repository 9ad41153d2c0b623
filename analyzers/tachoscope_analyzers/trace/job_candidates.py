"""What only shows when ranks are compared: late ranks, uneven data, slow links, pipeline bubbles."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from tachoscope_analyzers.judge import Candidate
from tachoscope_analyzers.steps import Matrix
from tachoscope_analyzers.thresholds import threshold
from tachoscope_analyzers.trace.job_losses import JobLosses
from tachoscope_analyzers.trace.ranks import JobTraces
from tachoscope_core.report import Evidence

_SOURCE = "collectives of all ranks"
_SLOW_RATIO = 0.5
"""Design choice: a group that moves less than half of what its sisters move is slow; by a few per cent all of them differ."""
_OWN_STATES = ("data_wait", "compute", "host_wait", "host_to_device", "checkpoint", "unexplained")


def across_ranks(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the candidates that need several ranks; none where they share no collective."""
    if len(split.ranks) < 2 or not len(job.collectives):
        return []
    return [*_late(job, split), *_slow_links(job, split)]


def _late(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the ranks that the others wait for; waiting for no rank in particular is uneven work, if it is large."""
    found = []
    waited = _waits_by_step(job, split)
    persistent = job.stragglers[job.stragglers["straggler"]]
    for row in persistent.sort_values("waited_ns", ascending=False).drop_duplicates("rank").to_dict("records"):
        if row["rank"] not in split.ranks:
            continue
        state, excess = _excess(split, int(row["rank"]))
        slug = "input_straggler" if state == "data_wait" else "compute_straggler"
        evidence = [
            _evidence("others wait for this rank in its group's collectives", row["waited_per_step_ns"] / 1e9, "seconds per step"),
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
            _evidence(f"{state} of this rank beyond the others' median", excess, "seconds per step"),
        ]
        # Step by step as the waits are, and in sum what was waited for this rank.
        seconds = waited * (row["waited_per_step_ns"] / 1e9 / waited.mean()) if waited.mean() > 0 else waited
        at_first = row["waited_at_first_ns"] / max(row["waited_ns"], 1)
        certainty = min(1.0 - float(row["chance_ratio"]), 1.0 - at_first)
        found.append(Candidate(slug, seconds, [int(row["rank"])], evidence, certainty))
    if not found and waited.mean() >= threshold("jitter_share") * split.step.mean():
        evidence = [_evidence("mean wait for whichever rank came last", float(waited.mean()), "seconds per step")]
        found.append(Candidate("data_imbalance", waited, "all", evidence, 0.5, ("unknown", 0.0)))
    return found


def _waits_by_step(job: JobTraces, split: JobLosses) -> Matrix:
    """Return the mean wait of the ranks that waited, by step, in seconds, shape (K,)."""
    by_step = job.collectives.groupby("step")["added_wait_ns"].sum() / 1e9
    waits = np.array([float(by_step.get(number, 0.0)) for number in split.numbers.tolist()])
    if not waits.any() and len(by_step):  # collectives whose step is not known count evenly
        waits = np.full(len(split.numbers), float(by_step.sum()) / len(split.numbers))
    return np.asarray(np.minimum(waits, split.step))


def _excess(split: JobLosses, rank: int) -> tuple[str, float]:
    """Return the state in which a rank spends most time beyond the median of the others, and how much, in seconds per step."""
    place = split.ranks.index(rank)
    excess = {}
    for state in _OWN_STATES:
        means = split.states[state].mean(axis=0)
        excess[state] = float(means[place] - np.median(np.delete(means, place)))
    state = max(excess, key=excess.__getitem__)
    return state, excess[state]


def _slow_links(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the process groups whose transfers are far slower than those of their sisters with the same kind and size."""
    table = job.collectives.dropna(subset=["bus_bandwidth_gb_per_s"])
    table = table[table["bytes"] > 0]
    found = []
    for _, mine in table.groupby(["group_description", "kind", "bytes"]):
        by_group = mine.groupby("group_number")["bus_bandwidth_gb_per_s"].median()
        if len(by_group) < 2:
            continue
        slow = by_group[by_group < _SLOW_RATIO * by_group.drop(by_group.idxmin()).median()]
        for group, bandwidth in slow.items():
            found.append(_slow_group(job, split, mine[mine["group_number"] == group], float(bandwidth), float(by_group.median())))
    return [candidate for candidate in found if candidate is not None]


def _slow_group(job: JobTraces, split: JobLosses, mine: pd.DataFrame, bandwidth: float, usual: float) -> Candidate | None:
    ranks = sorted(set(job.waits[job.waits["group_number"] == mine["group_number"].iloc[0]]["rank"].tolist()))
    lost = mine["transfer_ns"].sum() / 1e9 * (1 - bandwidth / usual) / len(split.numbers)
    name = mine["group_description"].iloc[0] or mine["group"].iloc[0]
    evidence = [
        _evidence(f"bus bandwidth of {mine['kind'].iloc[0]} in group {name}", bandwidth, "GB/s", threshold_value=usual),
    ]
    return Candidate("slow_link", np.full(len(split.numbers), lost), ranks, evidence, 0.8) if ranks else None


def _evidence(signal: str, value: float, unit: str, threshold_value: float | None = None) -> Evidence:
    comparison: Literal["<", ""] = "<" if threshold_value is not None else ""
    return Evidence(signal=signal, value=float(value), unit=unit, source=_SOURCE, threshold=threshold_value, comparison=comparison)
