"""Moves what lies in a spool directory into the store, exactly once: the object's key is writer + offset."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from tachoscope import guard
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.owner import of_this_process
from tachoscope_core.records.records import Count, Name, UnixSeconds, check_job_name
from tachoscope_core.storage import spool
from tachoscope_core.storage.shard_quarantine import DIRECTORY
from tachoscope_core.storage.store import Store, default_url


class _Address(msgspec.Struct):
    """The part of a record that says where it belongs."""

    job: Name
    attempt: Count
    host: Name
    time: UnixSeconds


_address = msgspec.json.Decoder(_Address)
_MOST_BYTES = 8 << 20
"""Largest object, and longest line that is read; a longer line cannot be a record."""


@dataclass(frozen=True, slots=True)
class ShipCounts:
    """What `ship` moved: segments, whole lines, lines cut off at the end of a segment, and lines with no address."""

    segments: int = 0
    lines: int = 0
    cut_lines: int = 0
    lost_lines: int = 0
    jobs: frozenset[str] = frozenset()


def ship(directory: Path, store: Store) -> ShipCounts:
    """Copy each segment whose process is gone into the store, verbatim, and delete it; then the directory if it is empty.

    A line that is not a record is stored with the record before it, and readers count it. Segments of other users are left alone.

    Raises:
        OtherOwnerError: a job in it belongs to another user. OtherContentError: the store has other records of a writer.
        TachoscopeError: the store cannot be written; nothing that was not stored is deleted.
    """
    shipped = ShipCounts()
    owned: set[str] = set()
    for path in spool.segments(directory):
        if spool.is_locked(path) or path.lstat().st_uid != os.geteuid():
            continue
        try:
            writer, number = spool.writer_and_number(path)
        except ValueError:
            continue
        part = _ship_segment(path, writer, number, store, owned)
        if part is None:
            continue  # nothing in it says where it belongs: left for a person to look at
        path.unlink()
        shipped = _sum(shipped, part)
    return shipped


def _ship_segment(path: Path, writer: str, number: int, store: Store, owned: set[str]) -> ShipCounts | None:
    """Store the runs of lines of a segment; None: it has lines, and none of them says where it belongs.

    Args:
        owned: jobs that are known to be this user's.
    """
    lines = kept = 0
    jobs: set[str] = set()
    with path.open("rb") as file:
        reading = _Lines(file)
        for offset, address, run in _by_address(reading):
            if address.job not in owned:
                store.claim(check_job_name(address.job), of_this_process())
                owned.add(address.job)
            store.write(
                address.job,
                host=address.host,
                writer=writer,
                attempt=address.attempt,
                offset=spool.offset_of_writer(number, offset),
                time=address.time,
                lines=run,
            )
            jobs.add(address.job)
            kept += run.count(b"\n")
        lines = reading.count
    if lines and not kept:
        return None
    return ShipCounts(1, lines, int(reading.cut), lines - kept, frozenset(jobs))


def _sum(one: ShipCounts, other: ShipCounts) -> ShipCounts:
    return ShipCounts(
        one.segments + other.segments,
        one.lines + other.lines,
        one.cut_lines + other.cut_lines,
        one.lost_lines + other.lost_lines,
        one.jobs | other.jobs,
    )


class _Lines:
    """The whole lines of a file with their offsets, one in memory at a time; `cut`: the last line has no end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0
        self.cut = False

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        offset = 0
        while line := self._file.readline(_MOST_BYTES):
            if line.endswith(b"\n"):
                self.count += 1
                yield offset, line
            else:
                self.cut = True  # the end of the file, or a line too long to be a record: skip to its end
                while len(line) == _MOST_BYTES and not line.endswith(b"\n"):
                    offset += len(line)
                    line = self._file.readline(_MOST_BYTES)
            offset += len(line)


def _by_address(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, _Address, bytes]]:
    """Yield runs of neighbouring lines of one job, attempt, host and day with their offset, of at most `_MOST_BYTES` each."""
    start = end = 0
    current: _Address | None = None
    run: list[bytes] = []
    for offset, line in lines:
        address = current
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            address = _address.decode(line)
        if address is None:
            continue
        full = end - start + len(line) > _MOST_BYTES
        if current is None or not _same_object(address, current) or full or offset != end:
            if current is not None and run:
                yield start, current, b"".join(run)
            start, current, run = offset, address, []
        run.append(line)
        end = offset + len(line)
    if current is not None and run:
        yield start, current, b"".join(run)


def _same_object(one: _Address, other: _Address) -> bool:
    return (one.job, one.attempt, one.host, one.time // 86400) == (
        other.job,
        other.attempt,
        other.host,
        other.time // 86400,
    )


def ship_left_behind(root: Path, store: Store) -> ShipCounts:
    """Ship what this user's ended runs left in the spool; what cannot be shipped stays."""
    total = ShipCounts()
    for directory in sorted(root.iterdir()) if root.is_dir() else []:
        try:
            status = directory.lstat()
            if directory.name == DIRECTORY or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue  # another user's word is not taken for one of this user's jobs
            part = ship_alone(directory, store)
        except (OSError, TachoscopeError):
            continue  # not to be stored: the others must not wait for it
        if part is not None:
            total = _sum(total, part)
    return total


def ship_alone(directory: Path, store: Store) -> ShipCounts | None:
    """Ship a directory under its lock and remove it when it is empty; None if another process ships it.

    Raises:
        TachoscopeError, OSError: as `ship`, or the directory cannot be read.
    """
    lock = spool.try_lock(directory / spool.SHIPPER_LOCK)
    if lock is None:
        return None
    try:
        shipped = ship(directory, store)
        remove_if_empty(directory)
    finally:
        os.close(lock)
    return shipped


def remove_if_empty(directory: Path) -> None:
    """Remove a run's directory when no segment is left in it."""
    if next(spool.segments(directory), None) is None:
        for name in spool.RUN_FILES:
            (directory / name).unlink(missing_ok=True)
        for path in directory.glob(f"{spool.FAULT_PREFIX}*"):
            path.unlink(missing_ok=True)
        directory.rmdir()


def ship_quietly(directory: Path, store_url: str | None) -> None:
    """Ship one directory at the end of a training process, unless an agent does: a failure is one line, and the records stay."""
    if spool.live_agent(directory.parent) and store_url is None:
        return
    try:
        ship_alone(directory, Store(store_url or default_url()))
    except (TachoscopeError, OSError) as error:
        if directory.is_dir():
            guard.print_line(f"the records stay in {directory}: {error}")
