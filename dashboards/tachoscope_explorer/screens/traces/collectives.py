"""Where ranks wait for one another, and how fast they exchange."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from tachoscope_analyzers.trace.analyses.collectives import collectives
from tachoscope_analyzers.trace.ranks.job import JobTraces
from tachoscope_analyzers.trace.ranks.rank_sampling import outstanding
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_explorer.figures import trace_bars
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing
from tachoscope_explorer.screens.traces import job as trace_jobs
from tachoscope_explorer.screens.traces.breakdown import FileExtent, signature
from tachoscope_explorer.screens.traces.tables import show_table
from tachoscope_explorer.sources.traces import Recording, view_of_file

_MOST_RANKS = 64
_NONE = "No collectives are in {}: it ran alone, or its exchange is of a kind that the trace does not name."


@st.cache_data(max_entries=16, show_spinner="Looking at the collectives …")
def _of_rank(path: str, signature: str) -> pd.DataFrame:  # noqa: ARG001  # a file that was changed is read again
    return collectives(view_of_file(Path(path))).by_group


def show(recording: Recording, events: int, one: FileExtent | None) -> None:
    """Show the collectives of a recording: across its ranks, then of the one that is chosen."""
    if len(recording.files) > 1:
        job = trace_jobs.compared(recording, events, SummaryOptions(judged=False), "Compare the collectives")
        if job is not None:
            _across(job)
    else:
        nothing("Separating waiting from transfer requires several ranks; this recording has one.")
    if one is not None:
        groups = _of_rank(str(one.path), signature(one.path))
        st.markdown("**This rank, by process group and kind**; durations hold the wait for later ranks")
        if len(groups):
            show_table(groups, "collectives")
        else:
            nothing(_NONE.format("this trace"))


def _across(job: JobTraces) -> None:
    if not len(job.waits):
        nothing(
            _NONE.format("these traces")
            if not job.ranks["collectives"].any()
            else "The ranks share no collective that can be matched."
        )
        trace_jobs.left_out(job)
        return
    waited = job.waits.groupby("rank")["wait_ns"].sum()
    ranks, extreme = outstanding(dict(zip(waited.index.tolist(), waited.tolist(), strict=True)), _MOST_RANKS)
    _verdict(job)
    chart(trace_bars.waits(job.waits, ranks), "trace-waits")
    if extreme:
        st.caption(f"{len(ranks)} of {len(waited)} ranks: the {len(extreme)} that wait least or most, and some between.")
    trace_jobs.left_out(job)
    st.markdown("**Process groups**: exposed communication and bus bandwidth")
    show_table(job.dimensions, "process-groups")
    st.markdown("**Late ranks**: what the others lose, and how likely that is by chance")
    if len(job.stragglers):
        show_table(job.stragglers, "late-ranks")
    else:
        nothing("No rank waited longer than the uncertainty of the clocks.")
    st.markdown("**Waiting and transfer** by rank, group and kind")
    show_table(job.waits, "waits")


def _verdict(job: JobTraces) -> None:
    """Return whether the others wait for one rank."""
    late = job.stragglers[job.stragglers["straggler"]]
    for row in late.to_dict("records")[:3]:
        group = escape_markdown(row["group_description"] or row["group"] or "its group")
        share = "" if pd.isna(row["waited_of_step_ratio"]) else f", {100 * row['waited_of_step_ratio']:.1f} % of the step"
        wait = f"{row['waited_per_step_ns'] / 1e6:,.3f} ms a step"
        st.warning(
            f"Rank {row['rank']} comes late in {group}: the others wait {wait} for it{share}.", icon=":material/hourglass_top:"
        )
    first = None if job.stragglers.empty else job.stragglers.sort_values("waited_ns", ascending=False).iloc[0]
    if len(late):
        st.caption("Fixing that rank alone saves less where another is late too: what it saves is among the findings.")
    elif first is not None and first["last_collectives"] > first["late_collectives"] / 2:
        of = f"{first['last_collectives']} of the {first['late_collectives']} collectives in which anybody waited"
        st.caption(f"Rank {first['rank']} comes last in {of}: too few, or too little, to say that the ranks wait for it.")
    else:
        st.caption("The ranks do not wait for any single one of them.")
