"""TCP through the kernel of this host, without a network: what slows all networks down shows here, too."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tachoscope_core.storage.preflights import Measurement
from tachoscope_preflight.hardware import cpu
from tachoscope_preflight.repeat import Effort, failed, measured, rates

BANDWIDTH = "loopback_bytes_per_second"
ROUND_TRIPS = "loopback_round_trips_per_second"
_CHUNK = 4 << 20
_PATIENCE_SECONDS = 10.0


def measure(effort: Effort) -> Iterator[Measurement]:
    """Yield bandwidth with an acknowledged chunk at a time, and round trips of one byte."""
    for name, size in ((BANDWIDTH, _CHUNK), (ROUND_TRIPS, 1)):
        try:
            with _echo(size) as (connection, data):
                units = float(size) if name == BANDWIDTH else 1.0
                found = rates(lambda: _round_trip(connection, data), units, effort)  # called before the next one
            yield measured(name, found, comparable_with=cpu())
        except OSError as error:
            yield failed(name, f"127.0.0.1: {error.strerror or error}", broken=True)


def _round_trip(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    if not connection.recv(1):
        raise ConnectionResetError("the connection ended")


@contextlib.contextmanager
def _echo(size: int) -> Iterator[tuple[socket.socket, bytes]]:
    """Give a connection whose other end answers each `size` bytes with one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_PATIENCE_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=_PATIENCE_SECONDS) as connection:
            other, _ = server.accept()
            thread = threading.Thread(target=_answer, args=(other, size), daemon=True)
            thread.start()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                yield connection, bytes(size)
            finally:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join(_PATIENCE_SECONDS)


def _answer(connection: socket.socket, size: int) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        room = memoryview(bytearray(min(size, 1 << 20)))
        left = size
        while count := connection.recv_into(room[: min(left, len(room))]):
            left -= count
            if not left:
                connection.send(b"!")
                left = size
