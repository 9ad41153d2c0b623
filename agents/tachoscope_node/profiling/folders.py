"""The folders that processes write their traces into: one for each rank and pass, the process's user's alone.

What lies in them is foreign: it is read only if it is a plain file of that user, and never through a link.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

from tachoscope_core.errors import TachoscopeError

_TRACE = re.compile(r"trace_\d{1,10}\.json")
FILE = "trace.json"
"""What a process is told to write; it puts its pid into the name."""
_END_BYTES = 4096
_LEAST_FREE_BYTES, _LEAST_FREE_RATIO = 2 << 30, 0.05


def make_root(root: Path) -> None:
    """Make the folder of all folders, in which others than the agent can only go through.

    Raises:
        TachoscopeError: it cannot be made, or is another user's.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise TachoscopeError(f"{root} is not owned by the agent", fix="name another with profiles.directory")
        root.chmod(0o711)
    except OSError as error:
        raise TachoscopeError(f"could not make {root}: {error.strerror}", fix="name another with profiles.directory") from None


def make(root: Path, name: str, uid: int) -> Path:
    """Make the folder of a rank; what lay there by that name goes.

    Raises:
        TachoscopeError: it cannot be made, or the agent may not give it to that user.
    """
    folder = root / name
    try:
        remove(folder)
        folder.mkdir(mode=0o700)
        if uid != os.geteuid():
            os.chown(folder, uid, -1, follow_symlinks=False)
    except OSError as error:
        raise TachoscopeError(f"could not make {folder} for user {uid}: {error.strerror}") from None
    return folder


def remove(folder: Path) -> None:
    """Remove a folder and its files; errors, also of a missing folder, are ignored."""
    shutil.rmtree(folder, ignore_errors=True)


def room(root: Path) -> str:
    """Return why no trace may be written there, or nothing."""
    try:
        found = os.statvfs(root)
    except OSError as error:
        return f"{root}: {error.strerror}"
    free, least = found.f_bavail * found.f_frsize, max(_LEAST_FREE_BYTES, int(_LEAST_FREE_RATIO * found.f_blocks * found.f_frsize))
    return "" if free >= least else f"{root} has {free / 2**30:.1f} GiB free; traces are written from {least / 2**30:.1f} GiB on"


def whole_trace(folder: Path, uid: int, *, most_bytes: int) -> int | None:
    """Return an open descriptor of the trace in a folder, for reading, or None while it is not there to its end.

    Raises:
        TachoscopeError: it is too large, or is not a plain file of that user.
    """
    with contextlib.suppress(FileNotFoundError):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in os.listdir(at):
                if _TRACE.fullmatch(name):
                    return _opened(at, name, uid, most_bytes)
        finally:
            os.close(at)
    return None


def _opened(at: int, name: str, uid: int, most_bytes: int) -> int | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TachoscopeError(f"could not open {name}: {error.strerror}") from None
    found, keep = os.fstat(descriptor), False
    try:
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid or found.st_nlink != 1:
            raise TachoscopeError(f"{name} is not a private file of user {uid}")
        if found.st_size > most_bytes:
            raise TachoscopeError(f"{name} has {found.st_size} bytes, more than profiles.trace_bytes allows")
        keep = _ends(descriptor, found.st_size)
    finally:
        if not keep:
            os.close(descriptor)
    return descriptor if keep else None


def _ends(descriptor: int, size: int) -> bool:
    """Return whether kineto has written all: the trace's name is the last that it writes."""
    end = os.pread(descriptor, _END_BYTES, max(size - _END_BYTES, 0))
    return b'"traceName"' in end and end.rstrip().endswith(b"}")
