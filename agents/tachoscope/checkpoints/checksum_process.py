"""A process of the lowest priority that takes checksums, for a training process that must not be held up by them.

Not a thread of that process: one of low priority waits long for a core on a busy host, and whoever hands it the interpreter's lock
waits with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import msgspec

import tachoscope_core
from tachoscope_core.checkpoints.checksums import open_file_checksum
from tachoscope_core.records.records import ShardSum

_START = "import sys; sys.path[:0] = sys.argv[1:]; from tachoscope.checkpoints.checksum_process import main; main()"


def start() -> subprocess.Popen[bytes]:
    """Start the process: it reads paths from its input, as JSON, and answers with a list of `ShardSum`, or fails without a word.

    It imports neither the job's modules nor its `sitecustomize`, and ends when its parent does.

    Raises:
        OSError: it cannot be started.
    """
    others = [str(Path(str(package.__file__)).parents[1]) for package in (tachoscope_core, msgspec)]
    places = [str(Path(__file__).parents[2]), *others]  # where `tachoscope` is
    command = [sys.executable, "-I", "-S", "-c", _START, *dict.fromkeys(places)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/")
    _lowest_priority_of(process.pid)  # from here: until it could do that itself it would have started Python beside the job
    return process


def request_checksums(process: subprocess.Popen[bytes], paths: Sequence[str]) -> list[ShardSum]:
    """Return sizes and checksums of the files at absolute paths, in their order.

    Raises:
        OSError: one of them could not be read, or changed meanwhile.
    """
    answer, _ = process.communicate(msgspec.json.encode(list(paths)))
    if process.returncode:
        raise OSError(f"no checksums of {', '.join(paths)}")
    return msgspec.json.decode(answer, type=list[ShardSum])


def main() -> None:
    """Read a JSON list of paths from stdin, write size and SHA-256 of each to stdout; end with the parent."""
    parent = os.getppid()
    _lowest_priority()

    def end_with_parent(_: int) -> None:
        if os.getppid() != parent:
            os._exit(1)  # at once: the thread that reads ahead may wait for a storage that does not answer

    shards = []
    for path in msgspec.json.decode(sys.stdin.buffer.read(), type=list[str]):
        with FileIO(path) as file:
            shards.append(open_file_checksum(file, on_bytes=end_with_parent))
    sys.stdout.buffer.write(msgspec.json.encode(shards))


_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
"""Number of this system call, for which libc has no function: Linux's syscall_64.tbl and asm-generic/unistd.h."""
_IOPRIO_IDLE = 3 << 13
"""`IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0)`, linux/include/uapi/linux/ioprio.h."""


def _lowest_priority() -> None:
    """Run at the lowest CPU and I/O priority that the system offers."""
    _lowest_priority_of(0)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)


def _lowest_priority_of(pid: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
