"""Nsight Systems exports (`nsys export --type sqlite`), read into the same columns.

Times in an export are whole nanoseconds. The schema is that of Nsight Systems 2021 to 2025,
https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference; tables and columns that a version lacks count
as absent. A file may hold anything under these names, so it is opened read-only, views are not queried, and values of other types
count as absent too.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tachoscope_analyzers.trace.reading.column_files import Tables, Writers
from tachoscope_analyzers.trace.reading.columns import ColumnBuilder
from tachoscope_analyzers.trace.reading.exact_time import LARGEST, LONGEST
from tachoscope_analyzers.trace.reading.nsight_database import (
    NotAnExportError,
    batches,
    connected,
    device_ids,
    devices,
    labels,
    session_start,
    table_columns,
    texts,
)
from tachoscope_analyzers.trace.reading.nsight_names import Names, as_integers, column, names_of
from tachoscope_analyzers.trace.reading.string_codes import MOST_STRINGS, Array, Codes, TrackCodes
from tachoscope_analyzers.trace.reading.trace import Meta, ReadQuality
from tachoscope_analyzers.trace.reading.track import Track

_MAGIC = b"SQLite format 3\x00"

_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "cuda_runtime", "user_annotation", "cuda_driver")
_PUSH_POP, _START_END = 59, 60
_ID_BITS, _ID_MASK = 24, 0xFFFFFF


@dataclass(frozen=True)
class _Source:
    """One table of an export: its category, the columns that must be there, and those that may be absent (-1)."""

    table: str
    category: int
    needed: tuple[str, ...] = ("start", "end")
    wanted: tuple[str, ...] = ()


_DEVICE = ("deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_SOURCES = (
    _Source(
        "CUPTI_ACTIVITY_KIND_KERNEL",
        0,
        wanted=(*_DEVICE, "demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    ),
    _Source("CUPTI_ACTIVITY_KIND_MEMCPY", 1, wanted=(*_DEVICE, "bytes", "copyKind", "srcKind", "dstKind")),
    _Source("CUPTI_ACTIVITY_KIND_MEMSET", 2, wanted=(*_DEVICE, "bytes")),
    _Source("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", 3, wanted=(*_DEVICE, "syncType")),
    _Source("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 0, wanted=(*_DEVICE, "graphId")),  # whole graphs, where nodes were not traced
    _Source("CUPTI_ACTIVITY_KIND_RUNTIME", 4, wanted=("globalTid", "correlationId", "nameId")),
    _Source("NVTX_EVENTS", 5, wanted=("globalTid", "eventType", "textId", "text")),
)


@dataclass
class _State:
    """What is known across batches."""

    strings: Codes = field(default_factory=lambda: Codes(MOST_STRINGS, ""))
    tracks: TrackCodes = field(default_factory=TrackCodes)
    names: Names = field(default_factory=Names)
    processes: Codes = field(default_factory=lambda: Codes(1 << 16))
    devices: dict[tuple[int, int], int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    rows: int = 0


def is_export(path: Path) -> bool:
    """Return whether a file is a SQLite database.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def convert(path: Path, place: Path) -> Meta:
    """Write the columns of an export into a folder, and return what it says about itself.

    Raises:
        NotAnExportError: the file is none, or is damaged.
        OSError: the file cannot be read, or the disk is full.
    """
    state = _State()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        writers = Writers(place)
        with closing(connected(path)) as database:
            sources = [(source, _columns(database, source)) for source in _SOURCES]
            if not any(columns for _, columns in sources):
                raise NotAnExportError("it is a database without the tables of an Nsight Systems export")
            state.names, state.devices = Names(texts(database), labels(database, "ENUM_CUDA_MEM_KIND")), device_ids(database)
            writers.append(ColumnBuilder().tables([]))
            for source, columns in sources:
                for batch in batches(database, source.table, columns, path.stat().st_size):
                    writers.append(_tables(state, source.category, batch))
            writers.finish(list(state.strings))
            return _meta(database, state, digest, path)
    except (sqlite3.Error, OverflowError) as error:
        raise NotAnExportError(f"the database cannot be read: {error}") from None


def _columns(database: sqlite3.Connection, source: _Source) -> list[str]:
    """Return a source's existing columns; none unless it is a table with the required ones."""
    there = table_columns(database, source.table)
    if not there.issuperset(source.needed):
        return []
    return [name for name in (*source.needed, *source.wanted) if name in there]


def _tables(state: _State, category: int, batch: dict[str, list[Any]]) -> Tables:
    """Return the columns of a batch, without rows that have no time."""
    start, end = as_integers(batch["start"], LARGEST + 1), as_integers(batch["end"], LARGEST + 1)
    chosen = (np.abs(start) <= LARGEST) & (np.abs(end) <= LARGEST)
    if category == _CATEGORIES.index("user_annotation") and "eventType" in batch:
        chosen &= np.isin(as_integers(batch["eventType"]), (_PUSH_POP, _START_END))
    state.counts["events"] += len(chosen)
    state.counts["flows_and_others_skipped"] += int((~chosen).sum())
    rows = np.flatnonzero(chosen).tolist()
    batch = {name: [values[row] for row in rows] for name, values in batch.items()}
    start, duration = start[chosen], (end - start)[chosen]
    state.counts["negative_durations"] += int((duration < 0).sum())
    on_device = category <= _CATEGORIES.index("cuda_sync")
    process, thread = _process_and_thread(batch, len(rows))
    device = column(batch, "deviceId", len(rows))
    if on_device and state.devices:
        pairs = zip(process.tolist(), device.tolist(), strict=True)
        device = np.array([state.devices.get(pair, pair[1]) for pair in pairs], dtype=np.int64)
    texts = names_of(_CATEGORIES[category], batch, len(rows), state.names)
    categories = np.full(len(rows), category, dtype=np.uint8)
    if category == _CATEGORIES.index("cuda_runtime"):
        categories[[name.startswith("cu") and not name.startswith("cuda") for name in texts]] = _CATEGORIES.index("cuda_driver")
    stream = column(batch, "streamId", len(rows))
    track = zip(
        [f"device {number}" for number in device.tolist()] if on_device else process.tolist(),
        (stream if on_device else thread).tolist(),
        strict=True,
    )
    tables: Tables = {
        "events": {
            "start": start,
            "duration": np.clip(duration, 0, LONGEST),
            "category": categories,
            "name": state.strings.encode(texts),
            "track": state.tracks.encode(track, len(rows)),
            "correlation": _correlation(state, batch, process),
            "external": np.full(len(rows), -1, dtype=np.int64),
        },
    }
    if on_device:
        tables["device"] = _device(state, batch, device)
    state.rows += len(rows)
    return tables


def _process_and_thread(batch: dict[str, list[Any]], count: int) -> tuple[Array, Array]:
    """Return process and thread from a global id: 24 bits each, the thread's lowest."""
    text = "globalTid" if "globalTid" in batch else "globalPid"
    number = column(batch, text, count)
    return np.where(number < 0, -1, number >> _ID_BITS & _ID_MASK), np.where(number < 0, -1, number & _ID_MASK)


def _correlation(state: _State, batch: dict[str, list[Any]], process: Array) -> Array:
    """Return correlation ids unique across an export's processes, which each count from 1 in 32 bits."""
    number = column(batch, "correlationId", len(process))
    known = process >= 0  # older exports name no process beside device work; there is one then
    index = np.zeros(len(process), dtype=np.int64)
    index[known] = state.processes.encode([str(one) for one in process[known].tolist()], np.int64)
    return np.where(number < 0, -1, (number & 0xFFFFFFFF) | index << 32)


def _device(state: _State, batch: dict[str, list[Any]], device: Array) -> dict[str, Array]:
    count = len(device)
    unknown = np.full(count, -1, dtype=np.float32)
    return {
        "row": np.arange(count, dtype=np.int64) + state.rows,
        "stream": column(batch, "streamId", count),
        "device": device,
        "bytes": column(batch, "bytes", count),
        "occupancy_percent": unknown,
        "blocks_per_sm": unknown,
        "grid": _triples(state, batch, "grid", count),
        "block": _triples(state, batch, "block", count),
        "graph_node": column(batch, "graphNodeId", count),
        "wait_stream": np.full(count, -1, dtype=np.int64),
        "wait_correlation": np.full(count, -1, dtype=np.int64),
    }


def _triples(state: _State, batch: dict[str, list[Any]], prefix: str, count: int) -> Array:
    """Return codes of texts such as `[8, 1, 1]`, as in other traces."""
    if not count or f"{prefix}X" not in batch:
        return np.zeros(count, dtype=np.int32)
    sides = [column(batch, prefix + axis, count).tolist() for axis in "XYZ"]
    return state.strings.encode([f"[{x}, {y}, {z}]" for x, y, z in zip(*sides, strict=True)])


def _meta(database: sqlite3.Connection, state: _State, digest: str, path: Path) -> Meta:
    counts = state.counts
    counts["names_beyond_the_limit"] += state.strings.overflow
    counts["tracks_beyond_the_limit"] += state.tracks.overflow
    return Meta(
        digest=digest,
        writer="nsight",
        text_bytes=path.stat().st_size,
        tracks=[
            Track(process, thread, process, "", f"stream {thread}" if process.startswith("device") else f"thread {thread}")
            for process, thread in state.tracks.texts
        ],
        categories=list(_CATEGORIES),
        quality=ReadQuality(counts=dict(counts)),
        base_nanoseconds=session_start(database),
        devices=devices(database),
    )
