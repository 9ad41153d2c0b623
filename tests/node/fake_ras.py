"""A fake of NCCL's RAS: the client side of its protocol as client_support.cc of NCCL 2.29 has it, for machines without a GPU."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any


class FakeRas(socketserver.ThreadingTCPServer):
    """Answers questions about `communicators`.

    Attributes:
        version: that it says it has. json: it knows SET FORMAT, as from 2.28.7 on. pause: seconds before it answers STATUS.
        commands: that it got, in their order. open: clients that are connected, and `most_open` at a time.
        raw: what it answers STATUS with, instead of a report.
    """

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Client)
        self.version = "2.29.1"
        self.json = True
        self.pause = 0.0
        self.raw: bytes | None = None
        self.communicators: list[dict[str, Any]] = []
        self.commands: list[str] = []
        self.open = self.most_open = 0
        self.lock = threading.Lock()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.server_address[:2]
        return str(host), int(port)

    def report(self) -> bytes:
        """Return the report as RAS prints it."""
        return (
            json.dumps(
                {
                    "nccl_version": self.version,
                    "cuda_runtime_version": 13000,
                    "cuda_driver_version": 13000,
                    "timestamp": time.strftime("%F %T"),
                    "communicators_count": len(self.communicators),
                    "communicators": self.communicators,
                    "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
                },
                indent=2,
            ).encode()
            + b"\n"
        )


class _Client(socketserver.StreamRequestHandler):
    server: FakeRas

    def handle(self) -> None:
        server = self.server
        with server.lock:
            server.open += 1
            server.most_open = max(server.most_open, server.open)
        try:
            with contextlib.suppress(OSError):
                for line in self.rfile:
                    command = line.strip().decode()
                    server.commands.append(command)
                    if not self._answer(command):
                        return
        finally:
            with server.lock:
                server.open -= 1

    def _answer(self, command: str) -> bool:
        """Answer a command; say whether the connection stays open. Commands are not case-sensitive."""
        words = command.lower().split()
        if words[:2] == ["client", "protocol"]:
            self.wfile.write(b"SERVER PROTOCOL 2\n")
        elif words[:1] == ["timeout"]:
            self.wfile.write(b"OK\n" if words[1].isdigit() else f"ERROR: Invalid timeout value {words[1]}\n".encode())
        elif words[:2] == ["set", "format"] and self.server.json:
            self.wfile.write(b"OK\n" if words[2] in ("json", "text") else f"ERROR: Invalid format {words[2]}\n".encode())
        elif words == ["status"]:
            time.sleep(self.server.pause)
            self.wfile.write(self.server.report() if self.server.raw is None else self.server.raw)
            return False
        else:
            self.wfile.write(f"ERROR: Unknown command {command}\n".encode())
        return True


@contextlib.contextmanager
def fake_ras() -> Iterator[FakeRas]:
    """Run a server for the length of the block."""
    with FakeRas() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def communicator(
    *counts: int, name: str = "0xae94423cfbb2ef4a", missing: dict[int, dict[str, bool]] | None = None
) -> dict[str, Any]:
    """Return a communicator whose ranks launched that many AllReduce each; `missing`: status of further ranks."""
    missing = missing or {}
    return {
        "hash": name,
        "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
        "size": len(counts) + len(missing),
        "ranks_count": len(counts),
        "missing_ranks_count": len(missing),
        "ranks": [_rank(place, count) for place, count in enumerate(counts)],
        "missing_ranks": [
            {"rank": place, "host": "172.16.64.245", "pid": 1000 + place, "cuda_dev": place, "nvml_dev": place, "status": status}
            for place, status in missing.items()
        ],
    }


def _rank(place: int, count: int) -> dict[str, Any]:
    return {
        "rank": place,
        "host": "172.16.64.245",
        "pid": 1000 + place,
        "cuda_dev": place,
        "nvml_dev": place,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False, "abort_flag": False},
        "collective_counts": {"Broadcast": 2, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": count},
    }
