"""One unary gRPC call over a unix socket, with a deadline and a limit of size.

By h2 and not by grpcio, which for one small call in ten seconds would cost the agent 20 MiB of memory and six threads, and 32 MiB
after an answer of 3.5 MB (h2: 3 MiB). A connection lives for one call, so a server that was started again breaks nothing.
Compared with grpcio and, by hand, against grpc-go, which the kubelet is made with.
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import H2Error
from h2.settings import SettingCodes

_STREAM = 1
_PREFIX_BYTES = 5
"""Before each message: one byte says whether it is compressed, four how long it is."""
_READ_BYTES = 1 << 18
_Headers = Iterable[tuple[bytes | str, bytes | str]]


class CallError(Exception):
    """The call failed; the text has the reason and the socket's path."""


def call(path: str, method: str, request: bytes, *, deadline_seconds: float, max_bytes: int) -> bytes:
    """Return the server's answer to a request, both as serialised messages.

    Args:
        path: of the unix socket. method: `/package.Service/Method`. deadline_seconds: for all of it, connecting included.
        max_bytes: the longest answer taken; the server cannot send more, for its window ends there.

    Raises:
        CallError: whatever the reason.
    """
    end = time.monotonic() + deadline_seconds
    answer = _Answer(max_bytes)
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(deadline_seconds)
            wire.connect(path)
            _ask(connection, method, request, max_bytes, deadline_seconds)
            while not answer.complete:
                wire.settimeout(_left(end))
                wire.sendall(connection.data_to_send())
                wire.settimeout(_left(end))
                answer.add_events(connection.receive_data(answer.received(wire)))
            with contextlib.suppress(OSError):  # so that the server need not learn it from a broken connection
                connection.close_connection()
                wire.sendall(connection.data_to_send())
        return answer.message()
    except TimeoutError:
        raise CallError(f"{path}: no answer within {deadline_seconds:g} s") from None
    except OSError as error:
        raise CallError(f"{path}: {error.strerror or error}") from None
    except CallError as error:
        raise CallError(f"{path}: {error}") from None
    except Exception as error:  # bytes that are no HTTP/2 raise errors of three libraries, not all of them their own
        what = "not gRPC" if isinstance(error, H2Error) else "what cannot be read"
        raise CallError(f"{path}: answers {what}: {type(error).__name__}: {error}"[:300]) from None


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _ask(connection: H2Connection, method: str, request: bytes, max_bytes: int, deadline_seconds: float) -> None:
    window = max_bytes + _PREFIX_BYTES
    connection.initiate_connection()
    connection.update_settings({SettingCodes.ENABLE_PUSH: 0, SettingCodes.INITIAL_WINDOW_SIZE: window})
    connection.increment_flow_control_window(window)
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "tachoscope",
        "grpc-accept-encoding": "identity",
        "grpc-timeout": f"{round(deadline_seconds * 1000)}m",
    }
    connection.send_headers(_STREAM, list(headers.items()))
    connection.send_data(_STREAM, b"\0" + len(request).to_bytes(4, "big") + request, end_stream=True)


class _Answer:
    """What came of the answer so far."""

    def __init__(self, max_bytes: int) -> None:
        self.complete = False
        self._most = max_bytes
        self._body = bytearray()
        self._wire_bytes = 0
        self._headers: dict[str, str] = {}

    def received(self, wire: socket.socket) -> bytes:
        received = wire.recv(_READ_BYTES)
        if not received:
            raise CallError("the connection was closed before the answer")
        self._wire_bytes += len(received)
        if self._wire_bytes > 2 * self._most + _READ_BYTES:  # the window limits messages only, not what else may be sent
            raise CallError(f"{self._wire_bytes} bytes received without an answer")
        return received

    def add_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                self._take_headers(event.headers or ())
            elif isinstance(event, DataReceived):
                self._take_data(event.data or b"")
            elif isinstance(event, StreamEnded):
                self.complete = True
            elif isinstance(event, StreamReset | ConnectionTerminated) and not self.complete:
                raise CallError(f"the server aborted the call (HTTP/2 error {event.error_code})")

    def _take_data(self, data: bytes) -> None:
        self._body += data
        announced = int.from_bytes(self._body[1:_PREFIX_BYTES], "big") if len(self._body) >= _PREFIX_BYTES else 0
        if max(announced, len(self._body) - _PREFIX_BYTES) > self._most:
            raise CallError(f"an answer of more than {self._most} bytes")

    def _take_headers(self, headers: _Headers) -> None:
        self._headers |= {str(name): str(value) for name, value in headers}
        if (status := self._headers.get(":status")) != "200":
            raise CallError(f"HTTP status {status}")

    def message(self) -> bytes:
        status = self._headers.get("grpc-status", "absent")
        if status == "4":  # DEADLINE_EXCEEDED: the server's clock was the faster one
            raise TimeoutError
        if status != "0":
            said = unquote(self._headers.get("grpc-message", ""))
            raise CallError(f"gRPC status {status}{': ' if said else ''}{said[:200]}")
        if self._body[:1] == b"\1":
            raise CallError("the answer is compressed, which was not requested")
        size = len(self._body) - _PREFIX_BYTES
        if size < 0 or int.from_bytes(self._body[1:_PREFIX_BYTES], "big") != size:
            raise CallError(f"an answer of {len(self._body)} bytes that is not one message")
        return bytes(memoryview(self._body)[_PREFIX_BYTES:])
