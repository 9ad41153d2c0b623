"""What one agent alone may have, the spool and the state directory: a lock in each, in which its holder says who it is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tachoscope_core import spool
from tachoscope_core.errors import TachoscopeError


def take_spool(root: Path) -> int:
    """Make the spool if need be and take its lock; return the lock's descriptor.

    Raises:
        TachoscopeError: another agent serves the spool, or it cannot be opened.
    """
    try:
        if not root.exists():
            root.mkdir(parents=True)
            root.chmod(0o1777)  # like /tmp: every user's runs, none can remove another's
        lock = spool.try_lock(root / spool.AGENT_LOCK, mode=0o644)
    except OSError as error:
        raise TachoscopeError(f"could not open the spool {root}: {error.strerror}", fix="choose another with spool:") from None
    if lock is None:
        fix = "stop it, or choose another with spool:"
        raise TachoscopeError(f"another agent serves the spool {root}{_holder(root)}", fix=fix)
    return lock


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
        raise TachoscopeError(f"another agent has the state directory {directory}{_holder(directory)}", fix=f"stop it, or {fix}")
    return lock


def say_who(lock: int, agent: spool.LiveAgent) -> None:
    """Write into a lock file that one holds who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, msgspec.json.encode(agent), 0)


def _holder(directory: Path) -> str:
    other = spool.live_agent(directory)
    return f", process {other.pid}, {other.url}" if other else ""
