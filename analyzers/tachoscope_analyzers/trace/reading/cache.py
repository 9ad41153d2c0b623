"""Columns on disk: written once per content, opened by memory mapping."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tachoscope_core.storage import cache_dir

VERSION = 3
"""Raised whenever what is written changes, so that nothing old is taken for new."""

LIMIT_BYTES = 20 << 30
_INDEX = "by-file"
_UNFINISHED = "unfinished-"
_ABANDONED_SECONDS = 86_400.0
_PRUNED, _PRUNE_SECONDS = "pruned", 60.0
_SIGNATURE = re.compile(r"[0-9a-f]+-[0-9a-f]+-([0-9a-f]+)-[0-9a-f]+-[0-9a-f]+")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def folder() -> Path:
    """Return where columns are kept: `$TACHOSCOPE_CACHE`, else `~/.cache/tachoscope`, below it `traces`."""
    return cache_dir.folder("traces") / f"v{VERSION}"


def find(path: Path) -> Path | None:
    """Return the folder with the columns of a file's content, or None.

    A file that is unchanged since it was read (by device, inode, size and times) is not read again; one of the same size as a known
    file is hashed.
    """
    with suppress(OSError, ValueError):
        index = folder() / _INDEX
        known = signature(path)
        entry = index / known
        if entry.is_file():
            return _known(entry.read_text())
        if _size(known) in {_size(other.name) for other in index.iterdir()}:
            with path.open("rb") as file:
                return _known(hashlib.file_digest(file, "sha256").hexdigest())
    return None


def _size(name: str) -> str:
    """Return the size in an index entry's name, "" for other files."""
    found = _SIGNATURE.fullmatch(name)
    return found.group(1) if found else ""


def _known(digest: str) -> Path | None:
    found = folder() / digest
    if not _DIGEST.fullmatch(digest) or not (found / "meta.json").is_file():
        return None
    with suppress(OSError):
        os.utime(found)  # for `prune`: used just now
    return found


def discard(found: Path) -> None:
    """Remove columns that turned out to be damaged."""
    shutil.rmtree(found, ignore_errors=True)


@contextmanager
def writing() -> Iterator[Path]:
    """Give a new folder beside the others, which is removed unless `keep` moved it to its place."""
    base = folder()
    try:
        base.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=base))
    except OSError:  # a home that cannot be written: the columns then live as long as the process
        place = Path(tempfile.mkdtemp(prefix="tachoscope-trace-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        try:
            yield place
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def keep(place: Path, path: Path, digest: str, before: str) -> Path:
    """Put a finished folder under its content's hash, note which file that is, and return where it is now.

    `before` is the file's signature from before it was read: a file that changed meanwhile is not noted.
    """
    if place.parent != folder():
        return place
    target = folder() / digest
    if not _moved(place, target):
        return place
    with suppress(OSError):
        if signature(path) == before:
            index = folder() / _INDEX
            index.mkdir(exist_ok=True)
            entry = index / f"new-{os.getpid()}-{digest}"
            entry.write_text(digest)
            entry.replace(index / before)
    if _is_due(folder() / _PRUNED):
        prune(keep_digest=digest)
    return target


def _moved(place: Path, target: Path) -> bool:
    """Move a complete folder to its place, unless another process was first with the same columns."""
    for _ in range(2):
        with suppress(OSError):
            place.rename(target)
            return True
        if (target / "meta.json").is_file():
            return True
        discard(target)  # somebody removed some of it
    return False


def _is_due(mark: Path) -> bool:
    """Return whether no process pruned within the last minute, since it takes long with thousands of traces."""
    with suppress(OSError):
        if mark.exists() and time.time() - mark.stat().st_mtime < _PRUNE_SECONDS:
            return False
        mark.touch()
    return True


def signature(path: Path) -> str:
    """Return what tells a file from a changed one without reading it: device, inode, size in bytes, and two times, in hexadecimal.

    Raises:
        OSError: there is no such file.
    """
    status = path.stat()
    return f"{status.st_dev:x}-{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}"


def prune(*, keep_digest: str = "", limit_bytes: int = LIMIT_BYTES) -> None:
    """Remove the columns that were used longest ago until all are within the limit, and what killed processes left behind."""
    entries = []
    for entry in _entries(folder()):
        with suppress(OSError):
            if entry.name.startswith(_UNFINISHED):
                if time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(entry, ignore_errors=True)
            elif _DIGEST.fullmatch(entry.name):
                entries.append((entry.stat().st_mtime, sum(file.stat().st_size for file in entry.iterdir()), entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total > limit_bytes and entry.name != keep_digest:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size
    _prune_index()


def _prune_index() -> None:
    for entry in _entries(folder() / _INDEX):
        with suppress(OSError, ValueError):
            if not _size(entry.name):
                if time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
                    entry.unlink()
            elif not (folder() / entry.read_text()).is_dir():
                entry.unlink()


def _entries(place: Path) -> list[Path]:
    with suppress(OSError):
        return list(place.iterdir())
    return []
