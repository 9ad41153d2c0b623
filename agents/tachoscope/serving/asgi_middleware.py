"""ASGI middleware: a record for each request, with how it really ended, whatever the framework.

Messages pass through as they are; only what they tell is noted. https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from fnmatch import translate
from typing import Any

from tachoscope.serving.request import CURRENT, Request
from tachoscope.serving.service import Service
from tachoscope.serving.service import service as service_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_NOT_REQUESTS = ("/health*", "*/health", "*/health/*", "/live", "/livez", "/ready", "/readyz", "/ping", "/metrics*")
_LEFT_OUT = re.compile("|".join(map(translate, _NOT_REQUESTS)))
_STREAMS = (b"text/event-stream", b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
_TOLD = b"data: [DONE]"
"""How a stream in OpenAI's form says that it is complete."""
_BY_STATUS = {408: "timeout", 429: "shed", 503: "shed", 504: "timeout"}
_TOKENS_IN = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
_TOKENS_OUT = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
_LOOK_NS = 50_000_000
"""Of a request that took no longer, it is not asked whether its client left: to ask costs as much as all else together."""
_TAIL_BYTES = 4096
"""So much of the end of an answer is searched for its usage."""
_MOST_PATHS = 1024
"""Of so many paths it is remembered whether they are recorded: to match one costs as much as all else of a request."""


class ServingMiddleware:
    """Records each POST that an ASGI app answers, but for those that ask for its health or metrics.

        app.add_middleware(tachoscope.ServingMiddleware, service="chat")

    Put it outside of what limits time or rate, so that it sees what the client sees.

    Args:
        app: what answers. service: its name, or `tachoscope.service(...)`. model, version: what it serves.
        paths: only these are recorded, such as `/v1/*`; default: all.

    Raises:
        ValueError: the service's name cannot be used.
    """

    def __init__(
        self, app: App, service: str | Service = "server", *, model: str = "", version: str = "", paths: Iterable[str] = ()
    ) -> None:
        self.app = app
        self._service = service if isinstance(service, Service) else service_of(service, model=model, version=version)
        wanted = [translate(path) for path in paths]
        self._wanted = re.compile("|".join(wanted)) if wanted else None
        self._known_paths: dict[str, bool] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http" or scope["method"] != "POST" or not self._is_recorded(scope["path"]):
            await self.app(scope, receive, self._lifespan(send) if kind == "lifespan" else send)
            return
        exchange = Exchange(self._service.request(), receive, send)
        token = CURRENT.set(exchange.request)
        try:
            await self.app(scope, exchange.receive, exchange.send)
        except BaseException as error:
            exchange.failed(error)
            raise
        else:
            if not exchange.has_ended:
                exchange.returned()
        finally:
            try:  # noqa: SIM105  # a context manager costs a third of a microsecond
                CURRENT.reset(token)
            except ValueError:  # a coroutine that is thrown away ends in a context of another's
                pass

    def _is_recorded(self, path: str) -> bool:
        known = self._known_paths.get(path)
        if known is None:
            known = bool(self._wanted.match(path)) if self._wanted else not _LEFT_OUT.match(path)
            if len(self._known_paths) >= _MOST_PATHS:  # they hold ids
                self._known_paths.clear()
            self._known_paths[path] = known
        return known

    def _lifespan(self, send: Send) -> Send:
        """Start recording when the app is ready, and close before the server learns of the shutdown, after which it may exit."""

        async def told(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._service.open()
            elif message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
                self._service.close()
            await send(message)

        return told


class Exchange:
    """One request and its answer, as their messages pass.

    Attributes:
        has_ended: whether the answer is complete.
    """

    __slots__ = (
        "_body_was_read",
        "_chunks",
        "_is_complete",
        "_is_receiving",
        "_is_stream",
        "_is_told",
        "_kept",
        "_left",
        "_receive",
        "_send",
        "has_ended",
        "request",
    )

    def __init__(self, request: Request, receive: Receive, send: Send) -> None:
        self.request = request
        self._receive, self._send = receive, send
        self._body_was_read = self._left = self.has_ended = False
        self._is_stream = self._is_told = self._is_complete = False
        self._is_receiving = 0
        self._chunks = 0
        self._kept: Message | None = None

    async def receive(self) -> Message:
        if self._kept is not None:
            return self._kept
        self._is_receiving += 1
        try:
            message = await self._receive()
        finally:
            self._is_receiving -= 1
        self._received(message)
        return message

    def _received(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            self._left = self._left or not self._is_complete
        elif not message.get("more_body"):
            self._body_was_read = True

    async def send(self, message: Message) -> None:
        try:
            is_last = self._passes(message)
        except Exception:  # what is not a message of ASGI is the server's to refuse
            is_last = False
        if (is_last or self._is_told) and not self._is_complete:
            if self._may_ask_for_client():
                await self._look_whether_client_left()
            self._is_complete = True  # a client may leave now
        try:
            await self._send(message)
        except OSError:  # the server says so that the client is gone
            self._left = True
            raise
        if is_last and not self.has_ended:
            self.has_ended = True
            self.request.done(self._outcome())

    def _passes(self, message: Message) -> bool:
        """Process a message of the app; return whether it completes the answer."""
        kind = message["type"]
        if kind == "http.response.start":
            self.request.status = message["status"]
            self._is_stream = _is_stream(message.get("headers", ()))
        elif kind == "http.response.body":
            is_last = not message.get("more_body")
            if body := message.get("body"):
                self._body_passes(bytes(body), is_last=is_last)
            return is_last
        return bool(kind == "http.response.pathsend")

    def _body_passes(self, body: bytes, *, is_last: bool) -> None:
        request = self.request
        if self._is_stream and (self._chunks or not is_last):
            self._chunks += 1
            self._is_told = self._is_told or body[-24:].rstrip().endswith(_TOLD)
            if not request.tokens_out and not body.startswith((b":", _TOLD)):
                request.chunk()
        if (is_last or self._is_stream) and b'"completion_tokens"' in (tail := body[-_TAIL_BYTES:]):
            _note_usage(request, tail)

    def _may_ask_for_client(self) -> bool:
        return self._body_was_read and not self._left and not self._is_receiving and self.request.age_ns() >= _LOOK_NS

    async def _look_whether_client_left(self) -> None:
        """Ask the server, without waiting, whether the client is connected: sending to a closed connection may not raise."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # another library's loop
            return
        asked = asyncio.ensure_future(self._receive())
        try:
            await asyncio.sleep(0)
        finally:
            asked.cancel()  # if it waits
        if asked.done() and not asked.cancelled() and asked.exception() is None:
            self._kept = asked.result()
            self._received(self._kept)

    def failed(self, error: BaseException) -> None:
        if self._left:
            self.request.done("client_error")
        elif self.request.status:
            self.request.done("cut")
        elif isinstance(error, asyncio.CancelledError):
            self.request.done("server_error")
        else:
            self.request.failed(error)

    def returned(self) -> None:
        """The app returned; an incomplete answer ends here."""
        self.request.done("client_error" if self._left else "cut" if self.request.status else "server_error")

    def _outcome(self) -> str:
        status = self.request.status
        if self._left:
            return "client_error"
        if status < 400:
            return "ok"
        return _BY_STATUS.get(status) or ("client_error" if status < 500 else "server_error")


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether an answer is streamed: by its type, or because its length is unknown."""
    length_is_told = False
    for name, value in headers:
        key = name.lower()
        if key == b"content-type" and value.lower().startswith(_STREAMS):
            return True
        length_is_told = length_is_told or key == b"content-length"
    return not length_is_told


def _note_usage(request: Request, tail: bytes) -> None:
    """Record the token counts at the end of an OpenAI-style answer, unless they were given."""
    tokens_in, tokens_out = _TOKENS_IN.search(tail), _TOKENS_OUT.search(tail)
    if tokens_in and not request.tokens_in:
        request.tokens_in = int(tokens_in[1])
    if tokens_out and not request.tokens_out:
        request.tokens_out = int(tokens_out[1])
