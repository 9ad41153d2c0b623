"""Has ranks write the dumps of PyTorch's flight recorder, and takes them; without a pipe from PyTorch's worker server.

NCCL's process group opens a pipe at `$TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe`, where the job set that variable; a byte in it
makes the rank write its dump to `$TORCH_FR_DUMP_TEMP_FILE<rank>`
(https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html). gloo has no such pipe: see `worker_server`.
Names come from the process's environment and are foreign: only its user's own plain files are taken, within the process's own root.
"""

from __future__ import annotations

import os
import stat
import threading
import time

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.hang_evidence import worker_server
from tachoscope_node.hang_evidence.job_files import JobRoot
from tachoscope_node.hang_evidence.rank_processes import ProcessTable, SeenProcess

PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILE_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_READ = (PIPE_VARIABLE, worker_server.SOCKET_VARIABLE, *FILE_VARIABLES)
DEFAULT_FILE = "/tmp/nccl_trace_rank_"  # noqa: S108  # PyTorch's own default
DUMP_SECONDS = 15.0
MOST_BYTES = 64 << 20
"""Of all ranks of a node together: they are in memory until they are stored."""
_MOST_ENVIRONMENT = 8 << 20
"""More than the kernel gives a program; a process can say that its environment is any part of its memory."""
_POLL_SECONDS = 0.2
_SETTLED_SECONDS = 1.0


class DumpRoom:
    """How many bytes dumps may still take. Used by several threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._left = most_bytes, most_bytes
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        return self._left

    def take(self, size: int, name: str) -> None:
        """Take room for a dump. Raises TachoscopeError: there is none."""
        with self._lock:
            if size > self._left:
                whose = f"the dump {name} of {size >> 20} MiB is left out: dumps of a node take {self._most >> 20} MiB at most"
                raise TachoscopeError(whose)
            self._left -= size


def take_dump(seen: SeenProcess, rank: int, uid: int | None, table: ProcessTable, room: DumpRoom) -> bytes:
    """Return a new dump of a rank.

    Args:
        uid: whose pipe and file they must be; None: the process's own.

    Raises:
        TachoscopeError: the job has no pipe, or no dump came. OSError: the process is gone, or may not be looked at.
    """
    environ = _environment(seen.pid, table.proc)
    stem, server = environ.get(PIPE_VARIABLE, ""), environ.get(worker_server.SOCKET_VARIABLE, "")
    if not stem and not server:
        raise TachoscopeError(
            f"the job sets neither {PIPE_VARIABLE} (NCCL only: gloo has no pipe) nor {worker_server.SOCKET_VARIABLE}"
        )
    owner = os.stat(f"{table.proc}/{seen.pid}").st_uid if uid is None else uid
    folder = os.readlink(f"{table.proc}/{seen.pid}/cwd")
    root = JobRoot(seen.pid, table.proc)
    try:
        if not table.is_there(seen):
            raise TachoscopeError("the rank's process ended")
        if not stem:
            return _from_server(root, os.path.join(folder, server), owner, seen.pid, room)
        asked = time.time()
        _ask(root, os.path.join(folder, f"{stem}{rank}.pipe"), owner)
        file = next((environ[name] for name in FILE_VARIABLES if environ.get(name)), DEFAULT_FILE)
        return _wait_for(root, os.path.join(folder, f"{file}{rank}"), owner, asked, room)
    finally:
        root.close()


def _from_server(root: JobRoot, path: str, uid: int, pid: int, room: DumpRoom) -> bytes:
    name = os.path.basename(path)
    try:
        content = worker_server.recorded(root, path, uid, pid, room.left, DUMP_SECONDS)
    except OSError as error:
        raise TachoscopeError(f"the worker server at {name} does not answer: {error.strerror or error}") from None
    room.take(len(content), name)
    return content


def _environment(pid: int, proc: str) -> dict[str, str]:
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            content = file.read(_MOST_ENVIRONMENT)
    except OSError as error:
        raise TachoscopeError(f"the environment of process {pid} cannot be read: {error.strerror}") from None
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name in _READ}


def _ask(root: JobRoot, pipe: str, uid: int) -> None:
    try:
        with root.opened(pipe, os.O_WRONLY, stat.S_IFIFO, uid) as descriptor:
            os.write(descriptor, b"1")
    except OSError as error:
        name = os.path.basename(pipe)
        raise TachoscopeError(f"the pipe {name} of the flight recorder cannot be written: {error.strerror}") from None


def _wait_for(root: JobRoot, file: str, uid: int, asked: float, room: DumpRoom) -> bytes:
    """Return a file once it was written after `asked` and grows no longer."""
    deadline = time.monotonic() + DUMP_SECONDS
    size, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = time.monotonic()
        try:
            status = root.status(file)
        except OSError:
            status = None
        if status is not None and status.st_mtime >= asked - 1.0:
            if status.st_size != size:
                size, since = status.st_size, now
            elif size > 0 and now - since >= _SETTLED_SECONDS:
                return _content(root, file, uid, room)
        time.sleep(_POLL_SECONDS)
    raise TachoscopeError(f"no dump came at {os.path.basename(file)} within {DUMP_SECONDS:g} s")


def _content(root: JobRoot, file: str, uid: int, room: DumpRoom) -> bytes:
    name = os.path.basename(file)
    try:
        with root.opened(file, os.O_RDONLY, stat.S_IFREG, uid) as descriptor, open(descriptor, "rb", closefd=False) as opened:
            size = os.fstat(descriptor).st_size
            room.take(size, name)
            content = opened.read(size + 1)
    except OSError as error:
        raise TachoscopeError(f"the dump {name} cannot be read: {error.strerror}") from None
    if len(content) != size:
        raise TachoscopeError(f"the dump {name} changed while it was read")
    return content
