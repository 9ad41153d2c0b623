"""Leaves a notice in a run's directory that its processes will be ended; `tachoscope.preempted()` finds it there."""

from __future__ import annotations

import contextlib
import os

import msgspec

from tachoscope_core.storage import spool


class Notice(msgspec.Struct, frozen=True):
    """Source of a notice (`sigterm`, `aws`, `gcp`, `azure`), its time, and the time of the end (0: unknown), in Unix seconds."""

    source: str
    time: float
    deadline: float = 0.0


def leave(notice: Notice, directory: int) -> bool:
    """Write the notice into an open directory, all at once; say whether that worked.

    Any user of the host may have made the directory, so nothing in it is followed.
    """
    partial = f".{spool.NOTICE}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=directory)  # of somebody who was killed in this
        descriptor = os.open(partial, flags, 0o644, dir_fd=directory)
        try:
            os.write(descriptor, msgspec.json.encode(notice))
        finally:
            os.close(descriptor)
        os.rename(partial, spool.NOTICE, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        return False
    return True
