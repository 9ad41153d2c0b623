"""The part of the job page on memory: what ranks held by time, what grew, and an end out of memory."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.report.memory import LineBytes, MemoryReport, SegmentBytes
from tachoscope_explorer.figures import memory as figures
from tachoscope_explorer.page.widgets import chart, escape_markdown, folded, table
from tachoscope_show.report import memory_words

_CAPTION = (
    "Anonymous and shared memory of each rank and its loader workers; pages that forked workers share with their rank count for "
    "each. A curve holds each sample until the next. Page cache does not count against the limit: the kernel takes it back."
)


def show(memory: MemoryReport | None) -> None:
    """Show curves and sentences; folded while nothing is wrong, nothing where no samples are there."""
    if memory is None or not memory.ranks:
        return
    said = memory_words.lines(memory)
    if not said:
        folded("Memory of the ranks by time", lambda: _curves(memory), "folded-memory")
        return
    st.subheader("Memory", anchor="memory")
    st.markdown("\n".join(f"- {escape_markdown(line)}" for line in said))
    _curves(memory)
    blocks = [block for kill in memory.kills for block in kill.largest_blocks]
    if blocks:
        folded("Largest live blocks on the accelerator", lambda: _blocks(blocks), "folded-blocks")
    segments = [segment for kill in memory.kills for segment in kill.free_segments]
    if segments:
        folded("Free memory in segments of the accelerator's allocator", lambda: _segments(segments), "folded-segments")


def _curves(memory: MemoryReport) -> None:
    chart(figures.by_time(memory), "memory", height=300)
    st.caption(_CAPTION)


def _blocks(blocks: list[LineBytes]) -> None:
    rows = [{"line": one.line, "MiB": one.bytes / 2**20, "blocks": one.count, "stack": " < ".join(one.stack)} for one in blocks]
    table(pd.DataFrame(rows), "blocks")


def _segments(segments: list[SegmentBytes]) -> None:
    amounts = {"reserved, MiB": "reserved_bytes", "allocated, MiB": "allocated_bytes", "largest free, MiB": "largest_free_bytes"}
    rows = [{title: getattr(one, name) / 2**20 for title, name in amounts.items()} for one in segments]
    table(pd.DataFrame(rows), "segments")
