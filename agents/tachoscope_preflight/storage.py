"""Writing, reading and fsync in a folder, past the page cache where its file system can.

The file has no name, or loses it before the first byte is written: nothing is left behind, however the test ends.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.preflights import Measurement
from tachoscope_preflight.hardware import file_system
from tachoscope_preflight.repeat import Effort, failed, measured, repeated

WRITE = "storage_write_bytes_per_second"
READ = "storage_read_bytes_per_second"
FSYNC = "storage_fsyncs_per_second"
_CHUNK = 1 << 20
_FILE_BYTES = 128 << 20
_FSYNC_BYTES = 4096
_STAMP_BYTES = 8
_BROKEN = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ENXIO, errno.EREMOTEIO, errno.EUCLEAN}


def measure(folder: str, effort: Effort) -> Iterator[Measurement]:
    """Yield the rates of a folder.

    Raises:
        TachoscopeError: it is not a folder.
    """
    if not os.path.isdir(folder):
        raise TachoscopeError(f"{folder} is not a directory", fix="name one with --storage")
    name = WRITE
    try:
        with _file(folder) as (descriptor, direct), mmap.mmap(-1, _CHUNK) as data, mmap.mmap(-1, _CHUNK) as back:
            data.write(os.urandom(_CHUNK))
            like = f"{file_system(folder)}, {'O_DIRECT' if direct else 'after fsync'}"

            def write(place: int) -> int:
                data[:_STAMP_BYTES] = place.to_bytes(_STAMP_BYTES, "little")  # no two chunks are equal
                return os.pwrite(descriptor, data, place)

            def read(place: int) -> int:
                return os.preadv(descriptor, [back], place)

            _, size = _pass(write, _FILE_BYTES, effort, descriptor)  # the warm-up
            written = repeated(lambda: _pass(write, size, effort, descriptor)[0], effort)
            yield measured(WRITE, written, device=folder, comparable_with=like)
            name = READ
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            rates = repeated(lambda: _pass(read, size, effort)[0], effort)
            if wrong := _wrong_chunks(read, size, data, back, effort):
                what = f"{wrong} MiB of those read are not what was written"
                yield failed(READ, what, device=folder, broken=True)
            else:
                yield measured(READ, rates, device=folder, comparable_with=like)
            name = FSYNC
            yield measured(FSYNC, _fsyncs(descriptor, data, effort), device=folder, comparable_with=like)
    except OSError as error:
        yield failed(name, f"{folder}: {error.strerror}", device=folder, broken=error.errno in _BROKEN)


def _wrong_chunks(read: Callable[[int], int], size: int, data: mmap.mmap, back: mmap.mmap, effort: Effort) -> int:
    """Read the file once more, as far as the time of two repetitions reaches; return how many chunks are not what was written."""
    wrong, stop = 0, time.monotonic() + 2 * effort.seconds
    for place in range(0, size, _CHUNK):
        back[:] = bytes(_CHUNK)
        data[:_STAMP_BYTES] = place.to_bytes(_STAMP_BYTES, "little")
        wrong += read(place) != _CHUNK or back[:] != data[:]
        if time.monotonic() > stop:
            break
    return wrong


@contextlib.contextmanager
def _file(folder: str) -> Iterator[tuple[int, bool]]:
    """Give the descriptor of a file without a name, and whether it passes by the page cache."""
    for direct in (os.O_DIRECT, 0):
        try:
            descriptor = _opened(folder, direct)
        except OSError as error:
            if direct and error.errno in {errno.EINVAL, errno.EOPNOTSUPP}:
                continue
            raise
        try:
            yield descriptor, bool(direct)
        finally:
            os.close(descriptor)
        return


def _opened(folder: str, direct: int) -> int:
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | direct, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT}:
            raise
    named, path = tempfile.mkstemp(prefix=".tachoscope-preflight-", dir=folder)
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | direct)
    finally:
        os.unlink(path)
        os.close(named)


def _pass(move: Callable[[int], int], most: int, effort: Effort, sync: int | None = None) -> tuple[float, int]:
    """Return bytes per second over chunks until `most` bytes or the effort's seconds are over, and how many bytes it were."""
    began = time.perf_counter()
    place = 0
    while place < most:
        moved = move(place)
        if moved != _CHUNK:
            raise OSError(errno.EIO, f"{moved} bytes of {_CHUNK} were moved")
        place += moved
        if time.perf_counter() - began > effort.seconds:
            break
    if sync is not None:
        os.fsync(sync)
    return place / max(time.perf_counter() - began, 1e-9), place


def _fsyncs(descriptor: int, data: mmap.mmap, effort: Effort) -> list[float]:
    def once() -> float:
        began, count = time.perf_counter(), 0
        while not count or time.perf_counter() - began < effort.seconds:
            os.pwrite(descriptor, page, 0)
            os.fsync(descriptor)
            count += 1
        return count / (time.perf_counter() - began)

    with memoryview(data)[:_FSYNC_BYTES] as page:
        return repeated(once, effort)
