"""One HTTP connection to the agent's pages: heads in, verdicts, pages out. Knows nothing of sockets and TLS; see web_wire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import h11

from tachoscope_service.http.auth import Auth, AuthResult
from tachoscope_service.http.messages import BadRequestError, HttpStream, RequestHead, Response, status_only
from tachoscope_service.http.transport import ConnectionPolicy, Limits, TransportProtocol


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """What a web configuration makes of the server; a reload makes a new one."""

    door: ConnectionPolicy
    headers: tuple[tuple[str, str], ...]
    auth: Auth


class ConnectionHost(Protocol):
    """What a connection needs of its server."""

    @property
    def limits(self) -> Limits: ...
    @property
    def site(self) -> SitePolicy: ...
    @property
    def read_buffer(self) -> bytearray: ...
    def most_body_bytes(self, head: RequestHead) -> int: ...
    def answer(self, head: RequestHead, later: Callable[[Response], None]) -> Response | None: ...
    def count(self, reason: str) -> None: ...
    def forget(self, connection: Connection) -> None: ...


class Connection(TransportProtocol):
    """The requests and answers of one client.

    Attributes:
        served: whether an authorised request was answered: such a client is the last to be sent away when there are too many.
        last_used: the loop's time of the connection or of the latest answer.
    """

    def __init__(self, host: ConnectionHost, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        self._site = host.site
        super().__init__(loop, sock, self._site.door, host.limits, host.read_buffer)
        self.served = False
        self.last_used = loop.time()
        self._host = host
        self._http = HttpStream()
        self._head: RequestHead | None = None
        self._allowed = False
        self._body_awaited = False
        self._between = False
        """Whether one request is answered and nothing of the next is here."""

    def opened(self) -> None:
        """Start the time limit of the first request."""
        self.set_timer(self.limits.head_seconds, self.too_slow)

    def on_data(self, data: bytes) -> None:
        self._http.feed(data)
        self._advance()

    def refused(self, reason: str) -> None:
        """Count a rejected client."""
        self._host.count(reason)

    def on_closed(self) -> None:
        """Leave the server's list."""
        self._host.forget(self)

    def retire(self) -> None:
        """Close an idle connection: it must be opened again under the new configuration."""
        if self._between:
            self.close()

    def too_slow(self) -> None:
        """Answer with an error if a request was begun and not completed in time."""
        if self.busy or not self._http.started:
            super().too_slow()
            return
        self._host.count("too_slow")
        self._respond(status_only(408), last=True)

    def _advance(self) -> None:
        """Take the next request out of what the client said."""
        if self._body_awaited:
            self._take_body()
            return
        if self.busy or self._closed or self._lingering:
            return
        try:
            self._head = self._http.next_head()
        except BadRequestError as error:
            self._malformed(error.status)
            return
        if self._head is not None and self._head.has_body and not self._host.most_body_bytes(self._head):
            self._malformed(413)
        elif self._head is not None:
            self._check(self._head)
        elif self.ended:
            self.close()
        elif self._between and self._http.started:
            self._between = False
            self.set_timer(self.limits.head_seconds, self.too_slow)

    def _malformed(self, status: int) -> None:
        self._host.count("malformed")
        self._respond(status_only(status), last=True)

    def _check(self, head: RequestHead) -> None:
        self.busy = True
        self._between = False
        self.stop_timer()
        self.reading(on=False)
        # The users of now, not those of when the connection was made.
        verdict = self._host.site.auth.check(head.authorization, self._judged_elsewhere)
        if verdict is not None:
            self._judged(verdict)

    def _judged_elsewhere(self, verdict: AuthResult) -> None:
        try:
            self.loop.call_soon_threadsafe(self._judged, verdict)
        except RuntimeError:
            return  # the loop is closed: the server stopped meanwhile

    def _judged(self, verdict: AuthResult) -> None:
        if self._closed or self._head is None:
            return
        self._allowed = verdict is AuthResult.ALLOWED
        if self._allowed and self._head.has_body:  # only those who may send one have memory taken for it
            self._body_awaited = True
            self.set_timer(self.limits.head_seconds, self.too_slow)
            self.reading(on=True)
            self._take_body()
        elif self._allowed:
            self._answer(self._head)
        elif verdict is AuthResult.REFUSED:
            self._host.count("unauthorised")
            self._respond(status_only(401, *(("WWW-Authenticate", offer) for offer in self._host.site.auth.challenges)))
        else:
            self._host.count("too_many")
            self._respond(status_only(429, ("Retry-After", "1")))

    def _take_body(self) -> None:
        if self._closed or self._head is None:
            return
        try:
            body = self._http.next_body(self._host.most_body_bytes(self._head))
        except BadRequestError as error:
            self._body_awaited = False
            self._malformed(error.status)
            return
        if body is not None:
            self._body_awaited = False
            self.stop_timer()
            self.reading(on=False)
            self._answer(replace(self._head, request=replace(self._head.request, body=body)))
        elif self.ended:
            self.close()

    def _answer(self, head: RequestHead) -> None:
        client = self._host.site.auth.client(head.authorization) or self.certificate_name()
        head = replace(head, request=replace(head.request, client=client))
        response = self._host.answer(head, self._answered_elsewhere)
        if response is not None:
            self._respond(response)

    def _answered_elsewhere(self, response: Response) -> None:
        try:
            self.loop.call_soon_threadsafe(self._answered, response)
        except RuntimeError:
            return  # the loop is closed: the server stopped meanwhile

    def _answered(self, response: Response) -> None:
        if not self._closed:
            self._respond(response)

    def _respond(self, response: Response, *, last: bool = False) -> None:
        self.busy = True
        self._between = False
        self.reading(on=False)
        last = last or self._site is not self._host.site or (self.ended and not self._http.started)
        head_only = self._head is not None and self._head.method == "HEAD"
        headers = self._host.site.headers
        try:
            head = self._http.write(response, headers, head_only=head_only, last=last)
        except h11.LocalProtocolError:
            self.close()  # nothing can be said any more in this state
            return
        self.write(head, b"" if head_only else response.body)

    def written(self) -> None:
        """Wait for the next request, or close."""
        self.busy = False
        self.served = self.served or self._allowed
        self._allowed = False
        self.last_used = self.loop.time()
        self._head = None
        if not self._http.next_cycle():
            self.close_gracefully()
            return
        self._between = True
        self.set_timer(self.limits.idle_seconds, self.close)
        self.reading(on=True)
        self.loop.call_soon(self._advance)  # not at once: pipelined requests of one client must not keep the loop from others
