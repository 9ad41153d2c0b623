"""The file in the run's directory into which `faulthandler` writes where this process was when a signal ended it.

That works while the interpreter's lock is held or native code runs, and it leaves nothing on the terminal. SIGTERM is followed as
well: with it a launcher ends the ranks that are left after a failure, and a rank that hung says so where it was. SIGKILL leaves
nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from typing import IO

from tachoscope.failures.exit_timer import ExitTimer
from tachoscope_core.native import native
from tachoscope_core.storage import spool

_MOST_LETTERS = 1000
_held: list[IO[bytes]] = []
"""Kept open: `faulthandler` holds the descriptor, but not the file."""


def open_own(directory: str) -> None:
    """Have the stacks of this process written into a file of the directory when a signal ends it.

    Where the job uses `faulthandler` for itself, now or later, both write, or without the native module only the job. Where
    SIGTERM is handled, that is left as it is.

    Raises:
        OSError: the file cannot be made.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(_path(directory), flags, 0o600), "wb", buffering=0)
    _held.append(file)
    if not _has_faults_dumped(file) and not faulthandler.is_enabled():
        faulthandler.enable(file, all_threads=True)
    ExitTimer(file).install()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        faulthandler.register(signal.SIGTERM, file, all_threads=True, chain=True)
        # A forked loader worker is ended by SIGTERM every time, and the file is not its own.
        os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))


def remove_own(directory: str) -> None:
    """Remove the file of this process, which ends in order."""
    with contextlib.suppress(OSError):
        os.unlink(_path(directory))


def leave_worker_exit(directory: str, place: str) -> None:
    """Write into a file of its own where the code was with which a loader worker ends itself; its rank takes it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(_worker_path(directory, os.getpid()), flags, 0o600), "w") as file:
        file.write(place)


def take_worker_exit(directory: str, pid: int) -> str:
    """Read and remove what a loader worker left; empty: nothing."""
    path = _worker_path(directory, pid)
    with contextlib.suppress(OSError, ValueError), open(path) as file:
        text = file.read(_MOST_LETTERS)
        os.unlink(path)
        return text
    return ""


def _has_faults_dumped(file: IO[bytes]) -> bool:
    """Install the native handler of faults; return False if it is not available, or no signal is free for it."""
    native_faults = native("tachoscope.failures.native_faults").module
    number = native_faults.free_signal() if native_faults is not None else 0
    if not number:
        return False
    faulthandler.register(number, file, all_threads=True)
    native_faults.install(file.fileno(), number)
    return True


def _worker_path(directory: str, pid: int) -> str:
    return os.path.join(directory, f"{spool.FAULT_PREFIX}worker-{pid}")


def _path(directory: str) -> str:
    return os.path.join(directory, f"{spool.FAULT_PREFIX}{os.getpid()}")
