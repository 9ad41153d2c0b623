"""What only shows when ranks are compared: late ranks, uneven data, slow links, pipeline bubbles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.trace.findings.job_losses import JobLosses, by_step
from tachoscope_analyzers.trace.findings.late_rank import late_rank
from tachoscope_analyzers.trace.ranks.job import JobTraces
from tachoscope_core.report.report import Evidence

if TYPE_CHECKING:
    import pandas as pd

_SOURCE = "collectives of all ranks"
_FEW = "record more steps (10 and more): in so few, one rank may be last by chance"
_SLOW_RATIO = 0.5
"""Design choice: a group that moves less than half of what its sisters move is slow; by a few per cent all of them differ."""
_EXPLAINED_RATIO = 0.5
"""Design choice: lateness is work only where more than half of it is longer computing of the late rank."""


def across_ranks(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the candidates that need several ranks; none where they share no collective."""
    if len(split.ranks) < 2 or not job.compared_collectives:
        return []
    return [*_late(job, split), *_slow_links(job, split)]


def _late(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the ranks that the others wait for; waiting without a particular rank is uneven work, if large."""
    persistent = job.stragglers[job.stragglers["straggler"]]
    found = []
    for row in persistent.sort_values("waited_ns", ascending=False).drop_duplicates("rank").to_dict("records"):
        if row["rank"] in split.ranks:
            mine = (job.collectives["group_number"] == row["group_number"]) & (job.collectives["last_rank"] == row["rank"])
            found += late_rank(split, row, by_step(job.collectives[mine], "added_delay_ns", split))
    return found or _suspected(job, split) or _uneven(job, split)


def _suspected(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the rank that nearly all waiting is for, where so few collectives were recorded that it may be chance.

    It is a loss without a known cause then, and no health.
    """
    found = []
    for row in job.stragglers.sort_values("waited_ns", ascending=False).to_dict("records"):
        often = row["last_collectives"] >= threshold("straggler_steps") * row["late_collectives"]
        if row["rank"] in split.ranks and often and row["coverage_ratio"] >= threshold("culprit_coverage"):
            mine = (job.collectives["group_number"] == row["group_number"]) & (job.collectives["last_rank"] == row["rank"])
            late = late_rank(split, row, by_step(job.collectives[mine], "added_delay_ns", split))[0]
            if late.level is None:
                found.append(replace(late, slug="unknown", certainty=0.5, alternative=(late.slug, 0.0), action=_FEW))
    return found[:1]


def _uneven(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return the gain of even work, if large; the data are the cause if each step's late rank computed longer."""
    ranks = len(split.ranks)
    waited = by_step(job.collectives, "added_wait_ns", split)
    saved = waited * (ranks - 1) / ranks  # even work takes the mean of all ranks, that of the last one included
    if saved.mean() < threshold("jitter_share") * split.step.mean():
        return []
    longer = float(_longer(job, split).mean())
    evidence = [
        _evidence("mean wait of the others for whichever rank came last", float(waited.mean()), "seconds per step"),
        _evidence("computing of the rank that came last in a step beyond the others' median", longer, "seconds per step"),
    ]
    if longer >= _EXPLAINED_RATIO * waited.mean():
        return [Candidate("data_imbalance", saved, "all", evidence, 0.7)]
    return [Candidate("unknown", saved, "all", evidence, 0.5, ("data_imbalance", 0.0))]


def _longer(job: JobTraces, split: JobLosses) -> Matrix:
    """Return the late rank's excess of computing over the others' median per step, seconds, shape (K,)."""
    waits = job.collectives.groupby(["step", "last_rank"])["added_wait_ns"].sum().unstack(fill_value=0)
    last = dict(zip(waits.index.tolist(), waits.columns.to_numpy()[waits.to_numpy().argmax(axis=1)].tolist(), strict=True))
    compute = split.states["compute"]
    found = np.zeros(len(split.numbers))
    for place, number in enumerate(split.numbers.tolist()):
        if last.get(number) in split.ranks:
            own = split.ranks.index(last[number])
            found[place] = compute[place, own] - np.median(np.delete(compute[place], own))
    return found


def _slow_links(job: JobTraces, split: JobLosses) -> list[Candidate]:
    """Return process groups whose transfers are much slower than others' of the same kind and size."""
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
