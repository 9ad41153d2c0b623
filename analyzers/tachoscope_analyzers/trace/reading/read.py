"""Reads a trace file of any size into columns, or opens the columns that an earlier reading left in the cache."""

from __future__ import annotations

import atexit
import gc
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_analyzers.trace.reading import cache, nsight
from tachoscope_analyzers.trace.reading.column_files import Tables, Writers
from tachoscope_analyzers.trace.reading.columns import ColumnBuilder
from tachoscope_analyzers.trace.reading.decode_events import MalformedEventError, decode, decode_each
from tachoscope_analyzers.trace.reading.decompress import Blocks
from tachoscope_analyzers.trace.reading.header_trailer import keys_outside_events
from tachoscope_analyzers.trace.reading.metadata import meta_of
from tachoscope_analyzers.trace.reading.nsight_database import NotAnExportError
from tachoscope_analyzers.trace.reading.scan import scanned
from tachoscope_analyzers.trace.reading.split_json import EventArray, NotATraceError
from tachoscope_analyzers.trace.reading.trace import Meta, ReadQuality, Trace
from tachoscope_core.errors import TachoscopeError

Progress = Callable[[int, int], None]
"""Called with the bytes of the file that were read, and all there are."""

SWITCH_SECONDS = 0.0005
"""After so long a thread that runs Python gives the interpreter's lock to one that reads, which needs it briefly and often."""


def read(path: Path, *, progress: Progress | None = None) -> Trace:
    """Return a trace: Kineto or other Chrome-format JSON (plain, gzip, zstandard), or an Nsight Systems export (SQLite).

    Raises:
        TachoscopeError: the file cannot be read, or is not a trace.
    """
    begun = _READINGS.pop(path, None)
    return _opened(path, progress) if begun is None else begun.trace()


def _opened(path: Path, progress: Progress | None) -> Trace:
    with _named_errors(path):
        return _cached(path) or _read(path, progress)


def begin_reading(path: Path) -> None:
    """Begin to read a trace in a thread; the next `read` of this path waits for it, and returns or raises what it found.

    Reading holds the interpreter's lock for little of its time: this process may import what it analyses the trace with meanwhile.
    """
    reading = _Reading(path)
    try:
        reading.start()
    except RuntimeError:  # no more threads
        return
    _READINGS[path] = reading
    atexit.register(reading.end)


class _Reading(threading.Thread):
    """A reading that was begun."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="tachoscope-read", daemon=True)
        self._path = path
        self._found: Future[Trace] = Future()
        self._unwanted = False

    def run(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._found.set_result(_opened(self._path, self._go_on))
        except BaseException as error:
            self._found.set_exception(error)
        finally:
            sys.setswitchinterval(before)

    def trace(self) -> Trace:
        return self._found.result()

    def end(self) -> None:
        """End the reading where the process ends before it, so that it removes what it has written."""
        self._unwanted = True
        self.join(timeout=1.0)

    def _go_on(self, done_bytes: int, total_bytes: int) -> None:  # noqa: ARG002
        if self._unwanted:
            raise InterruptedError("it is no longer needed")


_READINGS: dict[Path, _Reading] = {}


def check(path: Path) -> None:
    """Look at the beginning of a file, and no further, whether it can be a trace.

    Raises:
        TachoscopeError: as `read` does for what it finds there.
    """
    with _named_errors(path):
        _refuse_what_is_no_file(path)
        if not nsight.is_export(path):
            with closing(iter(Blocks(path))) as stream:
                if not next(EventArray(stream, scan=True).chunks(), b"").strip():
                    raise NotATraceError("it contains no complete event")


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into one form of message."""
    try:
        yield
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror or error}") from None
    except (NotATraceError, NotAnExportError) as error:
        raise TachoscopeError(
            f"{path} is not a trace that tachoscope can read: {error}",
            fix="it reads traces of torch.profiler, Horovod, TensorFlow and JAX (JSON, .gz, .zst), and SQLite exports of nsys",
        ) from None
    except MalformedEventError as error:
        near = error.text[:60].decode(errors="replace")
        raise TachoscopeError(
            f"{path}: the event at byte {error.offset} of its text cannot be read: {error} (near {near!r})",
            fix="record the trace again; a file that only ends too early can be read",
        ) from None
    except ValueError as error:
        raise TachoscopeError(f"could not read {path}: {error}", fix="copy or record the file again") from None


def _cached(path: Path) -> Trace | None:
    found = cache.find(path)
    if found is None:
        return None
    try:
        return Trace(found, path)
    except (OSError, ValueError):  # damaged, or another process has just removed it
        cache.discard(found)
        return None


def _read(path: Path, progress: Progress | None) -> Trace:
    _refuse_what_is_no_file(path)
    before = cache.signature(path)
    with cache.writing() as place:
        meta = nsight.convert(path, place) if nsight.is_export(path) else converted(path, place, progress)
        (place / "meta.json").write_bytes(msgspec.json.encode(meta))
        return Trace(cache.keep(place, path, meta.digest, before), path)


def _refuse_what_is_no_file(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise TachoscopeError(f"could not read {path}: it is not a file", fix="give the path of a trace, not of a folder or pipe")


def converted(path: Path, place: Path, progress: Progress | None = None) -> Meta:
    """Write the columns of a JSON trace into a folder, and return its description.

    Raises:
        ValueError, OSError: as `read` says, before they are put into one form.
    """
    meta = _stream(path, place, progress, scan=False)
    if meta is None:
        for file in place.iterdir():
            file.unlink()
        meta = _stream(path, place, progress, scan=True)
    assert meta is not None, "a scan raises its errors"
    return meta


def _stream(path: Path, place: Path, progress: Progress | None, *, scan: bool) -> Meta | None:
    """Return None if line breaks that looked like event ends are ambiguous, and only a scan can tell."""
    blocks = Blocks(path)
    builder = ColumnBuilder()
    total = path.stat().st_size
    writers = Writers(place)
    with closing(iter(blocks)) as stream, _no_garbage_collection():
        array = EventArray(stream, scan=scan)
        try:
            for chunk in array.chunks():
                writers.append(_tables(chunk, array, builder))
                if progress is not None:
                    progress(blocks.bytes_read, total)
        except (NotATraceError, MalformedEventError):
            if array.by_lines:
                return None
            raise
        builder.finish()
        if not builder.counts["events"] and not array.is_complete:
            raise NotATraceError("it contains no complete event")
        writers.append(builder.tables([]))
        writers.finish(list(builder.strings))
    return meta_of(
        builder,
        outside=keys_outside_events(array.header, array.trailer),
        digest=blocks.digest,
        text_bytes=array.text_bytes,
        quality=ReadQuality(cut=blocks.cut or not array.is_complete, cut_bytes=array.cut_bytes, counts=dict(builder.counts)),
    )


def _tables(chunk: bytes, array: EventArray, builder: ColumnBuilder) -> Tables:
    found = scanned(chunk)
    if found is not None and builder.has_room(found):
        return builder.tables_of_scan(found)
    return builder.tables(_events(chunk, array, builder))


def _events(chunk: bytes, array: EventArray, builder: ColumnBuilder) -> list[Any]:
    try:
        return decode(chunk)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        builder.counts["chunks_read_event_by_event"] += 1
    try:
        events, closed = decode_each(chunk, builder.counts)
    except MalformedEventError as error:
        error.offset += array.position
        raise
    if closed >= 0:
        array.array_ended_at(chunk[closed:])
    return events


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: millions of small objects live for one chunk each, without cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
