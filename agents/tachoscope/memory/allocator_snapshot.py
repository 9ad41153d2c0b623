"""What a snapshot of PyTorch's caching allocator says: live blocks by line, and what lies free between them.

Of the dictionary that `torch.cuda.memory._snapshot()` returns, bounded: a training has millions of blocks, a record some kilobytes.
https://docs.pytorch.org/docs/stable/torch_cuda_memory.html
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tachoscope.sampling.stacks import is_users_file, short_name, user_place
from tachoscope_core.records.memory import MOST_SEGMENTS, MOST_STACK_FRAMES, DeviceSegment, LiveBlocks

MOST_LINES = 20
_MOST_FRAME_LETTERS = 200


def largest_blocks(snapshot: Mapping[str, Any], device: int, most: int = MOST_LINES) -> list[LiveBlocks]:
    """Return the live blocks of a device by line, the largest first, with the stack of the largest block of each.

    Line `unknown`: older than the allocator's history.
    """
    sizes: dict[str, int] = defaultdict(int)
    counts: dict[str, int] = defaultdict(int)
    largest: dict[str, tuple[int, Sequence[Mapping[str, Any]]]] = {}
    for block in (one for segment in _segments_of(snapshot, device) for one in segment.get("blocks", [])):
        if block.get("state") != "active_allocated":
            continue
        frames = block.get("frames") or []
        line = user_place(map(_place, frames))[:_MOST_FRAME_LETTERS] or "unknown"
        size = int(block.get("requested_size") or block["size"])
        sizes[line] += size
        counts[line] += 1
        if size > largest.get(line, (-1, ()))[0]:
            largest[line] = size, frames
    lines = sorted(sizes, key=lambda line: -sizes[line])[:most]
    return [LiveBlocks(line=one, bytes=sizes[one], count=counts[one], stack=_stack(largest[one][1])) for one in lines]


def free_segments(snapshot: Mapping[str, Any], device: int) -> tuple[list[DeviceSegment], int]:
    """Return the segments of a device that are not all allocated, those with the most free bytes first, and how many there are."""
    found = [_segment(one) for one in _segments_of(snapshot, device)]
    free = [one for one in found if one.allocated_bytes < one.reserved_bytes]
    return sorted(free, key=lambda one: one.allocated_bytes - one.reserved_bytes)[:MOST_SEGMENTS], len(free)


def _segments_of(snapshot: Mapping[str, Any], device: int) -> Iterator[Mapping[str, Any]]:
    return (one for one in snapshot.get("segments", []) if one.get("device", device) == device)


def _segment(one: Mapping[str, Any]) -> DeviceSegment:
    free = (int(block["size"]) for block in one.get("blocks", []) if block.get("state") == "inactive")
    return DeviceSegment(
        reserved_bytes=int(one["total_size"]),
        allocated_bytes=int(one.get("allocated_size", 0)),
        largest_free_bytes=max(free, default=0),
    )


def _stack(frames: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return `file:line function` from the innermost frame of the user's code outwards; of a library alone from its innermost."""
    users = (number for number, frame in enumerate(frames) if is_users_file(_place(frame)[0]))
    first = next(users, 0)
    shown = frames[first : first + MOST_STACK_FRAMES]
    return [_text(frame) for frame in shown]


def _text(frame: Mapping[str, Any]) -> str:
    path, line = _place(frame)
    return f"{short_name(path)}:{line} {frame.get('name', '')}"[:_MOST_FRAME_LETTERS]


def _place(frame: Mapping[str, Any]) -> tuple[str, int]:
    return str(frame.get("filename", "")), int(frame.get("line", 0))
