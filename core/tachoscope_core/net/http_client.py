"""One request over HTTP to a server that may hang, drip, lie about its length or send without end.

Only the address of the URL is asked: no redirect is followed, so that a token does not travel, and a proxy is used only where
that is wanted.
"""

from __future__ import annotations

import email.message
import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from tachoscope_core.net.allowed_hosts import is_loopback

_NOTHING: Mapping[str, str] = MappingProxyType({})


class HttpError(OSError):
    """There is no answer; the message says why, without the URL and what was sent."""


class StatusError(HttpError):
    """The server answers with another status than was asked for."""


class TooLongError(HttpError):
    """The answer is longer than was allowed."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a server answered, whatever its status is. The names of headers are without case."""

    status: int
    reason: str
    headers: email.message.Message
    content: bytes

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status < 400

    @property
    def redirects_to(self) -> str:
        """Which page it names, as ` to https://host/path`; empty: none. Without a user and a query, which may hold secrets."""
        try:
            parts = urlsplit(self.headers.get("Location", ""))
        except ValueError:  # such as http://[
            return ""
        host = parts.netloc.rpartition("@")[2]
        page = f"{parts.scheme}://{host}{parts.path}" if host else parts.path
        return f" to {page[:200]}" if page and page.isprintable() else ""

    def raise_for_status(self) -> HttpResponse:
        """Return it if its status says success.

        Raises:
            StatusError: its status is not 2xx.
        """
        if self.is_redirect:
            raise StatusError(f"it redirects{self.redirects_to} ({self.status}), which is not followed: name the page itself")
        if not 200 <= self.status < 300:
            raise StatusError(f"it answers {self.status} {self.reason[:80]}")
        return self


def request(
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    method: str = "",
    body: bytes | None = None,
    headers: Mapping[str, str] = _NOTHING,
    proxies: bool = False,
    tls: ssl.SSLContext | None = None,
) -> HttpResponse:
    """Ask, and read the whole answer.

    Args:
        url: of http or https; a user and a password in it are not sent.
        seconds: for everything together, but for the look-up of a host's name, which the system bounds.
        most_bytes: largest content of an answer.
        method: GET if empty, and POST with a body.
        headers: sent with the request.
        proxies: use the proxies that the environment names, but not to this machine itself.
        tls: the system's authorities if not given.

    Raises:
        HttpError: there is no answer within the time; TooLongError: nor within the size.
    """
    deadline = time.monotonic() + seconds
    try:
        parts = urlsplit(url)
        address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        request = urllib.request.Request(address, body, dict(headers), method=method or None)  # noqa: S310  # the opener has no other schemes
        opener = _opener(deadline, tls, proxies=proxies and not is_loopback(parts.hostname or ""))
        with closing(opener.open(request, timeout=_left(deadline))) as response:
            return HttpResponse(response.status, response.reason or "", response.headers, _content(response, most_bytes))
    except HttpError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HttpError(_why(error, seconds)) from None


def get(url: str, *, seconds: float, most_bytes: int = 32 << 20) -> bytes:
    """Return what is at a URL, asked without a proxy.

    Raises:
        HttpError: as `request`; StatusError: it is not there.
    """
    return request(url, seconds=seconds, most_bytes=most_bytes).raise_for_status().content


def _opener(deadline: float, tls: ssl.SSLContext | None, *, proxies: bool) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()  # `build_opener` would add redirects, files and FTP
    opener.add_handler(urllib.request.ProxyHandler(None if proxies else {}))
    opener.add_handler(_Http(deadline))
    opener.add_handler(_Https(deadline, tls))
    opener.add_handler(urllib.request.UnknownHandler())
    opener.addheaders = []
    return opener


def _content(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    content = response.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise TooLongError(f"it sends more than {most_bytes} bytes")
    if response.length:  # what should have come besides
        raise HttpError(f"the connection was closed after {len(content)} bytes")
    return content


def _why(error: Exception, seconds: float) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, http.client.InvalidURL | ValueError) and not isinstance(reason, ssl.SSLError):
        return "its URL or a header cannot be sent"  # Python's words quote them
    if isinstance(reason, TimeoutError):
        return f"no whole answer within {seconds:.3g} s"
    if isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError) and reason.strerror:
        return reason.strerror
    if isinstance(reason, str):
        return reason[:200]
    return f"{type(reason).__name__}: {reason}".strip()[:200]


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise TimeoutError
    return left


# --- a connection whose every wait ends at the deadline -------------------------------------------------------------------------


class _Incoming(io.RawIOBase):
    """What a socket receives, until the deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)  # keeps the socket open when http.client closes its own end
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline))
        return self._raw.readinto(buffer) or 0

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, *_: object, **__: object) -> io.BufferedReader:
        """Stand in for the socket, of which HTTPResponse wants only this."""
        return io.BufferedReader(self)


def _connect(address: tuple[str, int], deadline: float) -> socket.socket:
    """Connect to the first address of a host that answers, within one deadline."""
    failure: OSError = OSError(f"{address[0]!r} has no address")
    for family, kind, protocol, _, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(found)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


class _Connection(http.client.HTTPConnection):
    def __init__(self, host: str, *, deadline: float, timeout: float, **options: Any) -> None:
        super().__init__(host, timeout=timeout, **options)
        self._create_connection = lambda address, *_: _connect(address, deadline)
        self.response_class = partial(_response, deadline)  # type: ignore[assignment]
        self._deadline = deadline

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_left(self._deadline))
        super().send(data)


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    """With TLS, whose handshake Python bounds as a whole."""


def _response(deadline: float, sock: socket.socket, **options: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Incoming(sock, deadline), **options)  # type: ignore[arg-type]


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req, deadline=self._deadline)  # type: ignore[arg-type]


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(context=tls)
        self._deadline = deadline
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        context = self._tls or ssl.create_default_context()
        return self.do_open(_TlsConnection, req, deadline=self._deadline, context=context)  # type: ignore[arg-type]
