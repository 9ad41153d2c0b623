"""What is recorded of memory: what the processes of a job hold, and an end out of memory."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tachoscope_core.records.base import LAUNCHER_RANK, Amount, Count, Name, Rank, Record, Seconds, Text, UnixSeconds

HOST = "host"
"""As `OutOfMemory.limit_of`: the machine itself had no memory left."""
KERNEL_LOG = "kernel_log"
KILL_COUNT = "kill_count"
ALLOCATOR = "allocator"
LONGEST_SECONDS = 60.0
"""Between two samples of the memory of a process."""
MOST_LIVE_LINES, MOST_STACK_FRAMES, MOST_SEGMENTS = 64, 8, 64
"""Of an allocator's snapshot in a record."""
LOADER = "loader"


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of one process that are resident, by kind, as /proc/PID/status counts them.

    Attributes:
        anonymous_bytes: of no file: heap, tensors in host memory. file_bytes: mapped files. shared_bytes: shared memory and tmpfs.
    """

    pid: Count = 0
    anonymous_bytes: Count = 0
    file_bytes: Count = 0
    shared_bytes: Count = 0
    swapped_bytes: Count = 0


class ControlGroupMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memory of the control group whose limit leaves a process the least: its own, or one above it.

    Attributes:
        path: in the hierarchy of the memory controller. limit_bytes: 0: no group has a limit, and this is the process's own.
        anonymous_bytes, file_bytes, shared_bytes: of all its processes; `file_bytes` is page cache without `shared_bytes`.
        kills: out-of-memory kills in it since it was made; on a host with control groups v2 also in
            groups below it. 0: none, or not known.
    """

    path: Text
    limit_bytes: Count = 0
    usage_bytes: Count = 0
    anonymous_bytes: Count = 0
    file_bytes: Count = 0
    shared_bytes: Count = 0
    kills: Count = 0


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of a process's accelerator, as PyTorch's caching allocator counts them.

    Attributes:
        allocated_bytes: of live tensors. reserved_bytes: that the allocator got from the device; more than `allocated_bytes` is
            cached or fragmented. free_bytes: of the device, other processes included; 0: not known. total_bytes: of the device.
    """

    allocated_bytes: Count = 0
    reserved_bytes: Count = 0
    free_bytes: Count = 0
    total_bytes: Count = 0


class MemorySampled(Record, frozen=True, kw_only=True, tag="MemorySampled"):
    """What a rank, its loader workers and its control group hold; written when it changed, and once a minute.

    Attributes:
        step: last finished step of the process.
        workers: of the loader, the largest first, 16 at most. worker_count: all of them.
        group: None: it is in none. limit_known: False: the group or its limit could not be read, and `group` is None.
        available_bytes, total_bytes: of the host; 0: not known.
        growth: by line, `file:line`, the bytes that were allocated there and not freed, of the last seconds in which allocations
            were followed, since memory grew; only what an object of Python owns. Empty: they were not followed since the last such
            record. worker_growth: the same of its loader workers.
        growth_seconds: for how long they were followed in the process.
    """

    step: Count
    process: ProcessMemory
    workers: list[ProcessMemory] = []
    worker_count: Count = 0
    group: ControlGroupMemory | None = None
    limit_known: bool = True
    available_bytes: Count = 0
    total_bytes: Count = 0
    device: DeviceMemory | None = None
    growth: dict[Text, Amount] = {}
    worker_growth: dict[Text, Amount] = {}
    growth_seconds: Seconds = 0.0


class LiveBlocks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks of an accelerator's memory that were allocated at one line, `file:line`, and were not freed.

    Attributes:
        stack: `file:line function` of the largest of them, the innermost frame of the user's code first.
    """

    line: Text
    bytes: Count
    count: Count = 1
    stack: Annotated[list[Text], Meta(max_length=MOST_STACK_FRAMES)] = []


class DeviceSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that the caching allocator got from the driver at once. `largest_free_bytes`: of the free piece that fits most."""

    reserved_bytes: Count
    allocated_bytes: Count
    largest_free_bytes: Count = 0


class OutOfMemory(Record, frozen=True, kw_only=True, tag="OutOfMemory"):
    """A process got no memory: the kernel killed it (`place` host), or its accelerator's allocator raised (device).

    Written by who watches the job (launcher, node agent), or at `device` by the rank itself; `time` is when.

    Attributes:
        victim: what was killed: a rank, a worker of its loader, or another process (`other`), such as a neighbour in its group.
        failed_rank, failed_writer, failed_attempt: the rank, or the one whose worker it was; rank -1: none, or not known.
        failed_pid: process id of the victim; 0: not known. process_name: the kernel's name of it.
        step: the last step that the rank finished.
        limit_of: whose limit was reached: path of a control group, `HOST`, or name of the accelerator; empty: not known.
        limit_bytes: 0: not known.
        memory: what the victim held when it was killed.
        requested_bytes: what the allocator was asked for. device: what it held.
        location: line of the job that asked for it, `file:line function`; empty: not known.
        largest_blocks: of the accelerator, the largest first. free_segments: those of the allocator that are not all
            allocated, with the most free bytes first, of `free_segment_count`. Both are empty where it kept no history.
        sources: what says so: `KERNEL_LOG`, `KILL_COUNT` (the group's own count), `LOADER` (the loader said that a worker was
            killed), `ALLOCATOR`.
    """

    place: Literal["host", "device"] = "host"
    victim: Literal["rank", "loader_worker", "other"] = "rank"
    failed_rank: Rank = LAUNCHER_RANK
    failed_writer: Name = ""
    failed_attempt: Count = 0
    failed_pid: Count = 0
    process_name: Name = ""
    step: Count = 0
    limit_of: Text = ""
    limit_bytes: Count = 0
    memory: ProcessMemory | None = None
    requested_bytes: Count = 0
    device: DeviceMemory | None = None
    location: Text = ""
    largest_blocks: Annotated[list[LiveBlocks], Meta(max_length=MOST_LIVE_LINES)] = []
    free_segments: Annotated[list[DeviceSegment], Meta(max_length=MOST_SEGMENTS)] = []
    free_segment_count: Count = 0
    sources: list[Name] = []
    killed_time: UnixSeconds = 0.0
