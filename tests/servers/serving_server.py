"""Servers of tests, as processes of their own, and the records that they left."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from helpers import environment
from processes import free_port
from tachoscope.spool.ship import ship_left_behind
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

SERVERS = Path(__file__).parent


@contextlib.contextmanager
def served(tmp_path: Path, *options: str, app: str = "serving_app:app") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run an app under uvicorn; yield the process and its port once it answers, and end it with SIGTERM."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning", *options]
    with running(tmp_path, command, port) as server:
        yield server, port


@contextlib.contextmanager
def running(
    tmp_path: Path, command: Sequence[str], port: int, *, ending: signal.Signals = signal.SIGTERM
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server; yield its process once it answers, and end it with a signal."""
    server = subprocess.Popen(command, cwd=SERVERS, env=environment(tmp_path), stderr=(tmp_path / "server.err").open("ab"))
    try:
        until_it_answers(server, port)
        yield server
    finally:
        if server.poll() is None:
            server.send_signal(ending)
        server.wait(timeout=120)


def until_it_answers(server: subprocess.Popen[bytes], port: int, *, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and server.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"the server does not answer, exit status {server.poll()}")


def post(port: int, body: object = None, *, raw: bytes | None = None, path: str = "/v1/completions") -> socket.socket:
    """Send a POST and return its socket, to read the answer from, or to close before it came."""
    data = json.dumps(body).encode() if raw is None else raw
    client = socket.create_connection(("127.0.0.1", port), timeout=120)
    client.sendall(
        b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data
    )
    return client


def read_all(client: socket.socket) -> bytes:
    """Return the whole answer, and close the socket."""
    with client:
        parts = []
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def ask(port: int, body: object = None, *, raw: bytes | None = None, path: str = "/v1/completions") -> bytes:
    """Send a POST and return the whole answer."""
    return read_all(post(port, body, raw=raw, path=path))


def counts(port: int) -> dict[str, Any]:
    """Return what `serving_app.counts` says."""
    with urlopen(f"http://127.0.0.1:{port}/counts", timeout=120) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def until_none_is_in_flight(port: int, *, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while counts(port)["in_flight"]:
        assert time.monotonic() < end, "requests are still in flight"
        time.sleep(0.02)


def stored(tmp_path: Path, job: str = "chat") -> list[records.AnyRecord]:
    """Return all records of a service, also those that a process left in the spool; by writer, in the order of writing."""
    store = Store(str(tmp_path / "store"))
    ship_left_behind(tmp_path / "spool", store)
    lines = [line for segment in store.segments(job) for line in store.read(segment).splitlines()]
    return sorted((records.decode(line) for line in lines), key=lambda record: (record.writer, record.seq))


def requests_in(rows: Sequence[records.AnyRecord]) -> list[records.RequestDone]:
    """Return the requests among records, by their end; each is there once."""
    found = [row for row in rows if isinstance(row, records.RequestDone)]
    assert len({row.request for row in found}) == len(found)
    for row in found:
        assert all(seconds >= 0 for seconds in row.phase_seconds.values())
        assert sum(row.phase_seconds.values()) <= row.wall_seconds + 1e-9
    return sorted(found, key=lambda row: row.time)
