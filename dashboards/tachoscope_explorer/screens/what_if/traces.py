"""Part of the page What if: a profiler trace, run again without some of what it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from tachoscope_analyzers.trace.analyses.longest_kernels import longest
from tachoscope_analyzers.trace.graph.removals import KERNEL, OPERATOR, Selection
from tachoscope_analyzers.trace.graph.replay import Counterfactual, Replay
from tachoscope_analyzers.trace.reading import cache
from tachoscope_explorer.figures import what_if as figures
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.query_params import choice, follow
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing
from tachoscope_explorer.sources.traces import recordings, view_of_file
from tachoscope_show.text.units import seconds

REMOVAL_WORDS = {
    "data_loading": "the host's time in the data loader",
    "checkpoint": "the host's time in saving checkpoints",
    "evaluation": "the host's time in evaluation",
    "garbage_collection": "garbage collection",
    "host_communication": "communication by the host: gloo, barriers",
    "host_pause": "pauses of the host of a millisecond or more, in no operator",
    "allocator": "calls that allocate and free device memory",
    "synchronisation": "synchronising: the host waits for nothing",
    "host_launch": "launching: calls cost nothing, and what they launch starts at once",
    "host": "all of the host's time",
    "kernel_gap": "gaps between kernels of a stream",
    "kernel_wait": "waits of streams for one another",
    "unexplained": "waits of unknown cause",
    "copies": "copies of the device",
    "communication": "communication kernels",
    "compute": "computing kernels",
    "everything": "everything",
}
"""What can be taken out, in words; kernels and operators are chosen by their name."""


def show(context: Context, view: View) -> None:
    """Show what a step of a trace would take.

    Raises:
        TachoscopeError: the trace cannot be read.
    """
    file, view = _file(context, view)
    if file is None:
        look_at(view)
        return
    path, signature = str(file), cache.signature(file)
    replay = _replay(path, signature)
    wanted = [name for name in view.without.split(",") if name in REMOVAL_WORDS]
    follow("what-if-removals", wanted)
    chosen = st.multiselect(
        "Take out", list(REMOVAL_WORDS), key="what-if-removals", format_func=REMOVAL_WORDS.__getitem__, placeholder="choose causes"
    )
    named = _named(replay)
    keep = st.slider("Share of its time that stays, %", 0, 100, 0, 5, help="50: twice as fast; 0: gone.") / 100
    look_at(replace(view, without=",".join(chosen), class_=""))
    selections = (
        *(Selection(what, kept_ratio=keep) for what in chosen),
        *(Selection(what, name, kept_ratio=keep) for what, name in named),
    )
    _answer(replay, path, signature, selections)


def _file(context: Context, view: View) -> tuple[Path | None, View]:
    """Return the chosen trace, and the view with it: `trace` is the recording, and the file behind a stroke."""
    found = {one.name: one.files for one in recordings(context.settings, view.job)}
    wanted, _, wanted_file = view.trace.partition("/")
    left, right = st.columns(2)
    with left:
        name = choice("Recording", list(found), wanted or next(iter(found)), "what-if-recording", none="choose a recording")
    files = {file.name: file for file in found.get(name, ())}
    if not files:
        nothing(f"The recording **{escape_markdown(name)}** was not found." if name else "Choose a recording.")
        return None, view
    with right:
        first = wanted_file if wanted_file in files and name == wanted else next(iter(files))
        chosen = choice("Trace of one rank", list(files), first, f"what-if-file {name}", none="choose a trace")
    return files.get(chosen), replace(view, trace=f"{name}/{chosen}" if chosen else name)


@st.cache_resource(max_entries=2, show_spinner="Finding what waits for what …")
def _replay(path: str, signature: str) -> Replay:  # noqa: ARG001  # a file that was changed is read again
    return Replay(view_of_file(Path(path)))


@st.cache_data(max_entries=64, show_spinner="Running the trace again …")
def _without(path: str, signature: str, selections: tuple[Selection, ...]) -> Counterfactual:
    return _replay(path, signature).without(*selections)


def _named(replay: Replay) -> list[tuple[str, str]]:
    """Return kernels and operators that are chosen by name."""
    with st.expander("A kernel or an operator by its name"):
        kernels = st.multiselect("Kernels", longest(replay.view, "kernel"), key="what-if-kernels")
        operators = st.multiselect(
            "Operators, with all that they launch", longest(replay.view, "operator"), key="what-if-operators"
        )
    return [*((KERNEL, name) for name in kernels), *((OPERATOR, name) for name in operators)]


def _answer(replay: Replay, path: str, signature: str, selections: tuple[Selection, ...]) -> None:
    if replay.refusal:
        st.error(escape_markdown(f"No answer: {replay.refusal}."))
        return
    steps = [_without(path, signature, selections[:count]) for count in range(len(selections) + 1)]
    now, then = steps[0].step_ns / 1e9, steps[-1].step_ns / 1e9
    columns = st.columns(4)
    columns[0].metric("Step as recorded", seconds(steps[0].measured_step_ns / 1e9))
    columns[1].metric("Step as replayed", seconds(steps[0].replayed_step_ns / 1e9))
    columns[2].metric("Step then", seconds(then), f"-{seconds(now - then)}" if now > then else None, delta_color="inverse")
    columns[3].metric("Speed-up", f"{now / then:.2f}x" if then > 0 else "nothing is left")
    st.caption(
        escape_markdown(
            f"The dependencies that the trace shows explain all but {replay.error_percent:.2f} % of its time: that is the error."
        )
        + (" Of one rank alone: what other ranks would do then is not in its trace." if selections else "")
    )
    saved = [
        figures.WaterfallBar(_describe(one), "", (before.step_ns - after.step_ns) / 1e9)
        for one, before, after in zip(selections, steps, steps[1:], strict=False)
    ]
    chart(figures.from_now_to_then(now, saved, then), "what-if-trace", height=360)
    if len(saved) > 1:
        st.caption("Each bar is what is saved after those before it, in the order in which they were chosen.")


def _describe(one: Selection) -> str:
    text = one.name or one.what.replace("_", " ")
    return text if len(text) <= 24 else f"{text[:23]}…"
