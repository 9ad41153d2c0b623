"""Writes a trace back for ui.perfetto.dev, with what was found in it as further tracks.

The user's own events are copied as text, so nothing of them is lost; only what is not a text (SQLite) is written again.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
import pandas as pd

from tachoscope_analyzers.trace.reading.decompress import Blocks
from tachoscope_analyzers.trace.reading.nsight import is_export
from tachoscope_analyzers.trace.reading.split_json import EventArray
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_core.errors import TachoscopeError

CATEGORY = "tachoscope"
_EVENTS_AT_ONCE = 50_000


class Slice(msgspec.Struct, frozen=True):
    """A stretch of time (ns) with a title; `lane` tells several tracks of one kind apart, such as `device 0`."""

    start_ns: int
    end_ns: int
    title: str
    args: dict[str, Any] = field(default_factory=dict)
    lane: str = ""


def write(
    trace: Trace, out: Path, *, ledger: Iterable[Slice] = (), findings: Iterable[Slice] = (), path: pd.DataFrame | None = None
) -> None:
    """Write a trace with the tracks `tachoscope: ledger`, `tachoscope: findings` and `tachoscope: critical path`.

    `path` is a table of `critical_path`. The file is JSON in the Chrome format, compressed when its name ends in `.gz`; it appears
    only when it is whole. Memory stays flat however large the trace is.

    Raises:
        TachoscopeError: the trace's file is gone, or `out` cannot be written or is the trace itself.
    """
    if out.exists() and trace.path.exists() and out.samefile(trace.path):
        raise TachoscopeError(f"{out} is the trace itself", fix="give another name to --perfetto")
    try:
        with _written(out) as file:
            closing = _reemit(trace, file) if is_export(trace.path) else _copy(trace.path, file)
            for text in _tracks(trace, ledger, findings, path):
                file.write(b",\n" + text if closing.separate else text)
                closing.separate = True
            file.write(closing.text)
    except OSError as error:
        raise TachoscopeError(f"could not write {out} from {trace.path}: {error.strerror or error}") from None


@dataclass
class _Closing:
    """What is still to be written: the text after the events; `separate`: a comma must precede another event."""

    text: bytes
    separate: bool


@contextmanager
def _written(out: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which gets its name when complete and is removed on failure."""
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as raw:
            if out.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=3, mtime=0) as file:
                    yield cast(BinaryIO, file)
            else:
                yield raw
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)


def _copy(path: Path, file: BinaryIO) -> _Closing:
    array = EventArray(Blocks(path), scan=True)
    separate = False
    for chunk in array.chunks():
        if not separate:
            file.write(array.header)
        text = chunk.strip(b" \t\r\n,")
        if text:
            file.write(b",\n" + text if separate else b"\n" + text)
            separate = True
    if not separate:
        file.write(array.header)
    whole = array.trailer if array.ended else (b"]" if array.header.lstrip().startswith(b"[") else b"]}")
    return _Closing(b"\n" + whole, separate)


def _reemit(trace: Trace, file: BinaryIO) -> _Closing:
    """Write the events from the columns: times, names, tracks, and launch links."""
    file.write(b'{"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": [\n')
    separate = False
    for number, track in enumerate(trace.meta.tracks):
        name = track.thread_name or track.thread
        file.write((b",\n" if separate else b"") + _json(_named("thread_name", _place(trace, number), name)))
        separate = True
    devices = dict(zip(trace.device["row"].tolist(), range(len(trace.device)), strict=True))
    for first in range(0, len(trace.events), _EVENTS_AT_ONCE):
        rows = np.arange(first, min(first + _EVENTS_AT_ONCE, len(trace.events)))
        lines = [
            _event(trace, row, name, devices.get(row)) for row, name in zip(rows.tolist(), trace.names(rows).tolist(), strict=True)
        ]
        file.write((b",\n" if separate else b"") + b",\n".join(lines))
        separate = True
    return _Closing(b"\n]}", separate)


def _event(trace: Trace, row: int, name: str, device: int | None) -> bytes:
    events = trace.events
    args = {"External id": int(events["external"][row]), "correlation": int(events["correlation"][row])}
    if device is not None:
        args |= {key: int(trace.device[key][device]) for key in ("stream", "device", "bytes")}
    args = {key: value for key, value in args.items() if value >= 0}
    category = trace.meta.categories[events["category"][row]]
    return _slice(
        category, name, _place(trace, int(events["track"][row])), int(events["start"][row]), int(events["duration"][row]), args
    )


def _tracks(trace: Trace, ledger: Iterable[Slice], findings: Iterable[Slice], path: pd.DataFrame | None) -> Iterator[bytes]:
    process = _free_process(trace)
    yield _json({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": "tachoscope"}})
    yield _json({"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": -1}})
    tracks = chain(_lanes("ledger", ledger), _lanes("findings", findings))
    if path is not None:
        tracks = chain(tracks, [("tachoscope: critical path", _path_slices(path))])
    for thread, (title, slices) in enumerate(tracks, 1):
        place = {"pid": process, "tid": thread}
        yield _json(_named("thread_name", place, title))
        yield _json({"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": thread}})
        for one in slices:
            yield _slice(CATEGORY, one.title, place, one.start_ns, one.end_ns - one.start_ns, one.args)
    if path is not None:
        yield from _arrows(trace, path)


def _lanes(kind: str, slices: Iterable[Slice]) -> Iterator[tuple[str, Iterable[Slice]]]:
    """Yield tracks with titles; overlapping slices get separate tracks, since a track only shows nested ones."""
    lanes: dict[str, list[list[Slice]]] = {}
    for one in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns)):
        tracks = lanes.setdefault(one.lane, [])
        free = next((track for track in tracks if track[-1].end_ns <= one.start_ns), None)
        if free is None:
            tracks.append([one])
        else:
            free.append(one)
    for lane, tracks in lanes.items():
        for number, track in enumerate(tracks):
            yield " ".join(filter(None, (f"tachoscope: {kind}", lane, str(number + 1) if number else ""))), track


def _path_slices(path: pd.DataFrame) -> Iterator[Slice]:
    """Yield the segments of a critical path, consecutive host work as one."""
    joined = _joined(path)
    for first in range(0, len(joined), _EVENTS_AT_ONCE):
        part = joined.iloc[first : first + _EVENTS_AT_ONCE]
        told = part[["category", "place", "operator", "edge"]].to_dict("records")
        for start, end, title, one in zip(part["start_ns"], part["end_ns"], part["title"], told, strict=True):
            yield Slice(int(start), int(end), title, {str(key): value for key, value in one.items() if value})


def _joined(path: pd.DataFrame) -> pd.DataFrame:
    category, place = path["category"].astype(str).to_numpy(), path["place"].to_numpy()
    host = np.isin(category, ("host_operator", "host_other", "runtime_call"))
    same = np.append(False, host[1:] & host[:-1] & (category[1:] == category[:-1]) & (place[1:] == place[:-1]))[: len(path)]
    first = np.flatnonzero(~same)
    joined = path.iloc[first].assign(category=category[first])
    last = np.append(first[1:], len(path)) - 1
    joined["end_ns"] = (path["start_ns"] + path["duration_ns"]).to_numpy()[last] if len(path) else 0
    alone = last == first
    joined["title"] = np.where(alone & (joined["name"] != ""), joined["name"], joined["category"])
    joined["operator"] = np.where(alone, joined["operator"], "")
    return joined


def _arrows(trace: Trace, path: pd.DataFrame) -> Iterator[bytes]:
    """Yield arrows between events where the path changes thread or stream."""
    known = path[path["row"] >= 0]
    rows = known["row"].to_numpy(dtype=np.int64)
    tracks = trace.events["track"][rows]
    start = known["start_ns"].to_numpy(dtype=np.int64)
    end = np.minimum(start + known["duration_ns"].to_numpy(dtype=np.int64), trace.end[rows])  # an arrow begins within its event
    for number, at in enumerate(np.flatnonzero(tracks[1:] != tracks[:-1]).tolist()):
        for phase, place, moment in (("s", at, int(end[at]) - 1), ("f", at + 1, int(start[at + 1]))):
            arrow = {
                "ph": phase,
                "id": f"tachoscope-{number}",
                "cat": CATEGORY,
                "name": "critical path",
                **_place(trace, int(tracks[place])),
            }
            yield _json(arrow | ({"bp": "e"} if phase == "f" else {}), moment)


def _named(what: str, place: dict[str, Any], name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, **place, "args": {"name": name}}


def _slice(category: str, name: str, place: dict[str, Any], start_ns: int, duration_ns: int, args: dict[str, Any]) -> bytes:
    event = {"ph": "X", "cat": category, "name": name, **place}
    return _json(event | ({"args": args} if args else {}), start_ns, duration_ns)


def _json(event: dict[str, Any], start_ns: int | None = None, duration_ns: int | None = None) -> bytes:
    """Return an event as text, its times with three decimals, more than a float holds."""
    text = json.dumps(event, default=str)[:-1]
    for key, value in (("ts", start_ns), ("dur", duration_ns)):
        if value is not None:
            sign, size = ("-", -value) if value < 0 else ("", value)
            text += f', "{key}": {sign}{size // 1000}.{size % 1000:03d}'
    return (text + "}").encode()


def _place(trace: Trace, number: int) -> dict[str, Any]:
    track = trace.meta.tracks[number]
    return {"pid": _number(track.process), "tid": _number(track.thread)}


def _number(text: str) -> int | str:
    try:
        return int(text) if str(int(text)) == text else text
    except ValueError:
        return text


def _free_process(trace: Trace) -> int:
    taken = {track.process for track in trace.meta.tracks}
    return next(number for number in range(7_000_000, 8_000_000) if str(number) not in taken)
