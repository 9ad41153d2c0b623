"""What an event is: the categories of all writers and versions, mapped to one list."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt


class Kind(IntEnum):
    """Kind of an event. Only `DEVICE` kinds occupy an accelerator; a stream argument alone does not make a kernel."""

    OTHER = 0
    CPU_OP = 1
    ANNOTATION = 2
    DEVICE_ANNOTATION = 3
    RUNTIME = 4
    KERNEL = 5
    MEMCPY = 6
    MEMSET = 7
    SYNC = 8
    PYTHON = 9
    OVERHEAD = 10


DEVICE = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
"""Kinds that occupy an accelerator. `SYNC` events stand on device tracks too, but there the device waits."""

ON_DEVICE = (*DEVICE, Kind.SYNC)
"""Kinds whose arguments name a device and stream."""
SHAPED = (Kind.CPU_OP, Kind.ANNOTATION)
"""Kinds whose arguments may contain shapes."""

BY_CATEGORY = {
    # Kineto since 2022
    "cpu_op": Kind.CPU_OP,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
    # Kineto in 2021
    "operator": Kind.CPU_OP,
    "runtime": Kind.RUNTIME,
    "memcpy": Kind.MEMCPY,
    "memset": Kind.MEMSET,
    # other accelerators
    "hip_runtime": Kind.RUNTIME,
    "concurrent_kernel": Kind.KERNEL,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "mtia_ccp_events": Kind.KERNEL,
    "glow_runtime": Kind.RUNTIME,
}
"""Kind by category in lower case, https://github.com/pytorch/kineto/blob/main/libkineto/src/ActivityType.cpp."""

BY_NAME = {
    "mtia_ccp_events": {"dma_request": Kind.MEMCPY, "event_wait": Kind.SYNC, "event_record": Kind.SYNC},
}
"""Kind by category and name, for writers that put what a device does and what it waits for into one category."""


def kind_of(category: str) -> Kind:
    """Return the kind of a category, `OTHER` for one that is not known."""
    return BY_CATEGORY.get(category.lower(), Kind.OTHER)


def is_any(kind: npt.NDArray[Any], kinds: Iterable[Kind]) -> npt.NDArray[np.bool_]:
    """Return which events are of one of some kinds, shape of `kind`; `np.isin` takes several times as long."""
    chosen = np.zeros(len(Kind), dtype=bool)
    chosen[[*kinds]] = True
    return np.asarray(chosen[kind])
