"""Moves what lies in a spool directory into the store, exactly once: the object's key is writer + offset."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tachoscope_core import spool
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.quarantine import DIRECTORY
from tachoscope_core.store import Store, default_url


class _Address(msgspec.Struct):
    """The part of a record that says where it belongs."""

    job: str
    attempt: int
    host: str
    time: float


_address = msgspec.json.Decoder(_Address)


@dataclass(frozen=True, slots=True)
class Shipped:
    """What `ship` moved: segments, whole lines, lines cut off at the end of a segment, and lines with no address."""

    segments: int = 0
    lines: int = 0
    cut_lines: int = 0
    lost_lines: int = 0
    jobs: frozenset[str] = frozenset()


def ship(directory: Path, store: Store) -> Shipped:
    """Copy each segment whose process is gone into the store, verbatim, and delete it; then the directory if it is empty.

    A line that is no record goes along with the record before it, where readers count it.

    Raises:
        TachoscopeError: the store cannot be written; nothing that was not stored is deleted.
    """
    shipped = Shipped()
    for path in spool.segments(directory):
        if spool.is_locked(path):
            continue
        try:
            writer, number = spool.writer_and_number(path)
        except ValueError:
            continue
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        groups = list(_by_address(data[:whole]))
        for offset, address, lines in groups:
            store.write(
                address.job,
                host=address.host,
                writer=writer,
                attempt=address.attempt,
                offset=spool.offset_of_writer(number, offset),
                time=address.time,
                lines=lines,
            )
        kept = sum(len(lines) for _, _, lines in groups)
        if whole and not kept:
            continue  # nothing in it says where it belongs: left for a person to look at
        path.unlink()
        shipped = replace(
            shipped,
            segments=shipped.segments + 1,
            lines=shipped.lines + data[:whole].count(b"\n"),
            cut_lines=shipped.cut_lines + (whole < len(data)),
            lost_lines=shipped.lost_lines + data[: whole - kept].count(b"\n"),
            jobs=shipped.jobs | {address.job for _, address, _ in groups},
        )
    return shipped


def _by_address(data: bytes) -> Iterator[tuple[int, _Address, bytes]]:
    """Yield runs of lines of one job, attempt, host and day with their offset in `data`."""
    start = offset = 0
    current: _Address | None = None
    for line in data.splitlines(keepends=True):
        address: _Address | None = current
        with contextlib.suppress(msgspec.DecodeError):
            address = _address.decode(line)
        if address is not None and (current is None or not _same_object(address, current)):
            if current is not None:
                yield start, current, data[start:offset]
            start, current = offset, address
        offset += len(line)
    if current is not None:
        yield start, current, data[start:]


def _same_object(one: _Address, other: _Address) -> bool:
    return (one.job, one.attempt, one.host, one.time // 86400) == (
        other.job,
        other.attempt,
        other.host,
        other.time // 86400,
    )


def ship_left_behind(root: Path, store: Store) -> Shipped:
    """Ship what runs that are no longer alive left below the spool's root; what cannot be shipped stays there."""
    total = Shipped()
    for directory in sorted(root.iterdir()) if root.is_dir() else []:
        if directory.name == DIRECTORY or not directory.is_dir() or directory.is_symlink():
            continue
        try:
            part = ship_alone(directory, store)
        except (OSError, TachoscopeError):
            continue  # another user's, or not to be stored: the others must not wait for it
        if part is None:
            continue
        total = Shipped(
            total.segments + part.segments,
            total.lines + part.lines,
            total.cut_lines + part.cut_lines,
            total.lost_lines + part.lost_lines,
            total.jobs | part.jobs,
        )
    return total


def ship_alone(directory: Path, store: Store) -> Shipped | None:
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
        directory.rmdir()


def ship_quietly(directory: Path, store_url: str | None) -> None:
    """Ship one directory at the end of a training process, unless an agent does: a failure is one line, and the records stay."""
    if spool.live_agent(directory.parent) and store_url is None:
        return
    try:
        ship_alone(directory, Store(store_url or default_url()))
    except (TachoscopeError, OSError) as error:
        if directory.is_dir():
            sys.stderr.write(f"tachoscope: the records stay in {directory}: {error}\n")
