"""Two traces, or two jobs, compared by state, by operator and by kernel: what of the difference of a step comes from where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tachoscope_analyzers.trace.analyses.normalised_kernel_names import base_name, operator_name, without_details
from tachoscope_analyzers.trace.analyses.operator_profile import NO_LAUNCH, NO_OPERATOR, OTHERS, TraceProfile

BASELINE_ONLY, OTHER_ONLY = "baseline_only", "other_only"
_SIDES = ("baseline", "other")
_NEVER_BY_OPERATOR = (NO_LAUNCH, NO_OPERATOR, "")


@dataclass(frozen=True)
class TraceDiff:
    """A comparison; in each table, the differences of all rows sum to that of the totals.

    Attributes:
        states: state and the columns below. operators: the same by operator, for device time; host time as `*_host_ns_per_step`.
        kernels: the same by kernel; baseline_kernel, other_kernel, baseline_names, other_names (how many names are in the row).
        totals: measure (step, device, host) with baseline_ns_per_step, other_ns_per_step, difference_ns_per_step.
        notes: sentences on what the comparison cannot say.

    Columns of all: matched (`exact`, `normalised` (architecture, tile sizes, hashes, numbers left out), `base_name` (template
    arguments too), `operator` (launched by the same operator at the same position), `baseline_only`, `other_only`),
    baseline_count, other_count, baseline_count_per_step, other_count_per_step, baseline_total_ns, other_total_ns,
    baseline_ns_per_step, other_ns_per_step, difference_ns_per_step (other less baseline), share_of_difference_ratio (of the
    total's difference; NaN where that is 0).
    """

    states: pd.DataFrame
    operators: pd.DataFrame
    kernels: pd.DataFrame
    totals: pd.DataFrame
    notes: tuple[str, ...]


def diff(baseline: TraceProfile, other: TraceProfile) -> TraceDiff:
    """Return what differs between two profiles (`operator_profile.profile`, `merged` for jobs), the largest differences first."""
    steps = (max(baseline.steps, 1), max(other.steps, 1))
    states = _compared((baseline.states, other.states), "state", steps, "total_ns", ())
    by_number = (("normalised", _by(operator_name)),)
    operators = _compared((baseline.operators, other.operators), "operator", steps, "device_ns", by_number)
    tiers: tuple[tuple[str, _Key], ...] = (
        ("normalised", _by(without_details)),
        ("base_name", _by(base_name)),
        ("operator", _by_operator),
    )
    kernels = _compared((baseline.kernels, other.kernels), "kernel", steps, "total_ns", tiers)
    measures = {
        "step": (baseline.step_total_ns, other.step_total_ns),
        "device": (int(baseline.kernels["total_ns"].sum()), int(other.kernels["total_ns"].sum())),
        "host": (int(baseline.operators["host_ns"].sum()), int(other.operators["host_ns"].sum())),
    }
    rows = [(name, one / steps[0], two / steps[1], two / steps[1] - one / steps[0]) for name, (one, two) in measures.items()]
    columns = ["measure", "baseline_ns_per_step", "other_ns_per_step", "difference_ns_per_step"]
    return TraceDiff(
        states=states.rename(columns={"baseline_state": "state"}).drop(columns=["other_state", "baseline_names", "other_names"]),
        operators=operators,
        kernels=kernels,
        totals=pd.DataFrame(rows, columns=columns),
        notes=tuple(_notes(baseline, other)),
    )


_Key = Callable[[pd.DataFrame, str], "pd.Series[str]"]


def _by(function: Callable[[str], str]) -> _Key:
    def key(table: pd.DataFrame, column: str) -> pd.Series[str]:
        return table[column].map(lambda name: "" if name == OTHERS else function(name))

    return key


def _by_operator(table: pd.DataFrame, _: str) -> pd.Series[str]:
    places = [
        "" if operator in _NEVER_BY_OPERATOR else f"{operator_name(operator)} {position}"
        for operator, position in zip(table["operator"], table["position"], strict=True)
    ]
    return pd.Series(places, index=table.index, dtype=object)


def _compared(
    tables: tuple[pd.DataFrame, pd.DataFrame], name: str, steps: tuple[int, int], total: str, tiers: tuple[tuple[str, _Key], ...]
) -> pd.DataFrame:
    """Join rows by name, then the rest by each tier's key; rows that share a key are merged."""
    left = [table.reset_index(drop=True) for table in tables]
    rows: list[dict[str, object]] = []
    for matched, key in (("exact", _by(str)), *tiers):
        keys = [key(table, name) if matched != "exact" else table[name] for table in left]
        shared = (set(keys[0]) & set(keys[1])) - {""}
        groups = [dict(list(table.groupby(one))) for table, one in zip(left, keys, strict=True)]
        rows += [_row(matched, groups[0][one], groups[1][one], name, total) for one in sorted(shared)]
        left = [table[~one.isin(shared)] for table, one in zip(left, keys, strict=True)]
    for _, part in left[0].groupby(name, sort=True):
        rows.append(_row(BASELINE_ONLY, part, left[1].head(0), name, total))
    for _, part in left[1].groupby(name, sort=True):
        rows.append(_row(OTHER_ONLY, left[0].head(0), part, name, total))
    return _with_differences(pd.DataFrame(rows, columns=_columns(name, tables[0])), steps)


def _columns(name: str, table: pd.DataFrame) -> list[str]:
    fields = [name, "names", "count", "total_ns", *(["host_total_ns"] if "host_ns" in table else [])]
    return ["matched", *(f"{side}_{field}" for field in fields for side in _SIDES)]


def _row(matched: str, one: pd.DataFrame, two: pd.DataFrame, name: str, total: str) -> dict[str, object]:
    row: dict[str, object] = {"matched": matched}
    for side, part in zip(_SIDES, (one, two), strict=True):
        largest = part[name].iloc[int(part[total].to_numpy().argmax())] if len(part) else ""
        row |= {f"{side}_{name}": largest, f"{side}_names": len(part), f"{side}_count": int(part["count"].sum())}
        row[f"{side}_total_ns"] = int(part[total].sum())
        if "host_ns" in part:
            row[f"{side}_host_total_ns"] = int(part["host_ns"].sum())
    return row


def _with_differences(table: pd.DataFrame, steps: tuple[int, int]) -> pd.DataFrame:
    for side, count in zip(_SIDES, steps, strict=True):
        table[f"{side}_count_per_step"] = table[f"{side}_count"] / count
        table[f"{side}_ns_per_step"] = table[f"{side}_total_ns"] / count
        if f"{side}_host_total_ns" in table:
            table[f"{side}_host_ns_per_step"] = table[f"{side}_host_total_ns"] / count
    table["difference_ns_per_step"] = table["other_ns_per_step"] - table["baseline_ns_per_step"]
    whole = float(table["difference_ns_per_step"].sum())
    table["share_of_difference_ratio"] = table["difference_ns_per_step"] / whole if whole else np.nan
    if "other_host_ns_per_step" in table:
        table["difference_host_ns_per_step"] = table["other_host_ns_per_step"] - table["baseline_host_ns_per_step"]
    order = table["difference_ns_per_step"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)


def _notes(baseline: TraceProfile, other: TraceProfile) -> list[str]:
    notes = []
    for side, one in (("baseline", baseline), ("other", other)):
        if one.step_source == "window":
            notes.append(f"the {side} has no steps: its whole recording is compared as one step")
        elif not one.steps:
            notes.append(f"the {side} holds no event")
        if (one.kernels["kernel"] == OTHERS).any():
            notes.append(f"the {side} has so many different kernels that the shortest are one row, {OTHERS}")
    if baseline.step_source != other.step_source:
        notes.append(f"steps were found by {baseline.step_source} in the baseline and by {other.step_source} in the other trace")
    return notes
