"""The part of the job page on memory: what ranks held by time, what grew, and an end out of memory."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_core.report.memory import LineBytes, MemoryReport, SegmentBytes
from tachoscope_explorer.figures import memory as figures
from tachoscope_explorer.page.widgets import chart, escape_markdown, folded, table
from tachoscope_show.report import memory_words
from tachoscope_show.text.units import size_unit

_CAPTION = (
    "Anonymous and shared memory of each rank and its loader workers; pages that forked workers share with their rank count for "
    "each. A curve holds each sample until the next. Page cache does not count against the limit: the kernel takes it back."
)


def show_lines(memory: MemoryReport | None) -> None:
    """Show what is wrong with memory; nothing where nothing is, or no samples are there."""
    if memory is not None and memory.ranks and (said := memory_words.lines(memory)):
        st.subheader("Memory", anchor="memory")
        st.markdown("\n".join(f"- {escape_markdown(line)}" for line in said))


def show(memory: MemoryReport) -> None:
    """Show the curves."""
    of_device = any(kill.place == "device" for kill in memory.kills) or (
        memory.growth is not None and memory.growth.part == "device"
    )
    if of_device and any(any(one.device_reserved) for one in memory.ranks):
        chart(figures.of_device_by_time(memory), "device-memory", height=300)
        folded("Memory of the ranks on their hosts by time", lambda: _curves(memory), "folded-memory")
    else:
        _curves(memory)
    blocks = [block for kill in memory.kills for block in kill.largest_blocks]
    if blocks:
        folded("Largest live blocks on the accelerator", lambda: _blocks(blocks), "folded-blocks")
    segments = [segment for kill in memory.kills for segment in kill.free_segments]
    if segments:
        count = sum(kill.free_segment_count for kill in memory.kills)
        folded("Free memory in segments of the accelerator's allocator", lambda: _segments(segments, count), "folded-segments")


def _curves(memory: MemoryReport) -> None:
    chart(figures.by_time(memory), "memory", height=300)
    st.caption(_CAPTION)


def _blocks(blocks: list[LineBytes]) -> None:
    """Show the blocks by line; of the stack the line with its function stands first, then who called it."""
    unit, bytes_ = size_unit(max(block.bytes for block in blocks))
    rows = [
        {
            unit: one.bytes / bytes_,
            "allocated at": one.stack[0] if one.stack else one.line,
            "blocks": one.count,
            "called from": " < ".join(one.stack[1:]),
        }
        for one in blocks
    ]
    frame = pd.DataFrame(rows)
    table(frame if frame["called from"].any() else frame.drop(columns="called from"), "blocks")


def _segments(segments: list[SegmentBytes], count: int) -> None:
    unit, bytes_ = size_unit(max(segment.reserved_bytes for segment in segments))
    amounts = {"reserved": "reserved_bytes", "allocated": "allocated_bytes", "largest free piece": "largest_free_bytes"}
    rows = [{f"{title}, {unit}": getattr(one, name) / bytes_ for title, name in amounts.items()} for one in segments]
    if count > len(segments):
        st.caption(f"The {len(segments)} with the most free memory, of {count:,}.")
    table(pd.DataFrame(rows), "segments")
