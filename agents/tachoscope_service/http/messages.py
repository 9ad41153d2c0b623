"""Requests and responses of the agent's pages, and the HTTP/1.1 between them and bytes (h11)."""

from __future__ import annotations

import email.utils
import http
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

HEAD_BYTES = 16 * 1024
"""The most that the head of a request may take."""
_PIECE = 1024
"""How much h11 gets at once: it notices a head that is too long only while the head is incomplete."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler may know of a request.

    Attributes:
        path: as the client wrote it, without the query.
        query: what follows the question mark.
        accept: the header Accept, or nothing.
        accept_encoding: the header Accept-Encoding, or nothing.
        body: what was sent, to a handler that takes one.
        client: `user:NAME`, `token:FILE` or `certificate:NAME`, as the web configuration knows it; empty: it has no name.
    """

    path: str
    query: str = ""
    accept: str = ""
    accept_encoding: str = ""
    body: bytes = b""
    client: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """What a handler answers. Compressing the body is its own business."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


def status_only(status: int, *headers: tuple[str, str]) -> Response:
    """Return a response that says no more than its status."""
    text = f"{status} {http.HTTPStatus(status).phrase}\n"
    return Response(status, "text/plain; charset=utf-8", text.encode(), headers)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What a client asks for: what the handler may know, and what it may not."""

    method: str
    request: Request
    authorization: str | None
    has_body: bool
    host: str = ""
    """The name that the client knows this server by, without a port."""
    from_page: bool = False
    """True if a page in a browser sent the request: browsers mark each such request, and no other client does."""


class BadRequestError(Exception):
    """What the client sent is not an HTTP request, or too long: `status` is the answer."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class HttpStream:
    """The requests and responses of one connection."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._unread = bytearray()
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        self._unread += data

    @property
    def started(self) -> bool:
        """Whether a part of a request is here."""
        return bool(self._unread) or bool(self._h11.trailing_data[0])

    def next_head(self) -> RequestHead | None:
        """Return the next request, or None where there is not all of it yet.

        Raises:
            BadRequestError: when there is something else.
        """
        try:
            event = self._next_event()
            if event is None:
                return None
            if not isinstance(event, h11.Request):
                raise BadRequestError(400)
            head = _head(event)
            if not head.has_body:
                self._h11.next_event()  # the end of the message: there is no body to wait for
        except h11.RemoteProtocolError as error:
            raise BadRequestError(error.error_status_hint) from None
        return head

    def next_body(self, most_bytes: int) -> bytes | None:
        """Return the body of the request whose head was returned, or None where there is not all of it yet.

        Raises:
            BadRequestError: when it is too long, or not a body.
        """
        try:
            while (event := self._next_event()) is not None:
                if isinstance(event, h11.EndOfMessage):
                    body, self._body = bytes(self._body), bytearray()
                    return body
                if not isinstance(event, h11.Data):
                    raise BadRequestError(400)
                self._body += event.data
                if len(self._body) > most_bytes:
                    raise BadRequestError(413)
        except h11.RemoteProtocolError as error:
            raise BadRequestError(error.error_status_hint) from None
        return None

    def _next_event(self) -> object | None:
        """Return the next event of h11, or None where there is not all of it yet."""
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            if not self._unread:
                return None
            self._h11.receive_data(bytes(self._unread[:_PIECE]))
            del self._unread[:_PIECE]
        return event

    def write(self, response: Response, extra: tuple[tuple[str, str], ...], *, head_only: bool, last: bool) -> bytes:
        """Return the head of a response; the body follows it on the wire as it is, unless `head_only`.

        Raises:
            h11.LocalProtocolError: when the response is not one: a handler's fault.
        """
        headers = [
            ("Date", email.utils.formatdate(usegmt=True)),
            ("Content-Type", response.content_type),
            ("Content-Length", str(len(response.body))),
            *response.headers,
            *extra,
            *([("Connection", "close")] if last else []),
        ]
        reason = http.HTTPStatus(response.status).phrase
        event = h11.Response(status_code=response.status, headers=headers, reason=reason.encode())
        head = self._h11.send(event) or b""
        if not head_only and response.body:
            self._h11.send_with_data_passthrough(h11.Data(data=response.body))
        self._h11.send(h11.EndOfMessage())
        return head

    def next_cycle(self) -> bool:
        """Make ready for the next request; False when there can be none on this connection."""
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True


def _host(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _head(event: h11.Request) -> RequestHead:
    if event.http_version not in (b"1.0", b"1.1"):  # h11 takes any number for 1.1
        raise BadRequestError(505)
    headers: dict[bytes, bytes] = {}
    for name, value in event.headers:
        headers[name] = headers[name] + b", " + value if name in headers else value
    target = event.target.decode("ascii")
    if not target.startswith("/"):  # the form that proxies are asked with: http://host/path
        try:
            parts = urlsplit(target)
        except ValueError:
            raise BadRequestError(400) from None
        target = f"{parts.path or '/'}?{parts.query}" if parts.netloc else target
    path, _, query = target.partition("?")
    text = {name: headers.get(name, b"").decode("latin-1") for name in (b"accept", b"accept-encoding")}
    authorization = headers.get(b"authorization")
    return RequestHead(
        method=event.method.decode("ascii"),
        request=Request(path, query, text[b"accept"], text[b"accept-encoding"]),
        authorization=None if authorization is None else authorization.decode("latin-1"),
        host=_host(headers.get(b"host", b"").decode("latin-1")),
        from_page=b"origin" in headers or b"sec-fetch-site" in headers,
        has_body=b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b"",
    )
