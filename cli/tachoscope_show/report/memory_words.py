"""Memory of a job in sentences: who was killed by whose limit, what grew, at which lines, and when it will be full."""

from __future__ import annotations

from tachoscope_core.records.memory import HOST
from tachoscope_core.report.memory import GROWN_WORDS, LineBytes, MemoryGrowth, MemoryKill, MemoryReport
from tachoscope_show.report.trend_words import ranks_text
from tachoscope_show.text.units import counted, duration, size

TITLE = "memory"
_MOST_LINES = 5


def lines(memory: MemoryReport | None) -> list[str]:
    """Return the sentences; none where nothing ran out of memory and nothing will."""
    if memory is None or not (memory.kills or (memory.growth is not None and memory.growth.full_seconds is not None)):
        return []
    found = [kill_text(kill) for kill in memory.kills]
    if memory.growth is not None:
        found.append(growth_text(memory.growth))
        found += [f"allocated there and not freed: {line_text(one)}" for one in memory.growth.lines[:_MOST_LINES]]
    for kill in memory.kills:
        if kill.free_segments:
            found.append(fragments_text(kill))
        found += [f"live block on the accelerator: {line_text(one)}" for one in kill.largest_blocks[:_MOST_LINES]]
    return found


def kill_text(kill: MemoryKill) -> str:
    """Return who got no memory, and whose limit it was."""
    if kill.place == "device":
        asked = f"asked for {size(kill.requested_bytes)}" if kill.requested_bytes else "got no memory"
        at = f" at {kill.location}" if kill.location else ""
        kept = f", and {size(kill.fragmented_bytes)} were reserved and not allocated" if kill.fragmented_bytes else ""
        return f"rank {kill.rank} {asked} of {kill.limit_of or 'its accelerator'}{at}: {size(kill.held_bytes)} were allocated{kept}"
    who = {
        "rank": f"rank {kill.rank}",
        "loader_worker": f"a loader worker of rank {kill.rank}",
        "other": "a process beside the job",
    }[kill.victim]
    held = f", which held {size(kill.held_bytes)}," if kill.held_bytes else ""
    limit = f" of {size(kill.limit_bytes)}" if kill.limit_bytes else ""
    why = {
        HOST: f"the machine {kill.host} had no memory left",
        "": "memory ran out (whose limit was reached is not known)",
    }.get(kill.limit_of, f"the control group {kill.limit_of} reached its limit{limit}")
    return f"the kernel killed {who}{held} after step {kill.step:,}: {why}"


def fragments_text(kill: MemoryKill) -> str:
    """Return what lies free in the segments of the accelerator's allocator, and the largest piece that could be had of it."""
    free = size(kill.fragmented_bytes)
    largest = max(one.largest_free_bytes for one in kill.free_segments)
    fits = "fragmented: " if largest < kill.requested_bytes <= kill.fragmented_bytes else ""
    where = counted(kill.free_segment_count, "segment")
    return f"{fits}{free} lie free in {where} of the allocator, at most {size(largest)} of it in one piece"


def growth_text(grown: MemoryGrowth) -> str:
    """Return what grew, since when and how fast."""
    of = f" of {ranks_text(grown.ranks)}" if grown.ranks else ""
    rate = f"{size(grown.bytes_per_second * 3600)} an hour" if grown.bytes_per_second > 0 else "at once"
    full = f"; full in about {duration(grown.full_seconds)}" if grown.full_seconds is not None else ""
    a_step = f", {size(grown.bytes_per_step)} a step" if grown.bytes_per_step >= 1 else ""
    return f"{GROWN_WORDS[grown.part]}{of} grew by {size(grown.bytes)} since step {grown.since_step:,}: {rate}{a_step}{full}"


def line_text(one: LineBytes) -> str:
    """Return a line with its bytes."""
    return f"{one.line}: {size(one.bytes)}" + (f" in {counted(one.count, 'block')}" if one.count else "")
