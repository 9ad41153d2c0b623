"""What is known of a recording beyond its timeline, each part worked out only when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.parts import show_parts
from tachoscope_explorer.page.widgets import nothing, problem
from tachoscope_explorer.screens.traces import collectives as trace_collectives
from tachoscope_explorer.screens.traces import critical_path as trace_path
from tachoscope_explorer.screens.traces import findings as trace_findings
from tachoscope_explorer.screens.traces import idle as trace_idle
from tachoscope_explorer.screens.traces import kernels as trace_kernels
from tachoscope_explorer.screens.traces import launch_queue as trace_queue
from tachoscope_explorer.screens.traces import memory as trace_memory
from tachoscope_explorer.screens.traces import operators as trace_operators
from tachoscope_explorer.screens.traces.breakdown import FileExtent
from tachoscope_explorer.sources.traces import Recording


@dataclass(frozen=True, slots=True)
class PartInput:
    """What a part is about.

    Attributes:
        events: of the whole recording, about. one: a rank of it, None for all. ranks: that can be chosen.
        zero_ns: 0 of the figures, on its own clock.
        narrowed: whether the figures above show a part of it only.
    """

    recording: Recording
    events: int
    one: FileExtent | None
    ranks: tuple[int, ...]
    zero_ns: int
    narrowed: bool


_OF_A_RANK: tuple[tuple[str, str, Callable[[FileExtent, int], None]], ...] = (
    ("operators", "Operators", trace_operators.show),
    ("kernels", "Kernels", trace_kernels.show),
    ("idle", "Idle gaps", trace_idle.show),
    ("path", "Critical path", trace_path.show),
    ("queue", "Launch queue", trace_queue.show),
    ("memory", "Memory", trace_memory.show),
)
"""Part of the address, title, and what shows it of one rank."""
FINDINGS, COLLECTIVES = "findings", "collectives"
_TITLES = {FINDINGS: "Findings", COLLECTIVES: "Collectives"} | {part: title for part, title, _ in _OF_A_RANK}
MOST_OFFERED = 16


def show(context: Context, looked: PartInput) -> None:
    """Show the parts; the one that is open is in the address."""
    if looked.narrowed:
        st.caption("What follows is of the whole recording, not of the window above.")
    show_parts(context, _TITLES, lambda one, part: _show(one, part, looked), "trace-part")


def _choose(context: Context, part: str, ranks: tuple[int, ...]) -> None:
    """Offer the ranks where a part is of one rank only."""
    nothing(f"*{_TITLES[part]}* is of one rank. Which one?")
    rank = st.pills("Rank", ranks[:MOST_OFFERED], key=f"trace-rank-of-{part}", label_visibility="collapsed")
    if len(ranks) > MOST_OFFERED:
        st.caption(f"The other {len(ranks) - MOST_OFFERED} ranks are in the list *Rank* above.")
    if rank is not None:
        look_at(replace(context.view, rank=rank, part=part))
        st.rerun()


def _show(context: Context, part: str, looked: PartInput) -> None:
    """Show a part; what goes wrong in it leaves the rest of the page as it is."""
    try:
        if part == FINDINGS:
            trace_findings.show(context, looked.recording, looked.events)
        elif part == COLLECTIVES:
            trace_collectives.show(looked.recording, looked.events, looked.one)
        elif looked.one is None:
            _choose(context, part, looked.ranks)
        else:
            {name: function for name, _, function in _OF_A_RANK}[part](looked.one, looked.zero_ns)
    except TachoscopeError as error:
        problem(error)
