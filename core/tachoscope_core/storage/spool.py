"""The spool: where processes append records and from where they are shipped.

The spool of a node belongs to root, and every user may make directories in it, which are for that user alone; where root made none,
each user has an own one. What lies in a directory is the word of the user who owns the files, and of nobody else (SECURITY.md).

Layout: `<root>/<run>/<writer>-<number>.jsonl`, one writer a process. A live writer holds a shared lock on each of its
segments. Whoever ships what lies in `<run>` (the node agent, or else `tachoscope run`) holds `<run>/shipper.lock` for as long as it
does, so that two never ship the same. A live agent holds `<root>/agent.lock`, in which it says where it ships to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

SEGMENT_SUFFIX = ".jsonl"
_SEGMENT_NAME = re.compile(rf"(?P<writer>[0-9a-f-]{{1,64}})-(?P<number>[0-9]{{6,9}}){re.escape(SEGMENT_SUFFIX)}")
SHIPPER_LOCK = "shipper.lock"
AGENT_LOCK = "agent.lock"
NOTICE = "notice.json"
"""In a run's directory: a notice that its processes will be ended, `{"source", "time", "deadline"}`, in Unix seconds."""
ASKS = "asks"
"""In a run's directory: a process of the run asks for such notices, and ends by itself after one."""
PYTHON, FOREIGN_PYTHON = "python", "python-without-tachoscope"
FRAMEWORKS = ("torch", "jax", "tensorflow", "paddle", "mxnet")
LOADED = {name: f"loaded-{name}" for name in (PYTHON, FOREIGN_PYTHON, *FRAMEWORKS)}
"""In a run's directory: empty files, each there if a process of the run loaded it: an interpreter under the probe, one that cannot
import tachoscope, and frameworks."""
RUN_FILES = (SHIPPER_LOCK, NOTICE, ASKS, *LOADED.values())
"""What lies in a run's directory beside segments, and goes with the last of them; so do those of `FAULT_PREFIX`."""
FAULT_PREFIX = "fault-"
"""In a run's directory: before a process id, a file in which Python writes its stack when a signal ends the process."""
POD_MARK = ".pod"
"""Left by a pod in the directory that is mounted into it: the pod could not make that directory again."""
ROOT_VARIABLE = "TACHOSCOPE_SPOOL"
MAX_SEGMENT_BYTES = 1 << 32
"""A segment is never longer, so that number and offset together make one offset within all that a writer wrote."""


def default_root() -> Path:
    """Return `$TACHOSCOPE_SPOOL`, else the node's on a tmpfs, so that an append never waits for a disk, else the user's own."""
    configured = os.environ.get(ROOT_VARIABLE)
    if configured:
        return Path(configured)
    shared_memory = Path("/dev/shm")  # noqa: S108  # a directory of our own is made inside it, without following links
    parent = shared_memory if shared_memory.is_dir() else Path(tempfile.gettempdir())
    user = os.geteuid()
    shared = parent / "tachoscope"
    if user == 0 or (_owner(shared) == 0 and os.access(shared, os.W_OK)):
        return shared
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(runtime) / "tachoscope" if runtime and _owner(Path(runtime)) == user else parent / f"tachoscope-{user}"


def _owner(directory: Path) -> int | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_uid if stat.S_ISDIR(status.st_mode) else None


def make_root(root: Path) -> None:
    """Make the spool if it is not there: root's is for every user, like /tmp, another's for that user alone.

    Raises:
        OSError: it cannot be made, or belongs to another user than root and this one, who could then replace what lies in it.
    """
    with contextlib.suppress(FileExistsError):
        root.mkdir(parents=True, mode=0o700)
        if os.geteuid() == 0:
            root.chmod(0o1777)
    owner = root.stat().st_uid
    if owner not in {0, os.geteuid()}:
        raise PermissionError(errno.EPERM, f"it belongs to user {owner}, neither to this one nor to root", str(root))


def make_directory(directory: Path) -> None:
    """Make a directory in the spool, for this user alone, if it is not there.

    Raises:
        OSError: as `make_root`.
    """
    if not directory.is_dir():
        make_root(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)


def segment_name(writer: str, number: int) -> str:
    """Return the file name of a writer's segment; names of one writer sort in the order of writing."""
    return f"{writer}-{number:06d}{SEGMENT_SUFFIX}"


def writer_and_number(path: Path) -> tuple[str, int]:
    """Return what `segment_name` put together.

    Raises:
        ValueError: not the name of a segment.
    """
    match = _SEGMENT_NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not a segment name")
    return match["writer"], int(match["number"])


def offset_of_writer(number: int, offset: int) -> int:
    """Return the place of an offset within a segment, in the order of all that its writer wrote."""
    return number * MAX_SEGMENT_BYTES + offset


def segments(directory: Path) -> Iterator[Path]:
    """Yield all segments below `directory`, ordered by name; links are not followed."""
    for path in sorted(directory.rglob(f"*{SEGMENT_SUFFIX}")):
        if not path.is_symlink() and path.is_file():
            yield path


def is_locked(path: Path) -> bool:
    """Return whether a live process holds the lock on `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def try_lock(path: Path | str, *, mode: int = 0o600, dir_fd: int | None = None) -> int | None:
    """Take the lock file `path`, made if need be; return its descriptor (to close is to release), or None if another has it.

    Args:
        mode: of the file, if it is made. dir_fd: descriptor of the directory that `path` is relative to.

    Raises:
        OSError: the file cannot be made or opened.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=dir_fd)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another file of that name: its last owner removed the one that is open here meanwhile.
        taken = os.fstat(descriptor).st_ino == os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
    except BlockingIOError:
        taken = False
    except OSError:
        os.close(descriptor)
        raise
    if not taken:
        os.close(descriptor)
        return None
    return descriptor


class LiveAgent(msgspec.Struct, frozen=True):
    """What a live agent says of itself in its lock file."""

    pid: int
    store: str
    url: str
    """Where it serves metrics, `http://127.0.0.1:9465`."""


def live_agent(root: Path) -> LiveAgent | None:
    """Return the agent that ships what lies in this spool, or None. Only root's word counts, and the user's own."""
    path = root / AGENT_LOCK
    with contextlib.suppress(OSError, msgspec.DecodeError):
        if path.lstat().st_uid in {0, os.geteuid()} and is_locked(path):
            return msgspec.json.decode(path.read_bytes(), type=LiveAgent)
    return None
