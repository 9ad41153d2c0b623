"""A fake of torch's profiler as a daemon sees it: it asks over a real socket, and writes the trace it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = struct.Struct("=Q32s")


def asking(pid: int, *ancestors: int, takes: int = 3) -> bytes:
    """Return the datagram that asks what to record."""
    pids = (pid, *ancestors)
    body = struct.pack(f"=iiq{len(pids)}i", takes, len(pids), 0, *pids)
    return HEAD.pack(len(body), b"req") + body


def context(pid: int) -> bytes:
    """Return the datagram that registers a process for GPU 0."""
    return HEAD.pack(16, b"ctxt") + struct.pack("=iiq", 0, pid, 0)


def text_of(answer: bytes) -> str:
    """Return the configuration in an answer."""
    size, kind = HEAD.unpack_from(answer)
    assert (size, kind.rstrip(b"\0")) == (len(answer) - HEAD.size, b"req")
    return answer[HEAD.size :].decode()


def settings(text: str) -> dict[str, str]:
    """Return a configuration by key."""
    return dict(line.split("=", 1) for line in text.splitlines())


class Client:
    """A socket of a process that asks at the daemon of a directory; as kineto's it is not connected."""

    def __init__(self, directory: Path, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(directory / name))
        self.socket.settimeout(60)
        self.daemon = str(directory / "dynolog")

    def send(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self.daemon)

    def receive(self) -> bytes:
        return self.socket.recv(4096)


@contextlib.contextmanager
def client(directory: Path, name: str = "dynoconfigclient-1") -> Iterator[Client]:
    """Yield a process's side."""
    made = Client(directory, name)
    with made.socket:
        yield made


def short_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder whose path is short enough for a socket in it."""
    return tempfile.TemporaryDirectory(prefix="tk")


def trace(step_seconds: float, seconds: float, pid: int = 1) -> dict[str, Any]:
    """Return a trace as kineto writes it, of a loop whose optimizer steps so often."""
    count = round(seconds / step_seconds - 0.4)
    base = 4577161034185.086
    marks = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "Optimizer.step#SGD.step",
            "pid": pid,
            "tid": pid,
            "ts": base + (number + 0.9) * step_seconds * 1e6,
            "dur": 100.0,
            "args": {"External id": number},
        }
        for number in range(count)
    ]
    return {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 1790857026000000000, "traceEvents": marks}


def write_trace(told: dict[str, str], pid: int, step_seconds: float) -> Path:
    """Write the trace that a configuration asks for, its name last, as kineto does."""
    file = Path(told["ACTIVITIES_LOG_FILE"])
    path = file.with_name(f"{file.stem}_{pid}{file.suffix}")
    found = trace(step_seconds, int(told["ACTIVITIES_DURATION_MSECS"]) / 1e3, pid)
    path.write_text(json.dumps(found | {"traceName": str(path)}, indent=2))
    os.chown(path, file.parent.stat().st_uid, -1)
    return path
