"""The checksum of a file of a checkpoint: what a save's manifest holds and what verification compares, taken in one way.

SHA-256, since anybody can check it with `sha256sum`, and since OpenSSL uses the processor's own instructions for it where there are
some: it is then as fast as any standard hash that hashlib has (docs/develop/measurements.md). Files are read, not mapped: a file
that another process cuts short would otherwise end this one with SIGBUS.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from threading import Event

from tachoscope_core.records.records import ShardSum

ALGORITHM = "sha256"
CHUNK_BYTES = 1 << 20
"""Small enough that two stay in the processor's cache, large enough that taking the interpreter's lock again after each chunk costs
nothing: reading and hashing both release it."""
FORGET_EVERY_BYTES = 64 << 20


class UnsteadyFileError(OSError):
    """The file changed while it was read: what was read is not a checksum of anything."""


def open_file_checksum(
    file: FileIO,
    *,
    drop_cache: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    stop: Event | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ShardSum | None:
    """Return size and checksum of a file that is open at its beginning, its `path` left empty; None if `stop` was set meanwhile.

    The interpreter's lock is released while reading and hashing.

    Args:
        drop_cache: read what is on the storage and not what the page cache still has of it, and leave nothing in the cache. Pages
            that were not written to the storage yet stay in the cache.
        chunk_bytes: how much is read and hashed at once, in bytes.
        stop: set by another thread to give up.
        on_bytes: called with the length of each chunk after it; it may wait, to keep to a rate.

    Raises:
        UnsteadyFileError: the file was written to meanwhile.
        OSError: it cannot be read.
    """
    digest = hashlib.new(ALGORITHM, usedforsecurity=False)
    done = forgotten = 0
    before = os.fstat(file.fileno())
    if drop_cache:
        _forget(file, 0, 0)
    for chunk in _chunks(file, chunk_bytes):
        digest.update(chunk)
        count = len(chunk)
        done += count
        if stop is not None and stop.is_set():
            return None
        if on_bytes is not None:
            on_bytes(count)
        if done > before.st_size:  # somebody appends, perhaps for ever
            break
        if drop_cache and done - forgotten >= FORGET_EVERY_BYTES:
            _forget(file, forgotten, done - forgotten)
            forgotten = done
    if drop_cache:
        _forget(file, 0, 0)
    if version(before) != version(os.fstat(file.fileno())) or done != before.st_size:
        raise UnsteadyFileError(f"{file.name} changed while it was read")
    return ShardSum(bytes=done, checksum=f"{ALGORITHM}:{digest.hexdigest()}")


def _chunks(file: FileIO, chunk_bytes: int) -> Iterator[memoryview]:
    """Yield a file's chunks, each until the next is requested; a thread reads ahead."""
    buffers = [memoryview(bytearray(chunk_bytes)) for _ in range(2)]
    with ThreadPoolExecutor(1, thread_name_prefix="tachoscope-read") as reader:
        reading = reader.submit(file.readinto, buffers[0])
        while count := reading.result():
            chunk = buffers[0][:count]
            buffers.reverse()
            reading = reader.submit(file.readinto, buffers[0])
            yield chunk


def version(status: os.stat_result) -> tuple[int, int, int, int]:
    """Return what differs between two states of a path: which file it is, its size, and when it was written to last."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _forget(file: FileIO, offset: int, length: int) -> None:
    """Drop a part of the file from the page cache, to its end if `length` is 0."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), offset, length, os.POSIX_FADV_DONTNEED)
