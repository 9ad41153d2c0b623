"""The page Compare: a run against an earlier one, or profiler traces against others."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.query_params import choice, follow
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, nothing
from tachoscope_explorer.screens.compare import runs as compare_runs
from tachoscope_explorer.screens.compare import traces as compare_traces
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import compared_runs
from tachoscope_explorer.sources.traces import GIVEN, recordings

_RUNS, _TRACES = "Step records", "Profiler traces"


def show(context: Context) -> None:
    """Show the page."""
    st.title("Compare")
    url = context.settings.store_url
    jobs = sorted(sources.job_times(url), key=lambda name: -sources.job_times(url)[name])
    given = [GIVEN] if recordings(context.settings, GIVEN) else []
    if not jobs and not given:
        nothing("The store contains no job yet. Run something first: `tachoscope run -- python train.py`, or `tachoscope demo`.")
        return
    job, baseline = _sides(context, [*jobs, *given])
    view = replace(context.view, job=job, baseline=baseline)
    if not job:
        look_at(view)
        nothing("Choose the run that is in question, and then the run that it is compared with.")
        return
    traced = bool(recordings(context.settings, job))
    recorded = job in jobs
    if _what(context, traced=traced, recorded=recorded) == _TRACES:
        compare_traces.show(context, view)
        return
    view = replace(view, trace="", baseline_trace="")
    look_at(view)
    if not baseline:
        _no_baseline(context, view)
        return
    compare_runs.show(context, view)


def _sides(context: Context, jobs: list[str]) -> tuple[str, str]:
    url, view = context.settings.store_url, context.view
    left, right = st.columns(2)
    with left:
        job = choice("Run", jobs, view.job, "compare-job", none="choose a run")
    likely = compared_runs.baselines(url, job) if job else []
    others = [one.job for one in likely] + ([GIVEN] if GIVEN in jobs else [])
    same = {one.job for one in likely if one.same_pattern}
    with right:
        baseline = choice(
            "Baseline, likeliest first",
            others,
            view.baseline,
            "compare-baseline",
            none="choose what to compare it with" if others else "no other run",
            words=lambda name: f"{name} (similar name)" if name in same else name,
        )
    return job, baseline


def _what(context: Context, *, traced: bool, recorded: bool) -> str:
    """Return what is compared; asked only where the job has both."""
    wanted = _TRACES if traced and (context.view.trace or not recorded) else _RUNS
    if not (traced and recorded):
        return wanted
    follow("compare-what", wanted)
    return st.segmented_control("Compare their", [_RUNS, _TRACES], key="compare-what") or wanted


def _no_baseline(context: Context, view: View) -> None:
    """Say that a baseline is missing, and which one suggests itself; it is never taken without being asked for."""
    url = context.settings.store_url
    likely = compared_runs.baselines(url, view.job)
    if not likely:
        nothing("This is the only run in the store: there is nothing to compare it with.")
        return
    found = compared_runs.suggestion(url, view.job, likely)
    if found:
        nothing(f"No baseline is chosen. The last run with a similar name and without a warning is **{escape_markdown(found)}**.")
        if st.button(f"Compare with {escape_markdown(found)}", type="primary", icon=":material/compare_arrows:"):
            context.open_page("compare", replace(view, baseline=found))
    elif not any(one.same_pattern for one in likely):
        nothing("No baseline is chosen, and no other run has a similar name. Choose one above; the likeliest is first.")
    else:
        nothing("No baseline is chosen, and each of the last runs with a similar name has a warning. Choose one above.")
