"""Names of events in an Nsight Systems export, as Kineto would write them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Batch = dict[str, list[Any]]
"""Values by column, of any type."""

_COPY_KINDS = {
    0: "Memcpy",
    1: "Memcpy HtoD",
    2: "Memcpy DtoH",
    3: "Memcpy HtoA",
    4: "Memcpy AtoH",
    5: "Memcpy AtoA",
    6: "Memcpy AtoD",
    7: "Memcpy DtoA",
    8: "Memcpy DtoD",
    9: "Memcpy HtoH",
    10: "Memcpy PtoP",
    11: "Memcpy HtoD (unified memory)",
    12: "Memcpy DtoH (unified memory)",
    13: "Memcpy DtoD (unified memory)",
}
"""Names as Kineto writes them, by ENUM_CUDA_MEMCPY_OPER."""
_SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Names as Kineto writes them, by CUpti_ActivitySynchronizationType."""
_VERSION = re.compile(r"_v\d+$")


@dataclass(frozen=True)
class Names:
    """What numbers in an export stand for: texts, and kinds of memory (`Pageable`, `Pinned`, `Device`, ...)."""

    texts: dict[int, str] = field(default_factory=dict)
    memory_kinds: dict[int, str] = field(default_factory=dict)


def names_of(category: str, batch: Batch, count: int, names: Names) -> list[str]:
    """Return the names of a batch of events of one category, "" for one without."""
    match category:
        case "kernel":
            found = _texts(batch, ("demangledName", "shortName"), count, names)
            return [name or "CUDA graph" for name in found] if "graphId" in batch else found
        case "gpu_memcpy":
            return _copies(batch, count, names)
        case "gpu_memset":
            return ["Memset (Device)"] * count
        case "cuda_sync":
            return [_SYNC_KINDS.get(kind, "Sync") for kind in column(batch, "syncType", count).tolist()]
        case "cuda_runtime":  # `cudaLaunchKernel_v7000`: the version of the interface is none of the name
            return [_VERSION.sub("", name) for name in _texts(batch, ("nameId",), count, names)]
    written = batch.get("text") or [None] * count
    numbered = _texts(batch, ("textId",), count, names)
    return [text if isinstance(text, str) and text else other for text, other in zip(written, numbered, strict=True)]


def _copies(batch: Batch, count: int, names: Names) -> list[str]:
    kinds = column(batch, "copyKind", count).tolist()
    ends = zip(column(batch, "srcKind", count).tolist(), column(batch, "dstKind", count).tolist(), strict=True)
    memory = names.memory_kinds
    return [
        _COPY_KINDS.get(kind, _COPY_KINDS[0])
        + (f" ({memory[one]} -> {memory[other]})" if one in memory and other in memory else "")
        for kind, (one, other) in zip(kinds, ends, strict=True)
    ]


def _texts(batch: Batch, columns: tuple[str, ...], count: int, names: Names) -> list[str]:
    """Return the text of the first numeric column that has one, else ""."""
    found = [""] * count
    for name in columns:
        for row, value in enumerate(batch.get(name, ())):
            if not found[row] and isinstance(value, int):
                found[row] = names.texts.get(value, "")
    return found


def column(batch: Batch, name: str, count: int) -> npt.NDArray[np.int64]:
    """Return a column of whole numbers, -1 where it has none, shape (count,)."""
    return as_integers(batch[name]) if name in batch else np.full(count, -1, dtype=np.int64)


def as_integers(values: list[Any], absent: int = -1) -> npt.NDArray[np.int64]:
    """Return values as whole numbers, `absent` for those of other types, shape (N,)."""
    return np.array([value if isinstance(value, int) else absent for value in values], dtype=np.int64)
