"""One request over HTTP to a server that may hang, drip, lie about its length or send without end.

Only the address of the URL is asked: no redirect is followed and no proxy is used.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

_Answer = TypeVar("_Answer")


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
    return _ask(url, seconds, "", headers or {}, lambda response: _page(response, most_bytes))


def check(url: str, *, seconds: float, most_bytes: int, body: str = "", headers: Mapping[str, str] | None = None) -> None:
    """Ask, and read the whole answer.

    Args:
        seconds: as for `get`. body: JSON, sent with POST; without one it is a GET.

    Raises:
        PageError: there is no answer of 2xx within the time and size.
    """
    _ask(url, seconds, body, headers or {}, lambda response: _whole(response, most_bytes))


def _ask(
    url: str, seconds: float, body: str, headers: Mapping[str, str], read: Callable[[http.client.HTTPResponse], _Answer]
) -> _Answer:
    parts = urlsplit(url)
    deadline = time.monotonic() + seconds
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(_connect(parts, deadline)))
            connection.settimeout(_left(deadline))
            connection.sendall(_request(parts, headers, body))
            return read(stack.enter_context(_response(connection, deadline, _method(body))))
    except TimeoutError:
        raise PageError(f"no whole answer within {seconds:g} s") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PageError(f"{type(error).__name__}: {error}".strip()[:200]) from None


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


def _method(body: str) -> str:
    return "POST" if body else "GET"


def _request(parts: SplitResult, headers: Mapping[str, str], body: str) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    sent, accepted = body.encode(), "application/json" if body else "text/plain"
    lines = [f"{_method(body)} {target} HTTP/1.1", f"Host: {parts.netloc.rpartition('@')[2]}", f"Accept: {accepted}"]
    if sent:
        lines += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
    own = (f"{name}: {value}" for name, value in headers.items())
    return "".join(f"{line}\r\n" for line in (*lines, "Connection: close", *own, "")).encode("ascii") + sent


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
def _response(connection: socket.socket, deadline: float, method: str) -> Iterator[http.client.HTTPResponse]:
    response = http.client.HTTPResponse(_Incoming(connection, deadline), method=method)  # type: ignore[arg-type]
    with closing(response):
        response.begin()
        yield response


def _page(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    if response.status != 200 and not 300 <= response.status < 400:
        raise PageError(f"it answers {response.status} {response.reason[:80]}")
    if (encoding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise PageError(f"it sends {encoding[:20]!r}, which was not asked for")
    body = _whole(response, most_bytes)
    if body and not body.endswith(b"\n"):
        raise PageError(f"it broke off after {len(body)} bytes")
    return body


def _whole(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    if 300 <= response.status < 400:
        raise PageError(f"it redirects ({response.status}), which is not followed: name the page itself")
    if not 200 <= response.status < 300:
        raise PageError(f"it answers {response.status} {response.reason[:80]}")
    body = response.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise PageError(f"it sends more than {most_bytes} bytes")
    if response.length:  # what should have come besides
        raise PageError(f"it broke off after {len(body)} bytes")
    return body
