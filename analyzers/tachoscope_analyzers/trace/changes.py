"""A report with its differences from a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import pandas as pd

from tachoscope_analyzers.trace.diff import TraceDiff, diff
from tachoscope_analyzers.trace.ranks import JobTraces
from tachoscope_core.report import Change, QualityNote, Report

MOST_OF_A_KIND = 10
"""Of operators and kernels the largest so many differences stand in the report; all are in the tables of `diff`."""


def compared(report: Report, job: JobTraces, baseline: JobTraces, baseline_name: str) -> Report:
    """Return the report with what changed since the baseline; both jobs must have been read with their sums."""
    assert baseline.sums is not None and job.sums is not None, "both jobs must be read with Wanted(profile=True)"
    found = diff(baseline.sums, job.sums)
    notes = [QualityNote(what="comparison", severity="note", means=note) for note in found.notes]
    return msgspec.structs.replace(report, baseline=baseline_name, changes=list(_changes(found)), quality=[*report.quality, *notes])


def _changes(found: TraceDiff) -> Iterator[Change]:
    step = found.totals[found.totals["measure"] == "step"].iloc[0]
    yield Change(
        kind="step",
        name="step",
        baseline_name="step",
        matched="exact",
        baseline_seconds=float(step["baseline_ns_per_step"]) / 1e9,
        seconds=float(step["other_ns_per_step"]) / 1e9,
    )
    yield from _rows("state", found.states, "state", "state", len(found.states))
    yield from _rows("operator", found.operators, "baseline_operator", "other_operator", MOST_OF_A_KIND)
    yield from _rows("kernel", found.kernels, "baseline_kernel", "other_kernel", MOST_OF_A_KIND)


def _rows(
    kind: Literal["state", "operator", "kernel"], table: pd.DataFrame, before: str, after: str, most: int
) -> Iterator[Change]:
    order = table["difference_ns_per_step"].abs().sort_values(ascending=False, kind="stable").index[:most]
    for row in table.loc[order].to_dict("records"):
        if row["difference_ns_per_step"] == 0:
            continue
        yield Change(
            kind=kind,
            name=str(row[after] or row[before]),
            baseline_name=str(row[before] or ""),
            matched=str(row["matched"]),
            baseline_seconds=float(row["baseline_ns_per_step"]) / 1e9,
            seconds=float(row["other_ns_per_step"]) / 1e9,
            baseline_count=float(row["baseline_count_per_step"]),
            count=float(row["other_count_per_step"]),
        )
