"""One supervisor at a time acts for a job on this machine: it has a lock.

The process that submits an attempt inherits it, so no second supervisor looks for the attempt before the engine knows of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tachoscope_core.storage.store import Store


def directory_of(store: Store, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of this user for the jobs of a store on this machine; it is made if it does not exist."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    directory = Path(state) / "tachoscope" / "training-jobs" / hashlib.sha256(store.url.encode()).hexdigest()[:12]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


@contextmanager
def held(directory: Path, name: str) -> Iterator[int | None]:
    """Hold the lock of a job, and yield its descriptor; None: another supervisor, or a process that submits for it, has it."""
    lock = os.open(_lock_path(directory, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield None
    else:
        os.truncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield lock
    finally:
        os.close(lock)


def supervisor_of(directory: Path, name: str) -> int | None:
    """Return the process id of a job's supervisor on this machine; None: it has none."""
    try:
        lock = os.open(_lock_path(directory, name), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(lock, 20, 0).strip()
        return int(pid) if pid.isdigit() and Path(f"/proc/{int(pid)}").exists() else None
    finally:
        os.close(lock)
    return None


def _lock_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.lock"
