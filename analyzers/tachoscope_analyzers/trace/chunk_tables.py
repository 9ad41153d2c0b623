"""The tables of a trace chunk by chunk, in the order of the file: made by this process, or by two where the file is large."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tachoscope_analyzers.trace.columns import ColumnBuilder, Tables
from tachoscope_analyzers.trace.decode import MalformedEventError, decode, decode_each
from tachoscope_analyzers.trace.second_process import SecondProcess, UnsoundChunkError, second_process
from tachoscope_analyzers.trace.split import EventArray

_LEAST_BYTES = 64 << 20
_COMPRESSED = (".gz", ".zst")
_USUAL_COMPRESSION = 16
_MOST_WAITING = 12
_BLANK = b" \t\r\n,"


def worth_two(path: Path) -> bool:
    """Say whether a second process pays: the text is large, there are cores, and no pool uses them for other files."""
    size = path.stat().st_size * (_USUAL_COMPRESSION if path.suffix in _COMPRESSED else 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return size >= _LEAST_BYTES and cores > 1 and multiprocessing.parent_process() is None


def by_one(array: EventArray, builder: ColumnBuilder) -> Iterator[Tables]:
    """Yield the tables of every chunk; what is not sound is read event by event.

    Raises:
        NotATraceError, MalformedEventError: see `EventArray` and `decode_each`.
    """
    for chunk in array.chunks():
        text = chunk.strip(_BLANK)
        try:
            events = decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            builder.counts["chunks_read_event_by_event"] += 1
            events = _each(text, array, builder)
        yield builder.tables(events)


def _each(text: bytes, array: EventArray, builder: ColumnBuilder) -> list[object]:
    try:
        events, closed = decode_each(text, builder.counts)
    except MalformedEventError as error:
        error.offset += array.position
        raise
    if closed >= 0:
        array.array_ended_at(text[closed:])
    return events


def by_two(array: EventArray, builder: ColumnBuilder) -> Iterator[Tables]:
    """Yield the same with the help of a second process.

    Raises:
        UnsoundChunkError: a chunk must be read event by event, or events begin in one and end in another: `by_one` reads those.
        NotATraceError: see `EventArray`.
    """
    with second_process(builder) as second:
        waiting: deque[Tables | None] = deque()  # None: the second process has it
        rows = 0
        try:
            for chunk in array.chunks():
                waiting.append(_begun(chunk.strip(_BLANK), builder, second))
                while waiting and (
                    waiting[0] is not None or len(waiting) > _MOST_WAITING or (second is not None and second.ready())
                ):
                    tables, rows = _shifted(_finished(waiting.popleft(), second), rows)
                    yield tables
            while waiting:
                tables, rows = _shifted(_finished(waiting.popleft(), second), rows)
                yield tables
        except (OSError, EOFError) as error:
            raise UnsoundChunkError from error
    builder.rows = rows
    if builder.unpaired:
        raise UnsoundChunkError


def _is_ready(second: SecondProcess | None) -> bool:
    return second is not None and second.ready()


def _begun(text: bytes, builder: ColumnBuilder, second: SecondProcess | None) -> Tables | None:
    if second is not None and not second.busy:
        second.give(text)
        return None
    builder.rows = 0
    try:
        return builder.tables(decode(text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UnsoundChunkError from None


def _finished(tables: Tables | None, second: SecondProcess | None) -> Tables:
    if tables is not None:
        return tables
    assert second is not None, "only it takes chunks away"
    return second.take()


def _shifted(tables: Tables, rows: int) -> tuple[Tables, int]:
    """Return the tables with their rows counted from the file's first event, and the number of the next."""
    for columns in tables.values():
        if "row" in columns:
            columns["row"] = columns["row"] + rows
    return tables, rows + len(tables["events"]["start"])
