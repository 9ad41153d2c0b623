"""What one agent alone may have, the spool and the state directory: a lock in each, in which its holder says who it is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import spool


def take_spool(root: Path) -> int:
    """Make the spool if need be and take its lock; return the lock's descriptor.

    Raises:
        TachoscopeError: another agent uses the spool, or it cannot be opened.
    """
    try:
        if os.geteuid() == 0:
            _take_over(root)
        spool.make_root(root)
        lock = spool.try_lock(root / spool.AGENT_LOCK, mode=0o644)
    except OSError as error:
        raise TachoscopeError(f"could not open the spool {root}: {error.strerror}", fix="choose another with spool:") from None
    if lock is None:
        fix = "stop it, or choose another with spool:"
        raise TachoscopeError(f"another agent uses the spool {root}{_holder(root)}", fix=fix)
    return lock


def _take_over(root: Path) -> None:
    """Make a spool root's that another user made first, and a lock in it free that is not of root's: any user could keep us out."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if os.fstat(descriptor).st_uid != 0:
            os.fchown(descriptor, 0, 0)
            os.fchmod(descriptor, 0o1777)
        with contextlib.suppress(FileNotFoundError):
            if os.stat(spool.AGENT_LOCK, dir_fd=descriptor, follow_symlinks=False).st_uid != 0:
                os.unlink(spool.AGENT_LOCK, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def take_state(directory: Path) -> int:
    """Make the state directory if need be and take its lock: two agents would take up, and overwrite, each other's jobs.

    Raises:
        TachoscopeError: another agent has it, or it cannot be opened.
    """
    fix = "choose another directory with state:"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = spool.try_lock(directory / spool.AGENT_LOCK)
    except OSError as error:
        raise TachoscopeError(f"could not open the state directory {directory}: {error.strerror}", fix=fix) from None
    if lock is None:
        raise TachoscopeError(f"another agent uses the state directory {directory}{_holder(directory)}", fix=f"stop it, or {fix}")
    return lock


def write_holder(lock: int, agent: spool.LiveAgent) -> None:
    """Write into a lock file that one holds who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, msgspec.json.encode(agent), 0)


def _holder(directory: Path) -> str:
    other = spool.live_agent(directory)
    return f", process {other.pid}, {other.url}" if other else ""
