"""Processes of a run: forked from one that has imported torch already, and never left behind.

Importing torch takes 3 to 5 s a process and is the same in every run. A child forked before torch computed anything has no thread
of another process in it, and becomes a rank as any other: the probe starts in it, not before.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
NEW_NETWORK = 0x40000000


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def adopt_orphans() -> None:
    """Make this process the parent of whatever its descendants leave behind, so that `end_all` finds it."""
    _checked(_LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends, however that ends."""
    _checked(_LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "prctl")


def unshare(flags: int) -> None:
    """Move the calling thread into new namespaces. Raises OSError without the right to."""
    _checked(_LIBC.unshare(flags), "unshare")


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread into the namespace of an open descriptor."""
    _checked(_LIBC.setns(descriptor, 0), "setns")


def fork(target: Callable[..., None], *arguments: Any, helper: bool = False) -> ForkProcess:
    """Start a child that runs `target` and dies with this process; a `helper` is ended when this process is done."""
    process = multiprocessing.get_context("fork").Process(target=_child, args=(target, arguments), daemon=helper)
    process.start()
    return process


def _child(target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the lab ends its ranks itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    target(*arguments)


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = (entry / "stat").read_bytes().rpartition(b") ")[2].split()
                if fields[0] != b"Z":
                    found[int(entry.name)] = int(fields[1])
    return found


def descendants() -> set[int]:
    """Return the processes below this one that still run."""
    parents, found = _parents(), {os.getpid()}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def end_all(patience_seconds: float = 10.0) -> None:
    """Kill every descendant, the stopped ones too, and wait until none is left.

    Raises:
        RuntimeError: one does not go.
    """
    stop_after_fault = time.monotonic() + patience_seconds
    while left := descendants():
        if time.monotonic() > stop_after_fault:
            raise RuntimeError(f"processes {sorted(left)} do not end")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    multiprocessing.active_children()  # reaps what multiprocessing started
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
