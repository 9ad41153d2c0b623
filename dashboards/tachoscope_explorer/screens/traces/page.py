"""The page Trace: where the time of a recording went, down to the single kernel.

`from` and `to` in its address are Unix milliseconds with up to three decimals, so that windows of microseconds can be sent; of a
trace that does not tell the date they are milliseconds of its own clock. Its figures count from the recording's first event.
"""

from __future__ import annotations

import re
from dataclasses import replace

import streamlit as st

from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.widgets import escape_markdown, nothing
from tachoscope_explorer.screens.traces import choice as trace_choice
from tachoscope_explorer.screens.traces import parts as trace_parts
from tachoscope_explorer.screens.traces import perfetto as trace_opening
from tachoscope_explorer.screens.traces import timeline as trace_timeline
from tachoscope_explorer.screens.traces.breakdown import Ranks

_STEPS = re.compile(r"-steps-(\d+)-(\d+)$")
"""How the name of a recording ends that was asked for by steps."""


def show(context: Context) -> None:
    """Show the page."""
    st.title("Trace")
    recording = trace_choice.recording(context)
    if recording is None:
        return
    files, sample = trace_choice.files_of(recording, context.view.rank)
    everyone = bool(sample) and st.toggle(
        f"Look through all {len(recording.files)} ranks for those that stand out",
        key="trace-everyone",
        help="Reads every trace once, which may take minutes.",
    )
    found = trace_choice.read_ranks(list(recording.files) if everyone else files)
    if everyone:
        found, sample = trace_choice.standing_out(found, context.view.rank)
    if not found.extents:
        nothing("No trace of this recording can be read.")
        return
    if sample:
        st.info(sample, icon=":material/filter_alt:")
    rank = trace_choice.rank(context, found)
    _facts(found, rank)
    _numbering(recording.name)
    if rank is not None:
        trace_opening.show_opening(found.extents[rank].path)
    shown = list(found.extents.values()) if rank is None else [found.extents[rank]]
    window, narrowed, together = trace_choice.window(context.view, shown)
    whole, _, _ = trace_choice.window(replace(context.view, start=None, end=None), shown)
    trace_timeline.overview(context, found, rank, window, whole, together=together)
    trace_timeline.controls(context, window, whole)
    if rank is not None and narrowed:
        trace_timeline.closer(context, found.extents[rank], rank, window, together=together)
    one = None if rank is None else found.extents[rank]
    zero_ns = 0 if one is None else window.origin - trace_choice.shift(one, window.origin, together=together)
    events = sum(each.events for each in found.extents.values()) * len(recording.files) // len(found.extents)
    trace_parts.show(context, trace_parts.PartInput(recording, events, one, tuple(found.extents), zero_ns, narrowed))


def _numbering(recording: str) -> None:
    """Say which steps of the job these are: a profiler counts those that it saw."""
    match = _STEPS.search(recording)
    if match:
        st.caption(
            f"Recorded over steps {match[1]} to {match[2]} of the job. Steps here are numbered as the profiler counted them."
        )


def _facts(found: Ranks, rank: int | None) -> None:
    """Say what was recorded."""
    if rank is None:
        events = sum(one.events for one in found.extents.values())
        st.caption(f"{len(found.extents)} ranks, {events:,} events.")
        return
    one = found.extents[rank]
    device = escape_markdown(one.device) or "no device named"
    world = f" of {one.world_size}" if one.world_size else ""
    st.caption(f"Rank {rank}{world}, {one.events:,} events, {device}, {escape_markdown(one.path.name)} ({one.writer}).")
