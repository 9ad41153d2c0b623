"""Whether the files of a checkpoint still are what its manifests say: they are read back and compared with sizes and checksums.

What cannot be read is not corrupt, and what nothing can be compared with is not sound: these are results of their own. Nothing is
unpickled, and no content leaves this module.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from threading import Event
from typing import Literal

from tachoscope_core.checkpoints.checksums import ALGORITHM, UnsteadyFileError, open_file_checksum
from tachoscope_core.records.records import ShardSum

Result = Literal["sound", "corrupt", "unreachable", "unverifiable"]

_DCP_METADATA = ".metadata"
DCP_SUFFIX = ".distcp"
_MTIME_GRAIN_SECONDS = 2.0
"""Coarsest time stamps of files that are met, those of FAT; the kernel's own are some milliseconds coarse."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one rank said of the files that it wrote, at Unix time `time`."""

    time: float
    shards: Sequence[ShardSum]


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What reading back a checkpoint showed.

    Attributes:
        result: sound; corrupt: a file is missing or is another than its manifest says; unreachable: this machine or user cannot
            see it; unverifiable: there is nothing to compare it with.
        fault: what is wrong, naming the file; empty if sound. bytes: that were read. seconds: what that took.
        unsettled: what is corrupt was written to after its manifest was taken, or is gone: a save or a removal may be under way.
    """

    result: Result
    fault: str = ""
    bytes: int = 0
    seconds: float = 0.0
    unsettled: bool = False


class _NotSoundError(Exception):
    def __init__(self, result: Result, fault: str, *, unsettled: bool = False) -> None:
        super().__init__(fault)
        self.result: Result = result
        self.unsettled = unsettled


def verify(
    reference: str,
    manifests: Mapping[int, Manifest],
    *,
    expected_ranks: Iterable[int] = (),
    place: str = "",
    whole: bool = True,
    open_file: Callable[[str], FileIO] | None = None,
    drop_cache: bool = True,
    stop: Event | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> ReadBack | None:
    """Read a checkpoint back and hold it against its manifests; None if `stop` was set meanwhile.

    Args:
        reference: path of the file or folder, as the records name it. place: where it is on this machine; empty: there.
        manifests: by rank. expected_ranks: those that took part in the save; one of them without a manifest makes it incomplete.
        whole: the manifests should name all files of the checkpoint; false where they are of the ranks of one node only.
        open_file: opens a file by its path; it may refuse with OSError. Default: `open_regular`.
        drop_cache: read the storage, not the page cache.
        stop: set by another thread to give up. on_bytes: called with the length of each chunk that was read.
    """
    began, read = time.monotonic(), 0

    def count(size: int) -> None:
        nonlocal read
        read += size
        if on_bytes is not None:
            on_bytes(size)

    def verdict(result: Result, fault: str = "", *, unsettled: bool = False) -> ReadBack:
        return ReadBack(result, fault, read, time.monotonic() - began, unsettled)

    try:
        files = _files(reference, place or reference, manifests, expected_ranks, whole=whole)
        for file in files:
            with _opened(file, open_file or open_regular) as opened:
                _check_size(file, opened)
        for file in files:
            with _opened(file, open_file or open_regular) as opened:
                _check_size(file, opened)
                if not _check_content(file, opened, drop_cache=drop_cache, stop=stop, on_bytes=count):
                    return None
    except _NotSoundError as error:
        return verdict(error.result, str(error), unsettled=error.unsettled)
    return verdict("sound")


def open_regular(path: str) -> FileIO:
    """Open a regular file for reading: no link, and without waiting for the other end of a pipe.

    Raises:
        OSError: it is something else, or cannot be opened.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = FileIO(path, opener=lambda name, _: os.open(name, flags))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return file


@dataclass(frozen=True, slots=True)
class _File:
    """One file to check: `name` as the records know it, `path` here; `lone`: it is the whole checkpoint."""

    name: str
    path: str
    lone: bool
    said: ShardSum
    said_at: float


def _files(
    reference: str, place: str, manifests: Mapping[int, Manifest], expected_ranks: Iterable[int], *, whole: bool
) -> list[_File]:
    """Return what is to be read, once it is known that this can decide something."""
    if "://" in reference:
        raise _NotSoundError("unreachable", f"{reference}: not a path on this machine")
    if not os.path.isabs(place) or os.path.normpath(place) != place or "\0" in place:
        raise _NotSoundError("unreachable", f"{reference}: not a plain absolute path")
    files = [
        _File(_joined(reference, shard.path), _joined(place, shard.path), not shard.path, shard, manifest.time)
        for _, manifest in sorted(manifests.items())
        for shard in manifest.shards
    ]
    if not files:
        raise _NotSoundError("unverifiable", "not verified: no manifest")
    if silent := sorted(set(expected_ranks) - manifests.keys()):
        ranks = ", ".join(map(str, silent[:8])) + (", ..." if len(silent) > 8 else "")
        raise _NotSoundError("unverifiable", f"incomplete: no manifest of rank {ranks}")
    for file in files:
        if not _is_plain(file.said.path):
            raise _NotSoundError("unverifiable", f"the manifest names {file.said.path!r}, which is not below {reference}")
        if not file.said.checksum.startswith(f"{ALGORITHM}:"):
            kind = file.said.checksum.partition(":")[0]
            raise _NotSoundError("unverifiable", f"{file.name}: checksum of an unknown kind, {kind[:32]!r}")
    if whole and not files[0].lone:
        _check_folder(reference, place, {file.said.path for file in files})
    return files


def _is_plain(path: str) -> bool:
    """Return whether a path stays below the folder that it is joined to; an empty one is the folder itself."""
    inside = not os.path.isabs(path) and os.path.normpath(path) == path and path.split("/")[0] not in {".", ".."}
    return not path or (inside and "\0" not in path)


def _joined(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else folder


def _check_folder(reference: str, place: str, named: set[str]) -> None:
    """A folder of torch.distributed.checkpoint is whole when manifests name all its data files and `.metadata`, written last."""
    try:
        with os.scandir(place) as entries:
            there = {entry.name for entry in entries if entry.name.endswith(DCP_SUFFIX)}
    except OSError as error:
        raise _NotSoundError("unreachable", f"{reference}: {error.strerror}", unsettled=True) from None
    if extra := sorted(there - named):
        raise _NotSoundError("unverifiable", f"incomplete: no manifest names {_joined(reference, extra[0])}")
    if any(name.endswith(DCP_SUFFIX) for name in named) and _DCP_METADATA not in named:
        raise _NotSoundError("unverifiable", f"incomplete: no manifest names {_joined(reference, _DCP_METADATA)}")


def _opened(file: _File, open_file: Callable[[str], FileIO]) -> FileIO:
    try:
        return open_file(file.path)
    except (FileNotFoundError, NotADirectoryError):
        # A folder that is there and lacks a file is broken; a file or folder that is not there may lie on another machine.
        folder_is_there = not file.lone and os.path.isdir(file.path.removesuffix(file.said.path))
        if folder_is_there:
            raise _NotSoundError("corrupt", f"{file.name}: missing", unsettled=True) from None
        raise _NotSoundError("unreachable", f"{file.name}: not there", unsettled=True) from None
    except OSError as error:
        raise _NotSoundError("unreachable", f"{file.name}: {error.strerror or error}") from None


def _check_size(file: _File, opened: FileIO) -> None:
    size = os.fstat(opened.fileno()).st_size
    if size != file.said.bytes:
        _fail(file, opened, f"{file.name}: {size} bytes, its manifest says {file.said.bytes}")


def _check_content(file: _File, opened: FileIO, *, drop_cache: bool, stop: Event | None, on_bytes: Callable[[int], None]) -> bool:
    try:
        found = open_file_checksum(opened, drop_cache=drop_cache, stop=stop, on_bytes=on_bytes)
    except UnsteadyFileError:
        raise _NotSoundError("corrupt", f"{file.name}: changed while it was read", unsettled=True) from None
    except OSError as error:
        raise _NotSoundError("corrupt", f"{file.name}: cannot be read back: {error.strerror or error}") from None
    if found is None:
        return False
    if found.checksum != file.said.checksum:
        _fail(file, opened, f"{file.name}: another checksum than its manifest says")
    return True


def _fail(file: _File, opened: FileIO, fault: str) -> None:
    changed_at = os.fstat(opened.fileno()).st_mtime
    later = changed_at > file.said_at + _MTIME_GRAIN_SECONDS
    note = "; it was written to after its manifest was taken" if later else ""
    raise _NotSoundError("corrupt", fault + note, unsettled=later)
