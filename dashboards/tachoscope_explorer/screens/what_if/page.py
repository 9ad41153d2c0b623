"""The page What if: what a step would take if causes were gone, and what a choice of the user's would bring."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.query_params import choice, follow
from tachoscope_explorer.page.widgets import nothing, problem
from tachoscope_explorer.screens.what_if import advice as what_if_advice
from tachoscope_explorer.screens.what_if import steps as what_if_steps
from tachoscope_explorer.screens.what_if import traces as what_if_traces
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources.traces import GIVEN, recordings

_STEPS, _TRACES, _ADVICE = "Causes gone", "Causes gone from a trace", "Other settings"
_ADVICE_PART = "settings"
"""What an address calls the last of them."""


def show(context: Context) -> None:
    """Show the page."""
    st.title("What if")
    times = sources.job_times(context.settings.store_url)
    jobs = sorted(times, key=lambda name: -times[name])
    given = [GIVEN] if recordings(context.settings, GIVEN) else []
    if not jobs and not given:
        nothing("The store contains no job yet. Run something first: `tachoscope run -- python train.py`, or `tachoscope demo`.")
        return
    job = choice("Run", [*jobs, *given], context.view.job, "what-if-job", none="choose a run")
    view = replace(context.view, job=job, part="")
    if not job:
        look_at(view)
        nothing("Choose a run to see how long its steps would take without some of the causes.")
        return
    traced = bool(recordings(context.settings, job))
    chosen = _what(context, traced=traced, recorded=job in times or not traced)
    if chosen == _TRACES:
        what_if_traces.show(context, view)
        return
    view = replace(view, trace="")
    if chosen == _STEPS:
        what_if_steps.show(context, view)
        return
    look_at(replace(view, part=_ADVICE_PART))
    try:
        what_if_advice.show(context, view)
    except TachoscopeError as error:
        problem(error)


def _what(context: Context, *, traced: bool, recorded: bool) -> str:
    options = [*([_STEPS] if recorded else []), *([_TRACES] if traced else []), *([_ADVICE] if recorded else [])]
    if len(options) == 1:
        return options[0]
    asked = _TRACES if context.view.trace and traced else _ADVICE if context.view.part == _ADVICE_PART else options[0]
    follow("what-if-what", asked)
    return st.segmented_control("What", options, key="what-if-what", label_visibility="collapsed") or options[0]
