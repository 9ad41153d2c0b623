"""A second process that makes columns of every other chunk or so of a large trace, while this one does the rest.

The two talk through pipes: a chunk's text goes over, its tables come back as Arrow, the texts that are new as JSON. Nothing is
pickled.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import msgspec
import numpy as np
import pyarrow as pa

from tachoscope_analyzers.trace.arrow import to_numpy
from tachoscope_analyzers.trace.codes import Array
from tachoscope_analyzers.trace.columns import ColumnBuilder, Tables
from tachoscope_analyzers.trace.decode import Begin, End, decode

_LENGTH = struct.Struct("<Q")
_PIPE_BYTES = 1 << 20
_END_SECONDS = 5.0


class New(msgspec.Struct, frozen=True):
    """What a chunk brought that is new, in the order of its codes; `sound` is false where the other side must look itself."""

    sound: bool
    strings: list[str] = []
    tracks: list[tuple[str, str]] = []
    categories: list[str] = []
    counts: dict[str, int] = {}
    process_names: dict[str, str] = {}
    process_labels: dict[str, str] = {}
    thread_names: list[tuple[tuple[str, str], str]] = []
    tables: list[str] = []


class UnsoundChunkError(ValueError):
    """The chunk cannot be read the fast way, or depends on those before it."""


class SecondProcess:
    """Takes one chunk at a time. Its codes are mapped to those of the builder that it was made for."""

    def __init__(self, process: subprocess.Popen[bytes], builder: ColumnBuilder) -> None:
        self._process = process
        self._builder = builder
        self._strings, self._tracks, self._categories = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.busy = False

    def give(self, chunk: bytes) -> None:
        """Send a chunk to be read.

        Raises:
            OSError: the process is gone.
        """
        _send(_stream(self._process.stdin), chunk)
        self.busy = True

    def ready(self) -> bool:
        """Say whether the tables of the chunk can be taken without waiting."""
        return bool(select.select([_stream(self._process.stdout)], [], [], 0)[0])

    def take(self) -> Tables:
        """Return the tables of the chunk that was given, in this builder's codes, rows counted from 0.

        Raises:
            UnsoundChunkError: the chunk must be read in order, event by event.
            EOFError, OSError: the process is gone.
        """
        source = _stream(self._process.stdout)
        new = msgspec.json.decode(_receive(source), type=New)
        if not new.sound:
            raise UnsoundChunkError
        read = {name: pa.ipc.open_stream(_receive(source)).read_all() for name in new.tables}
        self.busy = False
        self._learn(new)
        return {
            name: {column: self._mapped(column, to_numpy(table.column(column))) for column in table.column_names}
            for name, table in read.items()
        }

    def _learn(self, new: New) -> None:
        builder = self._builder
        self._strings = np.append(self._strings, builder.strings.of(new.strings))
        self._tracks = np.append(self._tracks, builder.tracks.of(new.tracks, len(new.tracks)))
        self._categories = np.append(self._categories, builder.categories.of(new.categories))
        builder.counts.update(new.counts)
        for known, names in ((builder.process_names, new.process_names), (builder.process_labels, new.process_labels)):
            for process, name in names.items():
                known.setdefault(process, name)
        for track, name in new.thread_names:
            builder.thread_names.setdefault(track, name)

    def _mapped(self, column: str, values: Array) -> Array:
        if column == "track":
            return np.asarray(self._tracks[values], dtype=np.int32)
        if column == "category":
            return np.asarray(self._categories[values], dtype=np.uint8)
        return np.asarray(self._strings[values], dtype=np.int32) if values.dtype == np.int32 else values


@contextmanager
def second_process(builder: ColumnBuilder) -> Iterator[SecondProcess | None]:
    """Give a second process, or None where none can be started; it is ended at the end."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except OSError:
        yield None
        return
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            fcntl.fcntl(_stream(stream), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    try:
        yield SecondProcess(process, builder)
    finally:
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                _stream(stream).close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Read chunks from standard input until it ends."""
    gc.disable()
    builder = ColumnBuilder()
    told = [0, 0, 0]
    while True:
        try:
            chunk = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            events = decode(chunk)
        except (ValueError, RecursionError):
            _send(sys.stdout.buffer, msgspec.json.encode(New(sound=False)))
            continue
        if any(type(event) in (Begin, End) for event in events):  # their other halves may be in other chunks
            _send(sys.stdout.buffer, msgspec.json.encode(New(sound=False)))
            continue
        builder.rows = 0
        builder.counts.clear()
        tables = builder.tables(events)
        _send(sys.stdout.buffer, msgspec.json.encode(_new(builder, told, list(tables))))
        for columns in tables.values():
            _send(sys.stdout.buffer, _packed(columns))


def _new(builder: ColumnBuilder, told: list[int], tables: list[str]) -> New:
    strings, tracks, categories = list(builder.strings), list(builder.tracks.texts), list(builder.categories)
    strings, tracks, categories = strings[told[0] :], tracks[told[1] :], categories[told[2] :]
    told[:] = [len(builder.strings), len(builder.tracks.texts), len(builder.categories)]
    found = New(
        sound=True,
        strings=strings,
        tracks=tracks,
        categories=categories,
        counts=dict(builder.counts),
        process_names=dict(builder.process_names),
        process_labels=dict(builder.process_labels),
        thread_names=list(builder.thread_names.items()),
        tables=tables,
    )
    for names in (builder.process_names, builder.process_labels, builder.thread_names):
        names.clear()
    return found


def _packed(columns: dict[str, Array]) -> memoryview:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "both ends are pipes"
    return stream


def _send(stream: IO[bytes], message: bytes | memoryview) -> None:
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    message = stream.read(size)
    if len(message) < size:
        raise EOFError
    return message
