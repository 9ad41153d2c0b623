"""One file of NCCL's Inspector, as the agent follows it, and gives back the space of what it has read.

The Inspector opens its file once, for as long as the process lives, and not for appending: it goes on at its own offset whatever is
done to the file. So what was read is given back as a hole (fallocate(2), FALLOC_FL_PUNCH_HOLE) and never by truncating: offsets
stay what they are for every writer, and nothing that is being written meanwhile is lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator

MAX_LINE_BYTES = 64 << 10
"""A line has some 450 bytes, with NCCL_INSPECTOR_DUMP_VERBOSE some 10 KiB."""
CHUNK_BYTES = 128 << 10
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class NotOursError(OSError):
    """What has the name is not a file of one process alone: a link, a device, a file with several names."""


def key_of(name: str, status: os.stat_result) -> str:
    """Return what tells a file from others; the name, which has the process id in it, since a number may be given again."""
    return f"{status.st_dev}:{status.st_ino}:{name}"


class Tail:
    """Reads whole lines as they come. Names are looked up in the open folder `folder_fd`, and links are not followed.

    Attributes:
        key: see `key_of`. uid: the user's whose process writes it. size: as last looked.
        read: offset up to which lines were read. oversized: lines too long to be one. skipped: bytes that were left out.
        released: bytes that were given back. writable: the agent may give back; not known until it is tried.
        sound: an operation was found in it, so that it is the Inspector's.
    """

    def __init__(self, name: str, folder_fd: int, read: int = 0) -> None:
        self.name = name
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self.writable = True
        try:
            self._descriptor = os.open(name, os.O_RDWR | flags, dir_fd=folder_fd)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            self.writable = False
            self._descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=folder_fd)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(self._descriptor)
            raise NotOursError(errno.EMLINK, f"{name} is not a file with one name")
        self.key = key_of(name, status)
        self.uid, self.size = status.st_uid, status.st_size
        self.read = read if read <= self.size else 0
        self.oversized = self.skipped = self.released = 0
        self.sound = False
        self._in_long_line = False
        self._unpunched = 0

    def check_size(self) -> None:
        """Look how long the file is. One that became shorter was begun again."""
        self.size = os.fstat(self._descriptor).st_size
        if self.size < self.read:
            self.read, self._unpunched, self._in_long_line = 0, 0, False

    def skip_to(self, most_behind: int) -> None:
        """Skip to at most `most_behind` bytes before the end, at the start of a line."""
        if self.size - self.read > most_behind:
            self.skipped += self.size - most_behind - self.read
            self.read, self._in_long_line = self.size - most_behind, True

    def lines(self, most_bytes: int) -> Iterator[list[bytes]]:
        """Read on, up to about `most_bytes`, and yield lists of whole lines without their newlines."""
        stop = self.read + most_bytes
        while self.read < min(stop, self.size):
            if self._in_hole():
                continue
            chunk = os.pread(self._descriptor, CHUNK_BYTES, self.read)
            end = chunk.rfind(b"\n") + 1
            if self._in_long_line:
                first = chunk.find(b"\n") + 1
                self.skipped += first or len(chunk)
                self.read += first or len(chunk)
                self._in_long_line = not first
                if not chunk:
                    return
            elif end:
                self.read += end
                yield chunk[: end - 1].split(b"\n")
            elif len(chunk) > MAX_LINE_BYTES:
                self.oversized += 1
                self._in_long_line = True
            else:
                return

    def _in_hole(self) -> bool:
        """Pass a hole that somebody, perhaps this agent before it forgot, made at the place; say whether there was one."""
        if self.read != 0:
            return False
        try:
            data = os.lseek(self._descriptor, 0, os.SEEK_DATA)
        except OSError:
            return False
        self.read = self._unpunched = data
        return data > 0

    def release(self, rotate_bytes: int) -> None:
        """Give back the space of what was read, where the file takes more than `rotate_bytes`; 0: never.

        Raises:
            OSError: the file system cannot; it is not tried again.
        """
        length = self.read - self._unpunched
        if not rotate_bytes or not self.writable or not self.sound or length < rotate_bytes // 2:
            return
        if os.fstat(self._descriptor).st_blocks * 512 <= rotate_bytes:
            return
        if _libc.fallocate(self._descriptor, _KEEP_SIZE | _PUNCH_HOLE, self._unpunched, length) != 0:
            self.writable = False
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), self.name)
        self._unpunched = self.read
        self.released += length

    def close(self) -> bool:
        """Close the file; return whether its last line is incomplete."""
        os.close(self._descriptor)
        return self.read < self.size
