"""What a call of an accelerator's runtime does to the host: it launches, waits, orders streams, or manages memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.event_kinds import Kind
from tachoscope_analyzers.trace.reading.trace import Trace

Rows = npt.NDArray[np.int64]


class Role(IntEnum):
    """What a call does; of nested calls the larger role counts."""

    OTHER = 0
    ALLOCATION = 1
    FREE = 2
    STREAM_WAIT = 3
    BLOCKING_COPY = 4
    EVENT_SYNC = 5
    STREAM_SYNC = 6
    DEVICE_SYNC = 7


SYNCHRONISING = (Role.EVENT_SYNC, Role.STREAM_SYNC, Role.DEVICE_SYNC)

_ROLES = (
    (Role.DEVICE_SYNC, r"(Device|Ctx|Context|Thread)Synchronize|^synchronize$"),
    (Role.STREAM_SYNC, r"StreamSynchronize|^synchronizeStream$"),
    (Role.EVENT_SYNC, r"EventSynchronize"),
    (Role.STREAM_WAIT, r"StreamWaitEvent|waitOnEvent"),
    (Role.BLOCKING_COPY, r"Memcpy(?!.*(Async|Batch))|MemcpyWithStream"),
    (Role.FREE, r"^(cuda|hip|cu|xpu)(Free|MemFree|FreeHost|HostFree|MemUnmap|MemRelease|MemAddressFree|HostUnregister)"),
    (
        Role.ALLOCATION,
        r"^(cuda|hip|cu|xpu)(Malloc|MemAlloc|HostAlloc|HostMalloc|HostRegister|MemCreate|MemMap|MemSetAccess|MemAddressReserve)",
    ),
)
"""Names of CUDA's and HIP's runtime and driver calls, https://docs.nvidia.com/cuda/cuda-runtime-api/ (modules stream, event,
memory) and https://rocm.docs.amd.com/projects/HIP/, with what exports of nsys append to them (`_v3020`), and those of MTIA."""


def role_of(name: str) -> Role:
    """Return what the call of that name does."""
    return next((role for role, pattern in _ROLES if re.search(pattern, name)), Role.OTHER)


def roles(trace: Trace, rows: Rows) -> npt.NDArray[np.uint8]:
    """Return the `Role` of each event of `rows`, same shape. Only runtime calls have one."""
    return np.where(trace.kind[rows] == Kind.RUNTIME, _by_name(trace, rows, role_of), Role.OTHER).astype(np.uint8)


def _by_name(trace: Trace, rows: Rows, of: Callable[[str], int]) -> npt.NDArray[np.uint8]:
    """Return a number per event that depends on its name only; each name is tested once."""
    codes = trace.events["name"][rows]
    used = np.flatnonzero(np.bincount(codes, minlength=len(trace.strings)))
    table = np.zeros(len(trace.strings), dtype=np.uint8)
    table[used] = [of(name) for name in trace.strings[used].tolist()]
    return table[codes]
