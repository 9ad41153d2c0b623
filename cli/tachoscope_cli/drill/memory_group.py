"""A control group for a training that is to fill its memory: the memory of the rest of the machine is not touched."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tachoscope.process import control_group
from tachoscope.process.control_group import ControlGroup
from tachoscope_core.errors import TachoscopeError

_FIX = "run the drill as root on a machine whose kernel counts memory by control group"
_REMOVE_SECONDS = 5.0
_LOOK_SECONDS = 0.05


@contextmanager
def created(own: ControlGroup | None = None) -> Iterator[ControlGroup]:
    """Make a control group without a limit for the length of the block; what is in it afterwards is killed.

    Args:
        own: that of this process, below which it is made on version 1; None: it is looked up.

    Raises:
        TachoscopeError: the kernel counts no memory, or refuses the group.
    """
    own = own or control_group.memory_group()
    if own is None:
        raise TachoscopeError("no control group of this machine counts memory, which this drill limits", fix=_FIX)
    # On version 2 a group that has processes has no groups below it that count memory; only the root may have both.
    group = own._replace(path=f"{'' if own.unified else own.path.rstrip('/')}/tachoscope-drill-{os.getpid()}")
    folder = Path(group.folder)
    try:
        folder.mkdir()
    except OSError as error:
        raise _refused(folder, error) from error
    try:
        if control_group.memory_of(group) is None:
            raise TachoscopeError(f"the kernel counts no memory in {folder}, where this drill limits it", fix=_FIX)
        yield group
    finally:
        _remove(folder)


def join(group: ControlGroup, pid: int) -> None:
    """Move a process into a group; what it starts from now on is in it, too."""
    with contextlib.suppress(ProcessLookupError):  # who waits for it says what it said last
        (Path(group.folder) / "cgroup.procs").write_text(str(pid))


def leave_room(group: ControlGroup, room_bytes: int) -> int:
    """Set the limit of a group so many bytes above what its processes hold; return it, in bytes.

    Raises:
        TachoscopeError: what they hold cannot be read, or the kernel refuses the limit.
    """
    held = control_group.memory_of(group)
    if held is None:
        raise TachoscopeError(f"cannot read the memory of the control group {group.folder}")
    limit_bytes = held.anonymous_bytes + held.shared_bytes + room_bytes
    limit(group, limit_bytes)
    return limit_bytes


def limit(group: ControlGroup, limit_bytes: int) -> None:
    """Set the limit of a group.

    Raises:
        TachoscopeError: the kernel refuses it.
    """
    path = Path(group.folder) / ("memory.max" if group.unified else "memory.limit_in_bytes")
    try:
        path.write_text(str(limit_bytes))
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> TachoscopeError:
    return TachoscopeError(f"this drill limits the memory of a training, but {path} cannot be written: {error.strerror}", fix=_FIX)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVE_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(_LOOK_SECONDS)
