"""Writes a file into an open folder that other users may write to: whole or not at all, and without following a link."""

from __future__ import annotations

import contextlib
import os
import uuid


def write_whole(folder: int, name: str, data: bytes, *, mode: int | None = None, create: bool = False) -> None:
    """Write a file, or replace it. Only the whole one has its name: two writers at the same time cannot mix.

    Args:
        folder: a descriptor of the folder. mode: of the file; None: what the umask allows. create: do not replace one.

    Raises:
        OSError: it cannot be written, or another user owns the one that is there; FileExistsError: with `create`, one is there.
    """
    temporary = f".{name}-{uuid.uuid4()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        if create:
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            os.unlink(temporary, dir_fd=folder)
        else:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
