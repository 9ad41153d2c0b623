"""The part of a report on memory: what ranks held by time, what grew, and an end out of memory."""

from __future__ import annotations

from typing import Literal

import msgspec

GrownPart = Literal["process", "loader_workers", "shared_memory", "other_processes", "device"]
"""What can grow: anonymous memory of training processes, that of their loaders' workers, shared memory (tmpfs), processes beside
the job in the same control group, or memory of the accelerator."""
GROWN_WORDS: dict[str, str] = {
    "process": "memory of the training process",
    "loader_workers": "memory of the loader's workers",
    "shared_memory": "shared memory",
    "other_processes": "memory of processes beside the job",
    "device": "memory of the accelerator",
}


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank held by time, in bytes; all lists have the same length.

    Attributes:
        times: Unix seconds. steps: the last that was finished. process: anonymous memory. workers: of the loader's workers.
        shared: shared memory that is mapped by the process. device_allocated, device_reserved: zeros without an accelerator.
    """

    rank: int
    times: list[float]
    steps: list[int]
    process: list[int]
    workers: list[int]
    shared: list[int]
    device_allocated: list[int]
    device_reserved: list[int]


class UsedCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that count against a limit by time, without page cache, which the kernel takes back."""

    limit_of: str
    limit_bytes: int
    times: list[float]
    used: list[int]


class LineBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were allocated at a line, `file:line`, and not freed.

    Attributes:
        count: of blocks, 0: not known. stack: of the largest block, the innermost frame first; empty: not known.
    """

    line: str
    bytes: int
    count: int = 0
    stack: list[str] = []


class MemoryGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """What grew most.

    Attributes:
        ranks: whose; empty: of no rank, or not known. bytes: by how much. since_step: after which step it began.
        bytes_per_step, bytes_per_second: since then. low_bytes_per_second, high_bytes_per_second: interval of the slope, the
            quartiles of the slopes between all pairs of points.
        full_seconds: in how many seconds the limit is reached at that rate; None: it is not, or this is not known yet.
        lines: that allocated what stayed, the most first; empty: not known.
    """

    part: GrownPart
    ranks: list[int]
    bytes: int
    since_time: float
    since_step: int
    bytes_per_step: float
    bytes_per_second: float
    low_bytes_per_second: float
    high_bytes_per_second: float
    full_seconds: float | None = None
    lines: list[LineBytes] = []


class SegmentBytes(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of the accelerator's allocator that is not all allocated; see `records.DeviceSegment`."""

    reserved_bytes: int
    allocated_bytes: int
    largest_free_bytes: int


class MemoryKill(msgspec.Struct, frozen=True, kw_only=True):
    """An end out of memory; see `records.OutOfMemory`."""

    place: Literal["host", "device"]
    victim: Literal["rank", "loader_worker", "other"]
    rank: int
    host: str
    pid: int
    time: float
    step: int
    limit_of: str
    limit_bytes: int
    held_bytes: int
    location: str = ""
    requested_bytes: int = 0
    fragmented_bytes: int = 0
    largest_blocks: list[LineBytes] = []
    free_segments: list[SegmentBytes] = []
    free_segment_count: int = 0
    sources: list[str] = []


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of the attempt that the report is about.

    Attributes:
        ranks: the curves. used: of the fullest control group, or of the host. growth: what grew before the end, or grows now.
        kills: in the order of time.
    """

    ranks: list[MemoryCurve]
    used: UsedCurve | None = None
    growth: MemoryGrowth | None = None
    kills: list[MemoryKill] = []
