"""One segment file of the spool as the agent follows it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tachoscope_core.records.records import MAX_LINE_BYTES
from tachoscope_core.storage.spool import MAX_SEGMENT_BYTES, writer_and_number
from tachoscope_node.spool.owners import writer_of

CHUNK_BYTES = 256 << 10


class Address(msgspec.Struct, frozen=True):
    """Where a writer's records belong: its process has one job and attempt, so its first record decides for all."""

    job: str
    attempt: int
    time: float


class Segment:
    """Reads the whole lines of a segment as they come, and knows which of them the store has.

    The file stays open, so that what was written before somebody removed the spool can still be read. Names are looked up in the
    open directory `dir_fd`: nobody can put a link in the directory's place under an agent that runs as root.

    Attributes:
        inode, uid: the file's, and the user's whose process writes it. owner: whom a job belongs to that it names first.
        read: offset up to which lines were read. shipped: offset up to which the store has them.
        pending: offset up to which they are being shipped, or `shipped`.
        applied: offset up to which lines were counted before the agent was started again. bytes_read: what reading cost so far.
        oversized: lines longer than a record may be; they are cut out and not shipped.
        continued: this process shipped a range of it, so that whatever the store has of the next ones is this process's.
        unshipped_since, grew_at: when the oldest line that is not in the store was read, and when the file last grew.
        checked: it was asked whether its writer may write of its job.
        refused: its records are not taken, since the job is another user's, or the store has others of that writer; the file stays.
        behind: there is more to read than the last time allowed. finished: nothing will be appended, and everything was read.
    """

    def __init__(self, path: Path, directory: str, dir_fd: int | None = None) -> None:
        self.path = path
        self._dir_fd = dir_fd
        self.directory = directory
        self.writer, self.number = writer_and_number(path)
        self._place: Path | str = path if dir_fd is None else path.name
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._descriptor = os.open(self._place, flags, dir_fd=dir_fd)
        status = os.fstat(self._descriptor)
        self.inode, self.uid = status.st_ino, status.st_uid
        folder = os.stat(path.parent) if dir_fd is None else os.fstat(dir_fd)
        self.owner = writer_of(self.uid, directory, folder.st_uid)
        self.read = self.shipped = self.pending = self.applied = 0
        self.bytes_read = 0
        self.address: Address | None = None
        self.unshipped_since: float | None = None
        self.seen_size = 0
        self.grew_at = 0.0
        self.behind = False
        self.oversized = 0
        self.failures = 0
        self.continued = False
        self.finished = False
        self.refused = False
        self.checked = False
        self._skipping_from: int | None = None
        self._holes: deque[tuple[int, int]] = deque()

    @property
    def key(self) -> tuple[str, str]:
        """Directory and file name."""
        return self.directory, self.path.name

    def lines(self, most_bytes: int) -> Iterator[tuple[list[bytes], bool]]:
        """Read on, up to about `most_bytes`, and yield lists of whole lines without their newlines, and whether they are new.

        After a restart, lines that were counted already are read again, so that ranges to ship are whole.
        """
        stop = self.bytes_read + most_bytes
        self.behind = True
        while self.bytes_read < stop:
            chunk = self._chunk(CHUNK_BYTES)
            if not chunk:
                break
            if self._skipping_from is not None:
                self._skip(chunk)
                continue
            end = chunk.rfind(b"\n") + 1
            if not end and len(chunk) == CHUNK_BYTES:
                chunk = self._chunk(MAX_LINE_BYTES + 1)
                end = chunk.rfind(b"\n") + 1
                if not end and len(chunk) > MAX_LINE_BYTES:
                    self._skipping_from = self.read
                    self.oversized += self.read >= self.applied
                    continue
            if not end:
                break
            counted = min(max(self.applied - self.read, 0), end)
            self.read += end
            if counted:
                yield chunk[: counted - 1].split(b"\n"), False
            if counted < end:
                yield chunk[counted : end - 1].split(b"\n"), True
        else:
            return
        self.behind = False

    def _chunk(self, size: int) -> bytes:
        chunk = os.pread(self._descriptor, min(size, MAX_SEGMENT_BYTES - self.read), self.read)
        self.bytes_read += len(chunk)
        return chunk

    def _skip(self, chunk: bytes) -> None:
        """Go on in a line that is too long to be a record, until its end."""
        newline = chunk.find(b"\n")
        if newline < 0:
            self.read += len(chunk)
            return
        self.read += newline + 1
        assert self._skipping_from is not None
        self._holes.append((self._skipping_from, self.read))
        self._skipping_from = None

    def size(self) -> int:
        return min(os.fstat(self._descriptor).st_size, MAX_SEGMENT_BYTES)

    def shippable(self) -> int:
        """Return the offset up to which the next range may go: whole lines, and none that was cut out."""
        self._pass_holes()
        end = self.read if self._skipping_from is None else self._skipping_from
        return min(end, self._holes[0][0]) if self._holes else end

    def _pass_holes(self) -> None:
        while self._holes and self.shipped == self.pending == self._holes[0][0]:
            self.shipped = self.pending = self._holes.popleft()[1]

    def content(self, start: int, end: int) -> bytes:
        """Return the bytes of a range.

        Raises:
            OSError: the file is shorter than it was.
        """
        data = os.pread(self._descriptor, end - start, start)
        if len(data) != end - start:
            raise OSError(5, f"{self.path} was cut short: {end - start} bytes from {start} expected, {len(data)} there")
        return data

    def writer_lives(self) -> bool:
        """Whether a process holds the segment's lock. Only valid once it has content, since writers take the lock first."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def finish(self) -> bool:
        """Note that nothing more will be appended; return whether an incomplete last line is lost."""
        self.finished = True
        rest = self.size() - self.read
        if self._skipping_from is not None:
            self._holes.append((self._skipping_from, self.size()))
            self._skipping_from, self.read = None, self.size()
            return False
        return rest > 0

    def is_there(self) -> bool:
        """Return whether the file still has its name."""
        try:
            return os.stat(self._place, dir_fd=self._dir_fd, follow_symlinks=False).st_ino == self.inode
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Delete the file if the name still refers to this segment."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_there():
                os.unlink(self._place, dir_fd=self._dir_fd)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
