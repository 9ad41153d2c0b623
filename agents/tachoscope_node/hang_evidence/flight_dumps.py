"""Has ranks write the dumps of PyTorch's flight recorder, and takes them.

NCCL's process group opens a pipe at `$TORCH_NCCL_DEBUG_INFO_PIPE_FILE<rank>.pipe`, where the job set that variable; a byte in it
makes the rank write its dump to `$TORCH_FR_DUMP_TEMP_FILE<rank>`
(https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html). gloo has no such pipe.
Names come from the process's environment and are foreign: only its user's own plain files are taken.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from tachoscope_core.errors import TachoscopeError

PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
FILE_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_FILE = "/tmp/nccl_trace_rank_"  # noqa: S108  # PyTorch's own default
DUMP_SECONDS = 15.0
MOST_BYTES = 64 << 20
_POLL_SECONDS = 0.2
_SETTLED_SECONDS = 1.0


def take_dump(pid: int, rank: int, proc: str = "/proc") -> bytes:
    """Return a new dump of a rank.

    Raises:
        TachoscopeError: the job has no pipe, or no dump came.
    """
    environ = _environment(pid, proc)
    stem = environ.get(PIPE_VARIABLE, "")
    if not stem:
        raise TachoscopeError(f"the job does not set {PIPE_VARIABLE} (NCCL only: gloo has no pipe)")
    uid = os.stat(f"{proc}/{pid}").st_uid
    root = f"{proc}/{pid}/root"
    asked = time.time()
    _ask(Path(f"{root}{os.path.abspath(stem)}{rank}.pipe"), uid)
    file = next((environ[name] for name in FILE_VARIABLES if environ.get(name)), DEFAULT_FILE)
    return _wait_for(Path(f"{root}{os.path.abspath(file)}{rank}"), uid, asked)


def _environment(pid: int, proc: str) -> dict[str, str]:
    try:
        content = Path(f"{proc}/{pid}/environ").read_bytes()
    except OSError as error:
        raise TachoscopeError(f"the environment of process {pid} cannot be read: {error.strerror}") from None
    pairs = (entry.decode(errors="replace").partition("=") for entry in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name == PIPE_VARIABLE or name in FILE_VARIABLES}


def _ask(pipe: Path, uid: int) -> None:
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISFIFO(status.st_mode) or status.st_uid != uid:
                raise TachoscopeError(f"{pipe.name} is not a pipe of the job's user")
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TachoscopeError(f"the pipe {pipe.name} of the flight recorder cannot be written: {error.strerror}") from None


def _wait_for(file: Path, uid: int, asked: float) -> bytes:
    """Return a file once it was written after `asked` and grows no longer."""
    deadline = time.monotonic() + DUMP_SECONDS
    size, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = time.monotonic()
        try:
            status = file.lstat()
        except OSError:
            status = None
        if status is not None and status.st_mtime >= asked - 1.0:
            if status.st_size != size:
                size, since = status.st_size, now
            elif size > 0 and now - since >= _SETTLED_SECONDS:
                return _content(file, uid)
        time.sleep(_POLL_SECONDS)
    raise TachoscopeError(f"no dump came at {file.name} within {DUMP_SECONDS:g} s")


def _content(file: Path, uid: int) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TachoscopeError(f"the dump {file.name} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise TachoscopeError(f"{file.name} is not a plain file of the job's user")
        if status.st_size > MOST_BYTES:
            raise TachoscopeError(f"the dump {file.name} is larger than {MOST_BYTES >> 20} MiB")
        return opened.read(MOST_BYTES)
