"""Kinds of events for writers that give their events no category, only tracks and names that mean something.

Horovod's timeline (horovod 0.28, `common/timeline.cc`): a process for each tensor, all times on the host's clock. What moves a
tensor while the device is busy (`NCCL_*`, copies to and from the fusion buffer) counts as device work, the operation around it
(`ALLREDUCE`) as an operator, and negotiation, queueing and waiting as annotations.

TensorFlow's and JAX's trace viewer (`trace_events_to_json` of TensorFlow 2.x and xprof 2.x): processes such as `/device:GPU:0` and
`/host:CPU`. On a GPU the lines `Stream #14(Compute)` are device work, and lines such as `XLA Ops` or `Steps` are derived from them,
so they count as annotations of the device; a TPU has no streams, and its `XLA Ops` are the work.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.event_kinds import DEVICE, Kind, is_any

if TYPE_CHECKING:
    from tachoscope_analyzers.trace.reading.track import Track

Array = npt.NDArray[Any]

WRITERS = ("horovod", "tensorflow")

_HOROVOD = (
    (re.compile(r"NCCL_|HIERARCHICAL_|NVTX_|DDL_|CCL_"), Kind.KERNEL),
    (re.compile(r"MEMCPY_(IN|OUT)_"), Kind.MEMCPY),
    (re.compile(r"NEGOTIATE_|WAIT_|QUEUE|INIT_|SCHEDULE|ALLOCATE_|\d+$"), Kind.ANNOTATION),
)
_STREAM = re.compile(r"Stream #(\d+)")
_DEVICE_NUMBER = re.compile(r"/device:[A-Za-z_]+:(\d+)")
_WORK_OF_A_TPU = ("XLA Ops", "Async XLA Ops", "Sparse Core Ops")
_CALL = re.compile(r"(cuda|cu|hip|hipLaunch)[A-Z]\w+$")
_COPY, _FILL = re.compile(r"memcpy", re.IGNORECASE), re.compile(r"memset", re.IGNORECASE)


def kinds(writer: str, tracks: list[Track], track: Array, name: Array, strings: Array) -> npt.NDArray[np.uint8]:
    """Return the kind of each event from the codes of its track and name, shape (N,)."""
    used = np.unique(name)
    if writer == "horovod":
        return _by_name(used, strings, _horovod)[name]
    with_streams = {one.process for one in tracks if _STREAM.match(one.thread_name)}
    line = np.array([_line(one, with_streams) for one in tracks] or [Kind.OTHER], dtype=np.uint8)
    kind = line[track]
    host = _by_name(used, strings, _host)[name]
    work = _by_name(used, strings, _work)[name]
    return np.where(kind == Kind.CPU_OP, host, np.where(kind == Kind.KERNEL, work, kind))


def device_columns(tracks: list[Track], track: Array, kind: Array) -> dict[str, Array]:
    """Return the columns of `Trace.device` for a file without device arguments: streams are threads, devices are processes."""
    row = np.flatnonzero(is_any(kind, DEVICE))
    stream = np.array([_stream(code, one) for code, one in enumerate(tracks)] or [-1], dtype=np.int64)
    device = np.array([_device(one) for one in tracks] or [-1], dtype=np.int64)
    absent, none = np.full(len(row), -1, dtype=np.int64), np.zeros(len(row), dtype=np.int32)
    numbers = dict.fromkeys(("bytes", "graph_node", "wait_stream", "wait_correlation"), absent)
    unknown = np.full(len(row), -1, dtype=np.float32)
    return {
        "row": row,
        "stream": stream[track[row]],
        "device": device[track[row]],
        **numbers,
        "occupancy_percent": unknown,
        "blocks_per_sm": unknown,
        "grid": none,
        "block": none,
    }


def _by_name(used: Array, strings: Array, rule: Any) -> npt.NDArray[np.uint8]:
    found = np.zeros(len(strings), dtype=np.uint8)
    found[used] = [rule(text) for text in strings[used].tolist()]
    return found


def _horovod(name: str) -> Kind:
    return next((kind for pattern, kind in _HOROVOD if pattern.match(name)), Kind.CPU_OP)


def _host(name: str) -> Kind:
    if name.startswith("$"):  # the Python tracer's: `$file.py:12 function`
        return Kind.PYTHON
    return Kind.RUNTIME if _CALL.match(name) else Kind.CPU_OP


def _work(name: str) -> Kind:
    return Kind.MEMCPY if _COPY.match(name) else Kind.MEMSET if _FILL.match(name) else Kind.KERNEL


def _line(track: Track, with_streams: set[str]) -> Kind:
    if "/device:" not in track.process_name or "/device:CPU" in track.process_name:
        return Kind.OTHER if "metadata" in track.process_name else Kind.CPU_OP
    if _STREAM.match(track.thread_name) or "/stream:" in track.process_name:
        return Kind.KERNEL
    alone = track.process not in with_streams
    return Kind.KERNEL if alone and track.thread_name in _WORK_OF_A_TPU else Kind.DEVICE_ANNOTATION


def _stream(code: int, track: Track) -> int:
    found = _STREAM.match(track.thread_name)
    text = found.group(1) if found else track.thread
    return int(text) if text.isdecimal() and len(text) < 19 else code


def _device(track: Track) -> int:
    found = _DEVICE_NUMBER.search(track.process_name)
    return int(found.group(1)[:9]) if found else 0
