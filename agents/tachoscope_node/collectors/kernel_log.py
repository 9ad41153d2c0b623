"""Reads the kernel's log record by record, without waiting for one.

/dev/kmsg gives one record a read, from the oldest that the kernel still has, and needs no daemon. Its format and errors:
https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from tachoscope_node.collectors.collector import NotSupportedError

_MAX_RECORDS = 5000
_CHUNK = 16384
_MAX_LINE = 65536


class Record(NamedTuple):
    """One record of the kernel itself. microseconds: since the boot, by a clock that drifts."""

    sequence: int
    microseconds: int
    text: str


def parse_record(line: bytes) -> Record | None:
    """Return a record, None for a line that is none or that a process put into the log: anybody could claim errors there."""
    header, separator, text = line.partition(b";")
    try:
        priority, sequence, microseconds = (int(field) for field in header.split(b",", 3)[:3])
    except ValueError:
        return None
    if not separator or priority >> 3 or min(priority, sequence, microseconds) < 0:
        return None
    return Record(sequence, microseconds, text.decode(errors="replace"))


class KernelLog:
    """Reads records as they come, never waiting for one.

    Args:
        from_now: what is in the log when it is opened is left out.
    """

    _descriptor = -1

    def __init__(self, path: str, *, from_now: bool = False) -> None:
        self.path = path
        self._from_now = from_now
        self.overruns = 0
        self.drained = False
        self._rest = b""

    def records(self, limit: int = _MAX_RECORDS) -> Iterator[Record]:
        """Yield what is there, at most `limit` records; `drained` says whether that was all.

        Raises:
            NotSupportedError: the agent may not read the log, or it is not there.
            OSError: it cannot be read; the next call opens it again.
        """
        if self._descriptor < 0:
            self._open()
        self.drained, lines = False, 0
        while lines < limit:
            chunk = self._read()
            if chunk == b"":
                self.drained = True
                return
            *whole, self._rest = (self._rest + (chunk or b"\n")).split(b"\n")
            self._rest = self._rest[:_MAX_LINE]
            for line in whole:
                lines += 1
                if record := parse_record(line):
                    yield record

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; not while a thread reads it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._rest = -1, b""

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if self._from_now:
                os.lseek(self._descriptor, 0, os.SEEK_END)
        except FileNotFoundError:
            raise NotSupportedError(f"{self.path} does not exist: mount the host's /dev/kmsg into the container") from None
        except PermissionError as error:
            raise NotSupportedError(
                f"{self.path} cannot be read ({error.strerror}): give the agent CAP_SYSLOG, which kernel.dmesg_restrict asks for, "
                "and its container the right to open the device"
            ) from None

    def _read(self) -> bytes | None:
        """Return bytes, none where there are none now, or None where the kernel dropped records before they were read."""
        try:
            return os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        except OSError as error:
            if error.errno == errno.EPIPE:  # the next read goes on with the oldest record that is left
                self.overruns += 1
                return None
            self.close()
            raise
