"""Reads along what a run's processes write into their spool directory, cheaply, and tells whose process is gone."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tachoscope_core.storage import spool

_STEP = b'{"kind":"StepDone"'
_LONG = re.compile(rb'"wall_seconds":[1-9]')
"""In the line of a step that took a second and more: what may be a pause."""
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class _Tail:
    descriptor: int
    writer: str
    number: int
    offset: int = 0
    rest: bytes = b""
    gone: bool = False


class RunReader:
    """Follows all segments of one directory. No method raises; any other process may ship and remove segments meanwhile.

    Args:
        own_writer: whose segments are left alone.
    """

    def __init__(self, directory: Path, own_writer: str = "") -> None:
        self._directory = directory
        self._own_writer = own_writer
        self._tails: dict[str, _Tail] = {}
        self._done: set[str] = set()

    def lines(self) -> list[bytes]:
        """Return new whole lines; of the new steps of a segment only the last, and those of a second and more."""
        self._find()
        found: list[bytes] = []
        for tail in self._tails.values():
            found += _new_lines(tail)
        return found

    def newly_exited(self) -> list[str]:
        """Return each writer once that released its newest segment; `lines` then has its last records."""
        newest: dict[str, int] = {}
        for tail in self._tails.values():
            newest[tail.writer] = max(newest.get(tail.writer, -1), tail.number)
        found = []
        for name, tail in list(self._tails.items()):
            if tail.number < newest[tail.writer]:
                if _all_read(tail):
                    self._drop(name)  # it was full
            elif tail.gone:
                self._drop(name)  # read once more since it was found gone
            elif not _is_held(tail.descriptor):
                tail.gone = True
                found.append(tail.writer)
        return found

    def close(self) -> None:
        for name in list(self._tails):
            self._drop(name)

    def _find(self) -> None:
        try:
            names = sorted(entry.name for entry in os.scandir(self._directory) if entry.name.endswith(spool.SEGMENT_SUFFIX))
        except OSError:  # not made yet, or removed
            return
        for name in names:
            if name in self._tails or name in self._done:
                continue
            try:
                writer, number = spool.writer_and_number(Path(name))
                if writer != self._own_writer:
                    descriptor = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                    self._tails[name] = _Tail(descriptor, writer, number)
            except (ValueError, OSError):  # not a segment's name, or shipped by another at this moment
                continue

    def _drop(self, name: str) -> None:
        os.close(self._tails.pop(name).descriptor)
        self._done.add(name)


def _new_lines(tail: _Tail) -> list[bytes]:
    found: list[bytes] = []
    while chunk := os.pread(tail.descriptor, _CHUNK_BYTES, tail.offset):
        tail.offset += len(chunk)
        *whole, tail.rest = (tail.rest + chunk).split(b"\n")
        steps = [line for line in whole if line.startswith(_STEP)]
        found += [line for line in whole if line and not line.startswith(_STEP)]
        found += [line for line in steps[:-1] if _LONG.search(line)]
        found += steps[-1:]
    return found


def _all_read(tail: _Tail) -> bool:
    return os.fstat(tail.descriptor).st_size <= tail.offset


def _is_held(descriptor: int) -> bool:
    """Return whether a process holds the lock. The lock of an empty file is about to be taken, and is left alone."""
    if not os.fstat(descriptor).st_size:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
