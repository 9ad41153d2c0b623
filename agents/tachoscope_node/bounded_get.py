"""One page over HTTP from a server that may hang, drip, lie about its length or send without end.

Only the address of the URL is asked: no redirect is followed and no proxy is used.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import SplitResult, urlsplit


class PageError(Exception):
    """There is no page; the message says why, without the URL."""


def get(url: str, *, seconds: float, most_bytes: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the page.

    Args:
        seconds: for everything together, but for the look-up of a host's name, which the system bounds.
        headers: sent with the request, checked by who gives them.

    Raises:
        PageError: there is none within the time and size, or the server has something else to say.
    """
    parts = urlsplit(url)
    deadline = time.monotonic() + seconds
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(_connect(parts, deadline)))
            connection.settimeout(_left(deadline))
            connection.sendall(_request(parts, headers or {}))
            reader = stack.enter_context(_response(connection, deadline))
            return _body(reader, most_bytes)
    except TimeoutError:
        raise PageError(f"no whole answer within {seconds:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PageError(f"{type(error).__name__}: {error}"[:200]) from None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left


def _connect(parts: SplitResult, deadline: float) -> socket.socket:
    host, secure = parts.hostname or "", parts.scheme == "https"
    failure: OSError = OSError(f"{host!r} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, parts.port or (443 if secure else 80), type=socket.SOCK_STREAM
    ):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
            return ssl.create_default_context().wrap_socket(connection, server_hostname=host) if secure else connection
        except OSError as error:
            connection.close()
            failure = error
    raise failure


def _request(parts: SplitResult, headers: Mapping[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = (f"GET {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}", "Accept: text/plain", "Connection: close")
    own = (f"{name}: {value}" for name, value in headers.items())
    return "".join(f"{line}\r\n" for line in (*lines, *own, "")).encode("ascii")


class _Incoming(io.RawIOBase):
    """What a socket receives, until the deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline))
        return self._connection.recv_into(buffer)

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        """Stand in for the socket, of which HTTPResponse wants only this."""
        return io.BufferedReader(self)


@contextmanager
def _response(connection: socket.socket, deadline: float) -> Iterator[http.client.HTTPResponse]:
    response = http.client.HTTPResponse(_Incoming(connection, deadline), method="GET")  # type: ignore[arg-type]
    with closing(response):
        response.begin()
        yield response


def _body(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    if 300 <= response.status < 400:
        raise PageError(f"it redirects ({response.status}), which is not followed: name the page itself")
    if response.status != 200:
        raise PageError(f"it answers {response.status} {response.reason[:80]}")
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise PageError(f"it sends {encoding[:20]!r}, which was not asked for")
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise PageError(f"it sends more than {most_bytes} bytes")
    if response.length or (body and not body.endswith(b"\n")):  # the length is what should have come, if it was said
        raise PageError(f"it broke off after {len(body)} bytes")
    return body
