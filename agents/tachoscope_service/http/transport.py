"""One TCP or TLS connection to the agent's pages: bytes in, bytes out, and the patience with each.

Knows nothing of HTTP. The client may be hostile: at any moment one timer runs, one read takes `READ_BYTES` at most and is dealt
with before the next, and what the client does not take of a page stays in the page's own bytes: only `_CHUNK` of it is copied.
"""

from __future__ import annotations

import abc
import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass

from tachoscope_service.http.tls import TlsSession

READ_BYTES = 16 * 1024
_CHUNK = 32 * 1024
_LINGER_BYTES = 1024 * 1024
_HTTP_TO_TLS = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nThis port speaks TLS: ask it with https://.\n"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a client may take, and how many there may be.

    Attributes:
        handshake_seconds: for the whole TLS handshake.
        head_seconds: from the connection, or from the first byte of a later request, to the end of its head.
        idle_seconds: between two requests.
        write_seconds: without the client taking anything of a response.
        linger_seconds: for the client to close after our last word.
        connections: at once.
    """

    handshake_seconds: float = 5.0
    head_seconds: float = 5.0
    idle_seconds: float = 75.0
    write_seconds: float = 10.0
    linger_seconds: float = 1.0
    connections: int = 256


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """How a connection is opened: TLS or not, and the names one of which a client's certificate must have, if any are given."""

    context: ssl.SSLContext | None
    sans: frozenset[str]


class TransportProtocol(asyncio.BufferedProtocol, abc.ABC):
    """The protocol of one connection, up to what it carries.

    Args:
        loop: the event loop that it lives in.
        sock: its socket.
        door: how it is opened.
        limits: the patience.
        buffer: where all connections of a loop read into, one after the other.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, door: ConnectionPolicy, limits: Limits, buffer: bytearray
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.ended = False
        """Whether the client said that it sends no more."""
        self.busy = False
        """Whether a request is being answered: nothing is read meanwhile, and a client that ended still gets its answer."""
        self._socket = sock
        self._sans = door.sans
        self._buffer = buffer
        self._tls = None if door.context is None else TlsSession(door.context)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending = memoryview(b"")
        self._writing = False
        self._paused = False
        self._unsent_before = 0
        self._at_eof = False
        self._lingering = False
        self._discarded = 0
        self._closed = False

    # What the connection's purpose fills in.

    @abc.abstractmethod
    def opened(self) -> None:
        """The client may speak now."""

    @abc.abstractmethod
    def on_data(self, data: bytes) -> None:
        """The client said this, or ended."""

    @abc.abstractmethod
    def written(self) -> None:
        """All that was to be written is with the kernel."""

    @abc.abstractmethod
    def refused(self, reason: str) -> None:
        """The client is sent away: unauthorised, malformed or too_slow."""

    @abc.abstractmethod
    def on_closed(self) -> None:
        """The connection is no more. Called once."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._closed:  # sent away before it had begun
            transport.abort()
            return
        transport.set_write_buffer_limits(high=0)  # tell us of every byte that the kernel does not take
        if self._tls is None:
            self.opened()
        else:
            self.set_timer(self.limits.handshake_seconds, self.too_slow)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - the loop fills it and hands it over in one go
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._lingering:
            self._discarded += nbytes
            if self._discarded > _LINGER_BYTES:
                self.close()
            return
        data = bytes(memoryview(self._buffer)[:nbytes])
        if self._tls is not None:
            try:
                data = self._decrypt(self._tls, data)
            except ssl.SSLError as error:
                self._tls_failed(self._tls, error)
                return
        if data or self.ended:
            self.on_data(data)

    def eof_received(self) -> bool:
        self._at_eof = self.ended = True
        if not self.busy and not self._lingering:
            self.close()
        return self.busy

    def pause_writing(self) -> None:
        self._paused = True
        self.reading(on=False)  # who does not listen is not listened to

    def resume_writing(self) -> None:
        self._paused = False
        if self._writing:
            self._pump()
        elif not self.busy:
            self.reading(on=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was, the client is gone
        self.close()

    # What the connection's purpose calls.

    def set_timer(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Call `otherwise` after so many seconds; replaces the timer that runs."""
        self.stop_timer()
        self._timer = self.loop.call_later(seconds, otherwise)

    def stop_timer(self) -> None:
        """Cancel the call that `set_timer` planned, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reading(self, *, on: bool) -> None:
        """Resume or pause reading from the client."""
        if self._transport is None or self._transport.is_closing() or self._at_eof:
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def write(self, head: bytes, body: bytes) -> None:
        """Send head and body; `written` is called when both are with the kernel."""
        self._writing = True
        self._pending = memoryview(body)[_CHUNK:]
        self.set_timer(self.limits.write_seconds, self._check_progress)
        self._say(head + body[:_CHUNK])  # a small page is one packet
        self._unsent_before = self._unsent()
        self._pump()

    def too_slow(self) -> None:
        """Close the connection of a client that takes too long."""
        self.refused("too_slow")
        self.close()

    def close_gracefully(self) -> None:
        """Close so that the answer arrives: closing while the client still sends would discard it."""
        self._lingering = True
        self.set_timer(self.limits.linger_seconds, self.close)
        if self._tls is not None and self._tls.established:
            self._tls.close()
            self._send(self._tls.outgoing())
        if self._transport is None or self._at_eof:
            self.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client reset the connection a moment ago, and the loop has not told us yet
            self.close()
            return
        self.reading(on=True)

    def close(self) -> None:
        """End the connection at once; what was not sent is lost."""
        if self._closed:
            return
        self._closed = True
        self._writing = False
        self._pending = memoryview(b"")
        self.stop_timer()
        if self._transport is not None:
            self._transport.abort()
        self.on_closed()

    # TLS.

    def certificate_name(self) -> str:
        """Return the name of the client by its verified certificate, the first of its names in their order; empty: it has none."""
        names = sorted(self._tls.sans()) if self._tls is not None else []
        return f"certificate:{names[0]}" if names else ""

    def _decrypt(self, tls: TlsSession, data: bytes) -> bytes:
        before = tls.established
        try:
            said = tls.feed(data)
        finally:
            self._send(tls.outgoing())
        if tls.established and not before:
            if self._sans and not self._sans & tls.sans():
                raise ssl.SSLCertVerificationError(1, "none of the client's names is allowed")
            self.opened()
        self.ended = self.ended or tls.ended
        return said

    def _tls_failed(self, tls: TlsSession, error: ssl.SSLError) -> None:
        reason = getattr(error, "reason", None) or ""
        if isinstance(error, ssl.SSLCertVerificationError) or reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            self.refused("unauthorised")
        elif "ALERT" not in reason:  # an alert is the client's refusal of us
            self.refused("malformed")
        if reason == "HTTP_REQUEST":
            tls.outgoing()
            self._send(_HTTP_TO_TLS)
        self.close_gracefully()

    # Writing.

    def _pump(self) -> None:
        while self._pending and not self._paused:
            chunk, self._pending = self._pending[:_CHUNK], self._pending[_CHUNK:]
            self._say(chunk)
        if self._writing and not self._pending and not self._paused:
            self._writing = False
            self.written()

    def _check_progress(self) -> None:
        unsent = self._unsent()
        if unsent >= self._unsent_before:
            self.too_slow()
            return
        self._unsent_before = unsent
        self.set_timer(self.limits.write_seconds, self._check_progress)

    def _unsent(self) -> int:
        # With what the kernel still holds: it takes more only when a third of its buffer is free, which takes a slow reader long.
        if self._transport is None or self._socket.fileno() < 0:
            return 0
        queued = struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]
        return len(self._pending) + self._transport.get_write_buffer_size() + int(queued)

    def _say(self, data: bytes | memoryview) -> None:
        if self._tls is not None:
            try:
                self._tls.encrypt(data)
            except ssl.SSLError:  # the session broke: what is left to say cannot be said
                self.close()
            data = self._tls.outgoing()
        self._send(data)

    def _send(self, data: bytes | memoryview) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
