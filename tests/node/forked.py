"""Processes of `tachoscope` that are forked from one that has imported what they import, which else takes most of a short life.

Each is a process as `subprocess` begins it: with its own environment, standard streams and signals, and an end of its own. What is
about a start, imports or memory needs one that is executed.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

IMPORTED = (
    "tachoscope_cli.commands.agent",
    "tachoscope_cli.commands.watch",
    "tachoscope_node.service",
    "tachoscope_watch.service",
    "pynvml",
)
_MOST_BYTES = 200_000


class Forked:
    """A process that was forked to run `tachoscope` with these words; used like a `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], *, stderr: int) -> None:
        self._origin = _origin()
        self.pid: int = self._origin.ask({"words": list(words), "environ": dict(environ)}, stderr)
        self.returncode: int | None = None
        self._handle = os.pidfd_open(self.pid)  # it is not reaped before it was waited for
        self._poll = select.poll()  # unlike select(), also where there are a thousand other files
        self._poll.register(self._handle, select.POLLIN)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["tachoscope"], timeout or 0.0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and self._poll.poll(None if seconds is None else seconds * 1000):
            self.returncode = self._origin.ask({"ended": self.pid})
            os.close(self._handle)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Origin:
    """The process that others are forked from. It has one thread and ends with this one."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        command = [sys.executable, str(Path(__file__)), str(its.fileno())]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()])
        its.close()
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], *descriptors: int) -> int:
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        answer = self._socket.recv(100)
        if not answer:
            raise RuntimeError("the process that others are forked from has ended")
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_origin = functools.cache(_Origin)


def _serve(connection: socket.socket) -> None:
    """Fork, and tell exit codes, until the other end is closed; in a forked process return never."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 1)
        if not data:
            return
        request = json.loads(data)
        if "ended" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
        elif not (answer := os.fork()):
            connection.close()
            _run(request["words"], request["environ"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(answer).encode())


def _run(words: list[str], environ: dict[str, str], descriptors: list[int]) -> NoReturn:
    for descriptor in descriptors:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    # The loader read this before: who asks for such a library by its name gets the one that is loaded.
    for folder in environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        for library in Path(folder).glob("*.so.*") if folder else ():
            ctypes.CDLL(str(library))
    from tachoscope_cli.main import main

    main(words)
    raise AssertionError("it exits")


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
