"""The files of NCCL's Inspector below some folders: finds them, and shares out what may be read among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from tachoscope_node.nccl.tail import Tail, key_of

LOOK_SECONDS = 5.0
IDLE_SECONDS = 600.0
"""A file that did not grow for so long is closed, and one that is found so is none of a running process; it may grow again."""
GONE_SECONDS = 60.0
"""A file that was removed is read on until it did not grow for so long."""
MAX_FILES = 128
"""Followed at a time: each has a file open."""
MAX_ENTRIES = 4096
"""Looked at in all folders together."""
MAX_POSITIONS = 4096
MOST_BEHIND_BYTES = 32 << 20
"""What a file has more than this to be read is left out: what comes too late serves nobody."""
_SUFFIXES = (".log", ".jsonl")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC


class Files:
    """Follows the files; a folder's folders are looked into, theirs are not.

    Args:
        positions: where each file was read to, by key, from before a restart. log: gets a sentence that is worth it once.

    Attributes:
        tails: that are followed. left_out: files that were not followed at the last look, there being too many.
        cut: last lines that their processes did not end.
    """

    def __init__(self, folders: Sequence[str], positions: dict[str, int], log: Callable[[str], None]) -> None:
        self._folders = folders
        self._positions = positions
        self._log = log
        self.tails: dict[str, Tail] = {}
        self._grew_at: dict[str, float] = {}
        self._gone: set[str] = set()
        self._look_due = float("-inf")
        self._turn = 0
        self._told: set[str] = set()
        self._past = [0, 0, 0]
        self.left_out = 0
        self.cut = 0

    @property
    def oversized(self) -> int:
        """Lines too long to be one, of all files so far."""
        return self._past[0] + sum(tail.oversized for tail in self.tails.values())

    @property
    def skipped(self) -> int:
        """Bytes left out, of all files so far."""
        return self._past[1] + sum(tail.skipped for tail in self.tails.values())

    @property
    def released(self) -> int:
        """Bytes given back, of all files so far."""
        return self._past[2] + sum(tail.released for tail in self.tails.values())

    def positions(self) -> dict[str, int]:
        """Return where each file is read to, by key, those that were closed included."""
        return self._positions | {key: tail.read for key, tail in self.tails.items()}

    def scan(self, now: float, unix_now: float) -> None:
        """Find new files now and then, and see which have grown. A folder that cannot be read is told of once."""
        if now >= self._look_due:
            self._look_due = now + LOOK_SECONDS
            self._find(now, unix_now)
        for key, tail in list(self.tails.items()):
            before = tail.size
            try:
                tail.check_size()
            except OSError as error:
                self._give_up(key, error)
                continue
            tail.skip_to(MOST_BEHIND_BYTES)
            if tail.size != before:
                self._grew_at[key] = now
        for key in [key for key in self.tails if self._is_idle(key, now)]:
            self._close(key)

    def _is_idle(self, key: str, now: float) -> bool:
        return now - self._grew_at[key] > (GONE_SECONDS if key in self._gone else IDLE_SECONDS)

    def read(self, most_bytes: int) -> Iterator[tuple[Tail, list[bytes]]]:
        """Yield lists of new lines, about `most_bytes` in all, shared fairly among the files."""
        keys = list(self.tails)
        self._turn = (self._turn + 1) % len(keys) if keys else 0
        keys = keys[self._turn :] + keys[: self._turn]
        for number, key in enumerate(keys):
            tail = self.tails[key]
            before = tail.read
            try:
                for lines in tail.lines(most_bytes // (len(keys) - number)):
                    yield tail, lines
            except OSError as error:
                self._give_up(key, error)
            most_bytes = max(most_bytes - (tail.read - before), 0)

    def release(self, rotate_bytes: int) -> None:
        """Free the space of lines that were read."""
        for tail in self.tails.values():
            try:
                tail.release(rotate_bytes)
            except OSError as error:
                self._tell(
                    f"{tail.name}: the space of what was read cannot be given back ({error.strerror}): "
                    "let NCCL_INSPECTOR_DUMP_DIR be on ext4, xfs, btrfs or tmpfs, or remove its files when their job has ended"
                )

    def close(self) -> None:
        for key in list(self.tails):
            self._close(key)

    def _give_up(self, key: str, error: OSError) -> None:
        """Close a file that cannot be read, as one whose server is away; the next look may find it again."""
        self._tell(f"could not read {self.tails[key].name}: {error.strerror}")
        self._close(key)

    def _close(self, key: str) -> None:
        tail = self.tails.pop(key)
        self.cut += tail.close()
        for place, number in enumerate((tail.oversized, tail.skipped, tail.released)):
            self._past[place] += number
        del self._grew_at[key]
        self._gone.discard(key)
        self._positions.pop(key, None)  # so that it is the newest again
        self._positions[key] = tail.read
        while len(self._positions) > MAX_POSITIONS:
            del self._positions[next(iter(self._positions))]

    def _find(self, now: float, unix_now: float) -> None:
        self.left_out = 0
        seen: set[str] = set()
        room = MAX_ENTRIES
        for folder in self._folders:
            try:
                room = self._folder(os.open(folder, _FOLDER), now, unix_now, seen, room, deeper=True)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._tell(f"could not read the folder {folder}: {error.strerror}")
        if self.left_out:
            self._tell(f"there are more than {MAX_FILES} files of running processes: {self.left_out} are not followed")
        self._gone = {key for key in self.tails if key not in seen} if room > 0 else set()

    def _folder(self, folder: int, now: float, unix_now: float, seen: set[str], room: int, *, deeper: bool) -> int:
        """Take up the files of an open folder, and close it; return how many entries may still be looked at."""
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if room <= 0:
                        self._tell(f"more than {MAX_ENTRIES} files in the folders of NCCL's Inspector: remove those of ended jobs")
                        break
                    room -= 1
                    if entry.name.endswith(_SUFFIXES) and entry.is_file(follow_symlinks=False):
                        self._scan_entry(entry, folder, now, unix_now, seen)
                    elif deeper and entry.is_dir(follow_symlinks=False):
                        inner = os.open(entry.name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                        room = self._folder(inner, now, unix_now, seen, room, deeper=False)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            pass  # it went meanwhile, or is somebody's own
        finally:
            os.close(folder)
        return room

    def _scan_entry(self, entry: os.DirEntry[str], folder: int, now: float, unix_now: float, seen: set[str]) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
            key = key_of(entry.name, status)
            seen.add(key)
            if key in self.tails or unix_now - status.st_mtime > IDLE_SECONDS:
                return
            if len(self.tails) >= MAX_FILES:
                self.left_out += 1
                return
            tail = Tail(entry.name, folder, self._positions.get(key, 0))
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._tell(f"could not open {entry.name}: {error.strerror}")
            return
        self.tails[tail.key], self._grew_at[tail.key] = tail, now

    def _tell(self, line: str) -> None:
        subject = line[:80]
        if subject not in self._told and len(self._told) < 64:
            self._told.add(subject)
            self._log(f"collector nccl: {line}")
