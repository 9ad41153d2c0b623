"""Follows the spool: finds the segments of all runs, reads what was appended, and says what is finished."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.owner import Owner
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage import spool
from tachoscope_core.storage.shard_quarantine import DIRECTORY
from tachoscope_node.common.shares import has_room
from tachoscope_node.config.settings import Limits
from tachoscope_node.spool.segment import CHUNK_BYTES, Address, Segment

_IDLE_SECONDS = 1.0
_OLD_SECONDS = 60.0
_DIRECTORY_NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
_MAX_ATTEMPT = 1 << 20
_MAX_UNIX_SECONDS = 1 << 32
_MOST_NEW = 10_000
"""Directories of a user, and segments of a directory, that are not followed and are looked at: anybody can make a million."""
_DIRECTORIES_AT_ONCE = 4
"""So many directories may be read at their full rate at a time; more share that."""

Apply = Callable[[Segment, list[bytes]], None]
"""Takes whole lines of a segment."""


_address = msgspec.json.Decoder(Address)


@dataclass(eq=False)
class Directory:
    """One run's directory, open; `lock` is held while this agent ships what is in it.

    Attributes:
        uid: of the user who made it. of_pod: it is mounted into a pod, which may be alive although it writes nothing.
    """

    name: str
    path: Path
    inode: int
    descriptor: int
    uid: int
    modified_ns: int = -1
    of_pod: bool = False
    lock: int | None = None
    segments: dict[str, Segment] = field(default_factory=dict)

    def release(self) -> None:
        """Give up the spool's lock, so that others may ship."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def close(self) -> None:
        self.release()
        os.close(self.descriptor)


class Follower:
    """Follows all segments below a spool's root, within limits.

    Args:
        remember: called for a new segment; takes up what is known of it from before a restart, and says whether there is any.
        writer_gone: called with the last segment of a process that is gone.
        may_write: says whether who writes a segment may write of the job that it names.
        rejected: counts what is left alone, by reason.

    Attributes:
        directories: that are followed, by name; one that was removed and made again is a new one, and the old one is followed
            to its end.
        unreadable: directories that cannot be read, with the reason.
    """

    def __init__(
        self,
        root: Path,
        limits: Limits,
        *,
        remember: Callable[[Segment], bool],
        writer_gone: Callable[[Segment], None],
        may_write: Callable[[Segment], bool],
        rejected: Counter[str],
    ) -> None:
        self._root = root
        self.limits = limits
        self._remember = remember
        self._gone_writer = writer_gone
        self._may_write = may_write
        # Of the files that the process may have open, the pages and the store need theirs.
        self._most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4
        self.directories: dict[str, Directory] = {}
        self._gone: list[Directory] = []
        self._rejected = rejected
        self.unreadable: dict[str, str] = {}
        self._turn = 0
        self._open_files: Counter[int] = Counter()

    def segments(self) -> list[Segment]:
        return [segment for directory in self._all() for segment in directory.segments.values()]

    def _all(self) -> list[Directory]:
        return [*self.directories.values(), *self._gone]

    def scan(self, now: float) -> None:
        """Look for new directories and segments.

        Raises:
            OSError: the root cannot be read; one that is not there yet is empty.
        """
        self.unreadable = {}
        self._open_files = Counter(segment.uid for segment in self.segments())
        try:
            with os.scandir(self._root) as entries:
                found = self._found(entry for entry in entries if entry.name != DIRECTORY and entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            found = {}
        for name, directory in list(self.directories.items()):
            if name not in found or found[name].inode() != directory.inode:
                self._gone.append(self.directories.pop(name))
        for directory in self.directories.values():
            self._look_into(directory, now)
        for name, entry in found.items():
            if name in self.directories:
                continue
            with contextlib.suppress(FileNotFoundError):
                uid = entry.stat(follow_symlinks=False).st_uid
                if not self._room_for(uid):
                    self._drop_empty(uid)
                if self._room_for(uid):
                    self._take_up(entry, uid, now)
                else:
                    self._rejected["directories"] += 1

    def _found(self, entries: Iterable[os.DirEntry[str]]) -> dict[str, os.DirEntry[str]]:
        """Return the directories that are followed, and of the others so many of each user as memory is for."""
        found: dict[str, os.DirEntry[str]] = {}
        new: Counter[int] = Counter()
        for entry in entries:
            if entry.name not in self.directories:
                try:
                    uid = entry.stat(follow_symlinks=False).st_uid
                except FileNotFoundError:
                    continue
                if new[uid] >= _MOST_NEW:
                    continue
                new[uid] += 1
            found[entry.name] = entry
        return found

    def _room_for(self, uid: int) -> bool:
        return has_room(Counter(directory.uid for directory in self.directories.values()), uid, self.limits.directories)

    def _drop_empty(self, uid: int) -> None:
        """Make room for a user's: directories without segments are nothing yet, and anybody can make many."""
        for name, directory in list(self.directories.items()):
            if directory.uid == uid and not directory.segments:
                self.directories.pop(name).close()

    def _take_up(self, entry: os.DirEntry[str], uid: int, now: float) -> None:
        if not _DIRECTORY_NAME.fullmatch(entry.name):
            self._rejected["name"] += 1
            return
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(entry.path, flags)
        except OSError as error:
            self.unreadable[entry.name] = error.strerror or str(error)
            return
        inode = os.fstat(descriptor).st_ino
        directory = self.directories[entry.name] = Directory(entry.name, Path(entry.path), inode, descriptor, uid)
        self._look_into(directory, now)

    def _look_into(self, directory: Directory, now: float) -> None:
        try:
            self._scan_directory(directory, now)
        except OSError as error:
            self.unreadable[directory.name] = error.strerror or str(error)

    def _scan_directory(self, directory: Directory, now: float) -> None:
        modified = os.fstat(directory.descriptor).st_mtime_ns
        if modified == directory.modified_ns and len(directory.segments) < self.limits.segments:
            return
        entries = self._new_segments(directory)
        last = {_writer(name): name for name in sorted([*directory.segments, *(entry.name for entry in entries)])}
        for entry in entries:
            if len(directory.segments) >= self.limits.segments or not self._may_open(entry):
                self._rejected["segments"] += 1
                return  # looked at again as soon as one is done
            self._open(directory, entry, last[_writer(entry.name)], now)
        # A file that appears within the grain of the clock would not show in the time: look again.
        recent = time.time_ns() - modified < 2_000_000_000
        directory.modified_ns = -1 if recent else modified

    def _new_segments(self, directory: Directory) -> list[os.DirEntry[str]]:
        """Return segments that are not followed, in the order in which they were last written to: of the processes of a rank that
        followed each other while no agent was there, the last words of one come before the first of the next.
        """
        found = []
        with os.scandir(directory.descriptor) as entries:
            for entry in entries:
                directory.of_pod = directory.of_pod or entry.name == spool.POD_MARK
                if entry.name in directory.segments or not entry.name.endswith(spool.SEGMENT_SUFFIX):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry))
                if len(found) >= _MOST_NEW:
                    break
        return [entry for _, entry in sorted(found, key=lambda one: one[0])]

    def _open(self, directory: Directory, entry: os.DirEntry[str], last: str, now: float) -> None:
        """Follow a segment. `last`: of its writer."""
        if not entry.is_file(follow_symlinks=False):
            self._rejected["no_file"] += 1
            return
        try:
            segment = Segment(directory.path / entry.name, directory.name, directory.descriptor)
        except (ValueError, FileNotFoundError):  # not a segment's name, or shipped by another at this moment
            return
        segment.grew_at = now
        left_behind = segment.size() > 0 and time.time() - entry.stat().st_mtime > _OLD_SECONDS and not segment.writer_lives()
        if not self._remember(segment) and left_behind and (last == entry.name or not _is_written(directory, last)):
            segment.applied = segment.size()  # goes to the store, but is no news for the metrics
        directory.segments[entry.name] = segment
        self._open_files[segment.uid] += 1

    def _may_open(self, entry: os.DirEntry[str]) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return has_room(self._open_files, entry.stat(follow_symlinks=False).st_uid, self._most_files)
        return True

    def read(self, now: float, apply: Apply, seconds: float) -> set[Owner]:
        """Read new lines of all segments within each directory's rate; return whose segments have more."""
        most = max(int(self.limits.bytes_per_second * seconds), CHUNK_BYTES)
        left = most * _DIRECTORIES_AT_ONCE
        unread: set[Owner] = set()
        self._turn += 1
        for directory in self._in_turn():
            budget = min(most, left)
            for segment in directory.segments.values():
                before = segment.bytes_read
                if segment.finished:
                    continue
                if budget > 0:
                    try:
                        self._read(directory, segment, now, apply, budget)
                    except Exception:  # set aside: nothing in one file may keep the others from being read
                        self._rejected["fault"] += 1
                        segment.refused = segment.finished = True
                    budget -= segment.bytes_read - before
                    left -= segment.bytes_read - before
                if budget <= 0 or segment.behind:
                    unread.add(segment.owner)
        return unread

    def _in_turn(self) -> Iterator[Directory]:
        """Yield the directories in the order of reading: one of each user, then another of each; each time others are first."""
        by_user: dict[int, list[Directory]] = {}
        for directory in self._all():
            by_user.setdefault(directory.uid, []).append(directory)
        users = list(by_user.values())
        start = self._turn % max(len(users), 1)
        turned = [own[self._turn % len(own) :] + own[: self._turn % len(own)] for own in (*users[start:], *users[:start])]
        for row in zip_longest(*turned):
            yield from filter(None, row)

    def _read(self, directory: Directory, segment: Segment, now: float, apply: Apply, budget: int) -> None:
        size = segment.size()
        if size == segment.seen_size and not segment.behind:
            # An empty one is asked late: perhaps it was made a moment ago, and its writer is about to take the lock.
            if now - segment.grew_at >= (_IDLE_SECONDS if size else _OLD_SECONDS):
                self._finish_if_done(directory, segment)
            return
        segment.seen_size, segment.grew_at = size, now
        oversized = segment.oversized
        for lines, new in segment.lines(budget):
            if segment.address is None:
                segment.address = self._first_address(lines)
            if not segment.checked and segment.address is not None:
                segment.checked, segment.refused = True, not self._may_write(segment)
                self._rejected["owner"] += segment.refused
            if new and not segment.refused:
                apply(segment, lines)
        self._rejected["oversized"] += segment.oversized - oversized
        if segment.read > segment.shipped and segment.unshipped_since is None:
            segment.unshipped_since = now

    def writer_lives(self, writer: str) -> bool:
        """Return whether a process that writes, or wrote, one of the segments is alive."""
        return any(segment.writer == writer and not segment.finished and segment.writer_lives() for segment in self.segments())

    def _finish_if_done(self, directory: Directory, segment: Segment) -> None:
        """Finish a segment to which nothing will be appended: its process is gone, or writes to a later one."""
        later = any(other.writer == segment.writer and other.number > segment.number for other in directory.segments.values())
        # What it wrote just before it ended shows in the size now, and is read the next time.
        if (later or not segment.writer_lives()) and segment.size() == segment.seen_size:
            self._rejected["cut"] += segment.finish()
            if not later and not segment.refused:
                self._gone_writer(segment)

    def _first_address(self, lines: list[bytes]) -> Address | None:
        for line in lines:
            try:
                address = _address.decode(line)
                check_job_name(address.job)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            except TachoscopeError:
                self._rejected["name"] += 1
                continue
            if 0 <= address.attempt < _MAX_ATTEMPT and 0 <= address.time < _MAX_UNIX_SECONDS:
                return address
            self._rejected["implausible"] += 1
        return None

    def take_locks(self) -> None:
        """Take the shipper's lock in each directory with segments that nobody else ships."""
        for directory in self.directories.values():
            if directory.lock is None and directory.segments:
                try:
                    directory.lock = spool.try_lock(spool.SHIPPER_LOCK, dir_fd=directory.descriptor)
                except OSError as error:
                    self.unreadable[directory.name] = error.strerror or str(error)

    def to_ship(self) -> list[Segment]:
        """Return the segments with whole lines that the store does not have and that this agent is to ship."""
        return [
            segment
            for directory in self._all()
            if directory.lock is not None
            for segment in directory.segments.values()
            if segment.address is not None and not segment.refused
            if segment.pending > segment.shipped or segment.shippable() > segment.shipped
        ]

    def drop_done(self, now: float, retention_seconds: float) -> list[Segment]:
        """Remove the files of segments that are finished and shipped; return these segments, and those whose files are gone."""
        done = []
        for directory in self._all():
            for segment in list(directory.segments.values()):
                if not segment.finished or not _may_go(directory, segment, now, retention_seconds):
                    continue
                if directory.lock is not None:
                    segment.remove()
                segment.close()
                del directory.segments[segment.path.name]
                done.append(segment)
            if not directory.segments and (directory.lock is not None or directory.of_pod):
                _remove(directory, retention_seconds)
        for directory in self._gone:
            if not directory.segments:
                directory.close()
        self._gone = [directory for directory in self._gone if directory.segments]
        return done

    def close(self) -> None:
        for directory in self._all():
            for segment in directory.segments.values():
                segment.close()
            directory.close()
        self.directories, self._gone = {}, []


def _may_go(directory: Directory, segment: Segment, now: float, retention_seconds: float) -> bool:
    if directory.lock is None:  # another process ships it, and removes it then
        return not segment.is_there()
    if segment.pending > segment.shipped and not segment.refused:
        return False
    whole = segment.address is not None and not segment.refused and segment.shippable() <= segment.shipped
    return whole or now - segment.grew_at > retention_seconds


def _remove(directory: Directory, retention_seconds: float) -> None:
    """Remove an empty directory; one in which a segment appeared just now stays, and a pod's until nothing came for long."""
    with contextlib.suppress(OSError):
        if directory.of_pod:
            idle = time.time() - os.fstat(directory.descriptor).st_mtime
            if idle <= retention_seconds:
                return
            os.unlink(spool.POD_MARK, dir_fd=directory.descriptor)
        left = [name for name in os.listdir(directory.descriptor) if name.startswith(spool.FAULT_PREFIX)]
        for name in (*spool.RUN_FILES, *left):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory.descriptor)
        directory.path.rmdir()
    directory.release()


def _writer(name: str) -> str:
    """Return whose segment a file is, by its name."""
    return name.rpartition("-")[0]


def _is_written(directory: Directory, name: str) -> bool:
    """Return whether a process holds the lock of a segment."""
    if name in directory.segments:
        return directory.segments[name].writer_lives()
    with contextlib.suppress(ValueError, OSError):  # not a segment's name, or shipped by another at this moment
        segment = Segment(directory.path / name, directory.name, directory.descriptor)
        try:
            return segment.writer_lives()
        finally:
            segment.close()
    return False
