"""Appends records to segment files of the spool: bounded, never waiting, counting what it drops."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import deque
from pathlib import Path

from tachoscope_core.storage.spool import make_directory, segment_name

SEGMENT_BYTES = 4 << 20
MAX_UNSHIPPED_BYTES = 64 << 20
MIN_FREE_SHARE = 0.05
MIN_FREE_BYTES = 2 << 30
"""Nothing is written when less is free than this share and this many bytes. The smaller of the two counts: a container's
64 MiB /dev/shm never has 2 GiB free, and 5 % of a large disk would be far more than the job needs."""
_RETRY_SECONDS = 5.0
_LOOK_SECONDS = 1.0
"""So often the segment is looked for: after an `rm -rf` of the spool writing goes on in a new one, not in a file without name."""
_CHECK_EVERY_BYTES = 1 << 20


class SpoolWriter:
    """One writer's segments in a directory. No method raises; `dropped` counts lines that were not kept."""

    def __init__(
        self,
        directory: Path,
        writer: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int = MAX_UNSHIPPED_BYTES,
        min_free_bytes: int = MIN_FREE_BYTES,
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._descriptor = -1
        self._size = 0
        self._lines = 0
        self._next_number = 0
        self._full_segments: deque[tuple[Path, int, int]] = deque()
        self._unchecked_bytes = 0
        self._retry_at = self._look_at = 0.0
        self.dropped = 0
        self.error = ""

    def append(self, line: bytes, *, lines: int = 1) -> bool:
        """Write lines, newlines included, with one call; return whether they were kept."""
        try:
            if self._size + len(line) > self._segment_bytes or self._descriptor < 0:
                if time.monotonic() < self._retry_at:
                    self.dropped += lines
                    return False
                self._rotate()
            elif time.monotonic() >= self._look_at and self._is_gone():
                self._rotate()
            self._unchecked_bytes += len(line)
            if self._unchecked_bytes >= _CHECK_EVERY_BYTES:
                self._check_free()
            written = os.write(self._descriptor, line)
            if written != len(line):
                os.ftruncate(self._descriptor, self._size)
                raise OSError(28, "no space left")  # noqa: TRY301
        except OSError as error:
            self._fail(error, lines)
            return False
        self._size += written
        self._lines += lines
        return True

    def _is_gone(self) -> bool:
        self._look_at = time.monotonic() + _LOOK_SECONDS
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Release the segment; it may be shipped now."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rotate(self) -> None:
        if self._descriptor >= 0:
            path = self._directory / segment_name(self._writer, self._next_number - 1)
            self._full_segments.append((path, self._size, self._lines))
            self.close()
        self._drop_oldest()
        make_directory(self._directory)
        path = self._directory / segment_name(self._writer, self._next_number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._next_number += 1
        self._size = self._lines = 0
        self._check_free()

    def _check_free(self) -> None:
        self._unchecked_bytes = 0
        free = os.fstatvfs(self._descriptor)
        needed = min(MIN_FREE_SHARE * free.f_blocks * free.f_frsize, self._min_free_bytes)
        if free.f_bavail * free.f_frsize < needed:
            raise OSError(28, f"less than {needed / 2**20:.0f} MiB free")

    def _drop_oldest(self) -> None:
        while self._full_segments and sum(size for _, size, _ in self._full_segments) > (self._max_bytes - self._segment_bytes):
            path, _, lines = self._full_segments.popleft()
            try:
                path.unlink()
            except FileNotFoundError:
                continue  # shipped already: not lost
            self.dropped += lines

    def _fail(self, error: OSError, lines: int) -> None:
        self.dropped += lines
        self.error = f"{self._directory}: {error.strerror or error}"
        if self._descriptor >= 0 and self._size == 0:  # leave no empty segment behind at each retry
            with contextlib.suppress(OSError):
                (self._directory / segment_name(self._writer, self._next_number - 1)).unlink()
        self.close()
        self._retry_at = time.monotonic() + _RETRY_SECONDS
