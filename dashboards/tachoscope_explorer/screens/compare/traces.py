"""Part of the page Compare: two recordings of profiler traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.compare.diff import TraceDiff
from tachoscope_core.report.report import Change, Report
from tachoscope_explorer.figures import compare as figures
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.query_params import choice
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, table
from tachoscope_explorer.sources import compared_traces as trace_comparison
from tachoscope_explorer.sources.traces import recordings
from tachoscope_show.report.trend_words import signed_percent
from tachoscope_show.text.units import counted, seconds

_MATCHED = {
    "exact": "same name",
    "normalised": "same but for numbers, tiles or architecture",
    "base_name": "same but for template arguments",
    "operator": "launched by the same operator",
    "baseline_only": "baseline only",
    "other_only": "now only",
}
_MOST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class _Side:
    """Traces that can be one side: `name` as the address has it."""

    name: str
    files: tuple[Path, ...]


def show(context: Context, view: View) -> None:
    """Show traces of a job against others.

    Raises:
        TachoscopeError: a trace cannot be read.
    """
    sides = _sides(context, view.job)
    others = _sides(context, view.baseline or view.job)
    left, right = st.columns(2)
    with left:
        now = choice("Trace", [one.name for one in sides], view.trace or sides[0].name, "compare-trace", none="choose a trace")
    with right:
        names = [one.name for one in others if view.baseline not in {"", view.job} or one.name != now]
        before = choice("Its baseline", names, view.baseline_trace, "compare-trace-baseline", none="choose what to compare it with")
    view = replace(view, trace=now, baseline_trace=before)
    look_at(view)
    files = [{one.name: one.files for one in offered}.get(name) for offered, name in ((sides, now), (others, before))]
    if not others:
        nothing(f"**{escape_markdown(view.baseline)}** has no profiler trace.")
    elif not now or not before:
        nothing("Choose the two traces." if len(others) > 1 or others is not sides else "There is only one trace.")
    elif files[0] is None or files[1] is None:
        nothing(f"The trace **{escape_markdown(now if files[0] is None else before)}** no longer exists.")
    else:
        _comparison(trace_comparison.comparison(view.job, files[0], view.baseline or view.job, files[1]))


def _sides(context: Context, job: str) -> list[_Side]:
    """Return the recordings of a job, and where one has several traces each of them."""
    found = []
    for one in recordings(context.settings, job):
        found.append(_Side(one.name, tuple(one.files)))
        if len(one.files) > 1:
            found += [_Side(f"{one.name}/{file.name}", (file,)) for file in one.files]
    return found


def _comparison(found: trace_comparison.TraceComparison) -> None:
    report, changes = found.report, found.report.changes
    _verdict(report, changes)
    for note in report.quality:
        if note.what == "comparison":
            st.caption(escape_markdown(note.means))
    _largest("States", "Which states grew", [row for row in changes if row.kind == "state"])
    _largest("Operators", "Device time by operator", [row for row in changes if row.kind == "operator"])
    _largest("Kernels", "Device time by kernel", [row for row in changes if row.kind == "kernel"])
    _tables(found.diff)


def _verdict(report: Report, changes: Sequence[Change]) -> None:
    step = next((row for row in changes if row.kind == "step"), None)
    if step is None or step.baseline_seconds <= 0:
        st.info("The step times of these traces cannot be compared with each other.")
        return
    share = step.seconds / step.baseline_seconds - 1
    words = (
        f"a step takes {seconds(step.seconds)} against {seconds(step.baseline_seconds)}, {signed_percent(share)}. "
        f"The {counted(report.window.steps, 'step')} of a trace do not tell its noise"
    )
    st.info(f"**{escape_markdown(words[:1].upper() + words[1:])}.**")


def _largest(key: str, title: str, changes: Sequence[Change]) -> None:
    st.subheader(title)
    if not changes:
        st.caption("No difference, or none was recorded.")
        return
    shown = min(len(changes), 12)
    chart(figures.largest_changes(changes), f"compare-{key}", height=70 + 38 * shown)


def _tables(found: TraceDiff) -> None:
    st.subheader("All of it")
    tabs = st.tabs(["States", "Operators", "Kernels"])
    rows = (("state", found.states), ("operator", found.operators), ("kernel", found.kernels))
    for tab, (kind, frame) in zip(tabs, rows, strict=True):
        with tab:
            if len(frame) > _MOST_ROWS:
                st.caption(f"The {_MOST_ROWS:,} largest differences of {len(frame):,}.")
            table(_display_frame(kind, frame.head(_MOST_ROWS)), f"trace-{kind}s", columns=_columns())


def _display_frame(kind: str, frame: pd.DataFrame) -> pd.DataFrame:
    if kind == "state":
        names = {"state": frame["state"]}
    else:
        now, before = frame[f"other_{kind}"], frame[f"baseline_{kind}"]
        names = {kind: now.where(now != "", before), "in the baseline": before.where(before != now, "")}
    return pd.DataFrame(
        {
            **names,
            "matched": frame["matched"].map(lambda how: _MATCHED.get(how, how)),
            "baseline_ms": frame["baseline_ns_per_step"] / 1e6,
            "now_ms": frame["other_ns_per_step"] / 1e6,
            "difference_ms": frame["difference_ns_per_step"] / 1e6,
            "baseline_count": frame["baseline_count_per_step"],
            "now_count": frame["other_count_per_step"],
        }
    )


def _columns() -> dict[str, object]:
    number = st.column_config.NumberColumn
    return {
        "baseline_ms": number("baseline", format="%.3f ms", help="a step"),
        "now_ms": number("now", format="%.3f ms", help="a step"),
        "difference_ms": number("difference", format="%+.3f ms", help="a step"),
        "baseline_count": number("times before", format="%.3g", help="a step"),
        "now_count": number("times now", format="%.3g", help="a step"),
    }
