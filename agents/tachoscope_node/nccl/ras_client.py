"""One question to NCCL's RAS, in its own protocol, that never waits: each `advance` does what can be done at once.

The protocol is lines of text over TCP: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html and
client_support.cc of NCCL. Servers before 2.28.7 know no JSON. Some of them crashed their job when they were asked for its status
(https://github.com/NVIDIA/nccl/issues/1669, /1718, /1762), so STATUS is sent only to one that has agreed to JSON.
"""

from __future__ import annotations

import errno
import os
import socket

MOST_BYTES = 4 << 20
"""Of an answer: some 8,000 ranks, counted in each communicator that they are in."""
LEG_SECONDS = 5
"""What the server waits for each of the other processes of the job."""
WHOLE_SECONDS = 20.0
_BYTES_AT_ONCE = 1 << 20
_PRELUDE = b"CLIENT PROTOCOL 2\nTIMEOUT %d\nSET FORMAT json\n" % LEG_SECONDS
_PRELUDE_LINES = 3


class RasError(Exception):
    """The server did not answer as it should."""


class NobodyError(Exception):
    """Nobody listens there."""


class UnsafeError(Exception):
    """The server is of a version that must not be asked, or cannot be understood."""


class Question:
    """Asks for the status of all communicators. Close it when it is done with.

    Raises:
        NobodyError: nobody listens there. RasError: the address cannot be reached.
    """

    def __init__(self, address: tuple[str, int], now: float) -> None:
        self._until = now + WHOLE_SECONDS
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._to_send = _PRELUDE
        self._got = bytearray()
        self._asked = False
        code = self._socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self.close()
            raise _failure(code)

    def advance(self, now: float) -> bytes | None:
        """Do what can be done at once; return the whole answer, None while there is none.

        Raises:
            NobodyError, UnsafeError: see there. RasError: it says something else, too much, or nothing for too long.
        """
        if now > self._until:
            raise RasError(f"no whole answer within {WHOLE_SECONDS:g} s")
        try:
            return self._go_on()
        except BlockingIOError:
            return None
        except OSError as error:
            raise _failure(error.errno or 0) from None

    def _go_on(self) -> bytes | None:
        if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise _failure(code)
        self._send()
        for _ in range(_BYTES_AT_ONCE // 65536):
            part = self._socket.recv(65536)
            if not part:
                return self._end()
            self._got += part
            if len(self._got) > MOST_BYTES:
                raise RasError(f"its answer is longer than {MOST_BYTES} bytes: the job is too large to query")
            if not self._asked and self._got.count(b"\n") >= _PRELUDE_LINES:
                self._agree()
                self._send()
        return None

    def _send(self) -> None:
        if self._to_send:
            try:
                self._to_send = self._to_send[self._socket.send(self._to_send) :]
            except BrokenPipeError:
                raise RasError("it closed the connection") from None

    def _agree(self) -> None:
        protocol, timeout, form, rest = bytes(self._got).split(b"\n", _PRELUDE_LINES)
        if not protocol.startswith(b"SERVER PROTOCOL "):
            raise RasError(f"not an NCCL RAS server: {protocol[:80].decode(errors='replace')!r}")
        if form.startswith(b"ERROR"):
            raise UnsafeError(
                "the server does not support JSON (NCCL before 2.28.7): not queried, since some of these versions crash"
            )
        if timeout != b"OK" or form != b"OK":
            raise RasError(f"it answers {(timeout + b' ' + form)[:80].decode(errors='replace')!r}")
        self._asked, self._to_send, self._got = True, b"STATUS\n", bytearray(rest)

    def _end(self) -> bytes:
        if not self._asked:
            raise RasError("it closed the connection")
        return bytes(self._got)

    def close(self) -> None:
        self._socket.close()


def _failure(code: int) -> Exception:
    if code == errno.ECONNREFUSED:
        return NobodyError()
    return RasError(os.strerror(code))
