"""Files that a job names, opened by an agent of root: resolved within the job's own root, and nothing but the kind that is wanted.

`/proc/PID/root/NAME` alone is not a boundary: an absolute link in it leads to the agent's own root. So names are resolved here, one
part at a time, as the kernel would for the process. What a name leads to is looked at before it is opened (O_PATH): to open a
device may already do something.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator

from tachoscope_core.errors import TachoscopeError

_MOST_LINKS, _MOST_LETTERS, _MOST_FOLDERS = 40, 4096, 64
"""The kernel's own limits, and the most folders that are open at a time."""
_KINDS = {stat.S_IFREG: "plain file", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
_NAMES = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class JobRoot:
    """The root directory of a process. Paths are absolute; `..` does not lead out of it.

    Raises:
        OSError: the process is gone, or may not be looked at.
    """

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._root = os.open(f"{proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    @contextlib.contextmanager
    def opened(self, path: str, flags: int, kind: int, uid: int) -> Iterator[int]:
        """Open a file of the user's, of one kind (`stat.S_IFREG`, `stat.S_IFIFO`), without waiting for it.

        Raises:
            OSError: it is not there, or cannot be opened. TachoscopeError: it is of another kind, or another user's.
        """
        with self._checked(path, kind, uid) as named:
            descriptor = os.open(f"/proc/self/fd/{named}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def connected(self, path: str, uid: int, seconds: float) -> Iterator[socket.socket]:
        """Connect to a Unix socket of the user's; nothing done with it waits for longer than so many seconds.

        Raises:
            OSError: it does not exist, or nothing listens. TachoscopeError: it is of another kind, or of another user.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            with self._checked(path, stat.S_IFSOCK, uid) as named:
                connection.connect(f"/proc/self/fd/{named}")
            yield connection

    @contextlib.contextmanager
    def _checked(self, path: str, kind: int, uid: int) -> Iterator[int]:
        named = self._named(path)
        try:
            status = os.fstat(named)
            if stat.S_IFMT(status.st_mode) != kind or status.st_uid != uid:
                raise TachoscopeError(f"{os.path.basename(path)} is not a {_KINDS[kind]} of the job's user")
            yield named
        finally:
            os.close(named)

    def status(self, path: str) -> os.stat_result:
        """Return the status of what a path names. Raises OSError: it is not there."""
        named = self._named(path)
        try:
            return os.fstat(named)
        finally:
            os.close(named)

    def _named(self, path: str) -> int:
        """Return a descriptor of what a path names, which is not open for reading."""
        if len(path) > _MOST_LETTERS:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        rest, folders, links = _parts(path), [os.dup(self._root)], 0
        try:
            while rest:
                if links > _MOST_LINKS or len(folders) > _MOST_FOLDERS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                name = rest.pop()
                if name == "..":
                    if len(folders) > 1:
                        os.close(folders.pop())
                    continue
                found = os.open(name, _NAMES, dir_fd=folders[-1])
                if not stat.S_ISLNK(os.fstat(found).st_mode):
                    folders.append(found)
                    continue
                try:
                    target = os.readlink("", dir_fd=found)
                finally:
                    os.close(found)
                links += 1
                if target.startswith("/"):
                    while len(folders) > 1:
                        os.close(folders.pop())
                rest += _parts(target)
            return folders.pop()
        finally:
            for folder in folders:
                os.close(folder)


def _parts(path: str) -> list[str]:
    """Return the names of a path, the last first."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
