"""A store that is a directory of this machine, as a file system of fsspec that other users cannot lead elsewhere.

Several users may write into one directory. Below the store's root no link is followed, a pipe is never waited for, and of a file no
more is read than a store holds: else what one user puts there would be read, or written over, with the rights of another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from tachoscope_core.whole_files import write_whole

MAX_FILE_BYTES = 64 << 20
"""That is read at once; traces, which may be larger, are read in pieces."""
MAX_DEPTH = 8
"""Folders below the one that is listed: a store has no more of them, and each costs a call within a call."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class DirectoryFiles(LocalFileSystem):  # type: ignore[misc]
    """The files below `root`; the root itself may be reached by links."""

    cachable = False

    def __init__(self, root: str) -> None:
        super().__init__()
        self.root = root.rstrip("/")

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        return open(self._strip_protocol(path), mode, opener=self._opened)

    def _opened(self, path: str, flags: int) -> int:
        folder = self._folder(os.path.dirname(path))
        try:
            descriptor = os.open(os.path.basename(path), flags | _FILE, 0o666, dir_fd=folder)
        finally:
            os.close(folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", path)
        return descriptor

    def _folder(self, path: str, *, make: bool = False) -> int:
        """Return a descriptor of a folder below the root, opened step by step so that no link can intervene."""
        if path != self.root and not path.startswith(f"{self.root}/"):
            raise OSError(errno.EXDEV, "outside of the store", path)
        if make:
            os.makedirs(self.root, exist_ok=True)
        descriptor = os.open(self.root or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in filter(None, path[len(self.root) :].split("/")):
            try:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                below = os.open(name, _FOLDER, dir_fd=descriptor)
            except NotADirectoryError:
                raise NotADirectoryError(errno.ENOTDIR, "a link, which a store does not follow, or not a folder", path) from None
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor

    def status(self, path: str) -> os.stat_result:
        """Return the status of a file or folder, of a link its own."""
        folder, name = os.path.split(self._strip_protocol(path))
        at = self._folder(folder)
        try:
            return os.stat(name, dir_fd=at, follow_symlinks=False)
        finally:
            os.close(at)

    def rm_file(self, path: str) -> None:
        folder, name = os.path.split(self._strip_protocol(path))
        at = self._folder(folder)
        try:
            os.unlink(name, dir_fd=at)
        finally:
            os.close(at)

    def remove_empty_folders(self, path: str) -> None:
        """Remove a folder and those below it that hold no file."""
        folder, name = os.path.split(self._strip_protocol(path))
        with contextlib.suppress(OSError):
            at = self._folder(folder)
            try:
                for _, folders, _, below in os.fwalk(name, topdown=False, dir_fd=at):
                    for one in folders:
                        with contextlib.suppress(OSError):  # it holds something
                            os.rmdir(one, dir_fd=below)
                os.rmdir(name, dir_fd=at)
            finally:
                os.close(at)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002  # fsspec's own; a folder that is there is right
        os.close(self._folder(self._strip_protocol(path), make=True))

    def find(self, path: str, maxdepth: int | None = None, **more: Any) -> Any:
        return super().find(path, maxdepth=MAX_DEPTH if maxdepth is None else maxdepth, **more)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return what a file holds.

        Raises:
            OSError: it is none, or larger than any of a store's.
        """
        with self._open(path) as file:
            file.seek(start or 0)
            if end is None:
                return _whole(file, path)
            part: bytes = file.read(min(end - (start or 0), MAX_FILE_BYTES))
            return part

    def with_owner(self, path: str) -> tuple[int, bytes]:
        """Return the user whose file it is, and what it holds. Raises OSError as `cat_file`."""
        with self._open(path) as file:
            return os.fstat(file.fileno()).st_uid, _whole(file, path)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write a file. It appears whole or not at all; with the mode `create`, none is replaced."""
        folder, name = os.path.split(self._strip_protocol(path))
        at = self._folder(folder)
        try:
            write_whole(at, name, value, create=mode == "create")
        finally:
            os.close(at)


def _whole(file: Any, path: str) -> bytes:
    """Return the rest of a file. Raises OSError if it is larger than any of a store's."""
    size = os.fstat(file.fileno()).st_size
    data: bytes = file.read(min(size, MAX_FILE_BYTES) + 1)  # asked for more, Python takes memory for all of that, each time
    if len(data) > size:  # it has grown
        data += file.read(MAX_FILE_BYTES + 1 - len(data))
    if len(data) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_FILE_BYTES >> 20} MiB", path)
    return data
