"""A report with its differences from a baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import pandas as pd

from tachoscope_analyzers.trace.compare.diff import TraceDiff, diff
from tachoscope_analyzers.trace.ranks.job import JobTraces
from tachoscope_core.metrics.catalogue import TRAINING_STATES
from tachoscope_core.report.report import Change, QualityNote, Report

MOST_OF_A_KIND = 10
"""Of operators and kernels the largest so many differences stand in the report; all are in the tables of `diff`."""
_LEAST_IN_COMMON = 0.5
"""Of the device time, in kernels that both have: with less, the two hardly ran the same work."""
_ONE_SIDE = ("baseline_only", "other_only")


def compared(report: Report, job: JobTraces, baseline_report: Report, baseline: JobTraces) -> Report:
    """Return the report with what changed since the baseline; both jobs must have been read with their sums.

    Step and states are those of the two reports, so that waiting for late ranks is told apart here as it is in the ledger.
    """
    assert baseline.sums is not None and job.sums is not None, "both jobs must be read with Wanted(profile=True)"
    found = diff(baseline.sums, job.sums)
    notes = [_note(means) for means in (*_unlike(job, baseline, found), *found.notes)]
    changes = [
        *_of_ledgers(baseline_report, report),
        *_rows("operator", found.operators),
        *_rows("kernel", found.kernels),
    ]
    return msgspec.structs.replace(report, baseline=baseline_report.job, changes=changes, quality=[*notes, *report.quality])


def _note(means: str) -> QualityNote:
    return QualityNote(what="comparison", severity="note", means=means)


def _unlike(job: JobTraces, baseline: JobTraces, found: TraceDiff) -> Iterator[str]:
    """Yield why the two may not be the same work, so that differences have other causes."""
    if len(job.summaries) != len(baseline.summaries):
        yield f"{_counted(baseline)} in the baseline, {len(job.summaries)} in the other: what they exchange and wait for differs"
    devices = [sorted(set(one.ranks["device"]) - {""}) for one in (baseline, job)]
    if all(devices) and devices[0] != devices[1]:
        yield f"on {', '.join(devices[0])} in the baseline, on {', '.join(devices[1])} in the other"
    table, column = (found.kernels, "total_ns") if found.kernels["baseline_total_ns"].any() else (found.operators, "host_total_ns")
    both = table[~table["matched"].isin(_ONE_SIDE)]
    shares = [both[f"{side}_{column}"].sum() / max(table[f"{side}_{column}"].sum(), 1) for side in ("baseline", "other")]
    if min(shares) < _LEAST_IN_COMMON:
        things = "device time is in kernels" if column == "total_ns" else "host time is in operators"
        yield f"only {min(shares) * 100:.0f} % of the {things} that both have: are they of the same model?"


def _counted(job: JobTraces) -> str:
    return f"{len(job.summaries)} rank{'' if len(job.summaries) == 1 else 's'}"


def _of_ledgers(baseline: Report, report: Report) -> Iterator[Change]:
    """Yield the change of the step, and of each state of the first ledgers."""
    sides = (baseline, report)
    steps = [side.step_seconds.mean for side in sides]
    yield Change(kind="step", name="step", baseline_name="step", matched="exact", baseline_seconds=steps[0], seconds=steps[1])
    books = [side.ledgers[0] for side in sides]
    states = [state for state in TRAINING_STATES if any(state in book.states for book in books)]
    each = [
        [book.states.get(state, 0.0) / (book.wall_seconds or 1.0) * step for book, step in zip(books, steps, strict=True)]
        for state in states
    ]
    changes = [
        Change(kind="state", name=state, baseline_name=state, matched="exact", baseline_seconds=before, seconds=now)
        for state, (before, now) in zip(states, each, strict=True)
        if before != now
    ]
    yield from sorted(changes, key=lambda change: -abs(change.seconds - change.baseline_seconds))


def _rows(kind: Literal["operator", "kernel"], table: pd.DataFrame) -> Iterator[Change]:
    before, after = f"baseline_{kind}", f"other_{kind}"
    order = table["difference_ns_per_step"].abs().sort_values(ascending=False, kind="stable").index[:MOST_OF_A_KIND]
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
            baseline_names=max(int(row["baseline_names"]), 1),
            names=max(int(row["other_names"]), 1),
        )
