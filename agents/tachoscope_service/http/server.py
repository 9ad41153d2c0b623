"""The agent's HTTP server: a handful of pages, in a thread of its own, for clients of which some are hostile.

A connection counts from the moment it is accepted, before TLS and before its first byte. When there are too many, the one that has
waited longest without having been answered an authorised request goes: idle connections never lock out a scraper. They do lock it
out of uvicorn, which has no deadline for a request, and cost it 50 MiB with TLS (docs/develop/measurements.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import ipaddress
import os
import resource
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http import web_config as web_configs
from tachoscope_service.http.auth import Auth
from tachoscope_service.http.connection import Connection, SitePolicy
from tachoscope_service.http.messages import Request, RequestHead, Response, status_only
from tachoscope_service.http.tls import plain_san
from tachoscope_service.http.transport import READ_BYTES, ConnectionPolicy, Limits
from tachoscope_service.http.web_config import WebConfig

__all__ = ["AnyHandler", "Limits", "Request", "Response", "SlowHandler", "WebServer"]

Handler = Callable[[Request], Response]
WAITING = 32
"""Requests that may wait for a slow handler."""


@dataclass(frozen=True, slots=True)
class SlowHandler:
    """A handler that may wait, for a store for example: it runs in a thread of its own, one request after the other.

    Attributes:
        most_body_bytes: of a request; 0: it has no body.
    """

    handler: Handler
    most_body_bytes: int = 0


AnyHandler = Handler | SlowHandler
REASONS = ("unauthorised", "malformed", "too_slow", "too_many")
"""Why a request or a connection is refused: the keys of `WebServer.refused`."""
_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 64
_RETRY_SECONDS = 1.0
_LOG_SECONDS = 60.0


class WebServer:
    """Serves pages until it is stopped.

    Args:
        routes: a handler by path; `/a/*` is for all that have one part more than `/a`, `/a/*/b` for `b` of each of them. It runs in
            the server's thread, so it must be quick, a page that is ready, or a `SlowHandler`.
        posts: the same for POST; only a `SlowHandler` takes a body. Requests of pages in browsers are refused: their reader did
            not ask for them.
        address: where to listen; an empty one or `::` is all addresses, IPv4 too.
        port: of it; 0 for a free one, which `port` then tells.
        web_config: TLS and users, or None for neither.
        log: takes a line.
        limits: the patience with clients.
    """

    def __init__(
        self,
        routes: Mapping[str, AnyHandler],
        *,
        posts: Mapping[str, AnyHandler] | None = None,
        address: str,
        port: int,
        web_config: WebConfig | None,
        log: Callable[[str], None],
        limits: Limits | None = None,
    ) -> None:
        self.address = address
        self.port = port
        self.refused = dict.fromkeys(REASONS, 0)
        self.limits = _within_file_limit(limits or Limits())
        self.read_buffer = bytearray(READ_BYTES)
        self._routes = dict(routes)
        self._posts = dict(posts or {})
        self._log = log
        self._logged: dict[str, float] = {}
        self._web_config = web_config
        self._listener: socket.socket | None = None
        self._loopback = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connections: dict[Connection, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._slow: ThreadPoolExecutor | None = None
        self._waiting = 0

    def start(self) -> None:
        """Listen, and serve from now on.

        Raises:
            TachoscopeError: when the address cannot be listened on or the certificates cannot be used.
        """
        self.site = _site(self._web_config)
        self._listener = _listen(self.address, self.port)
        host, self.port, *_ = self._listener.getsockname()
        self._loopback = ipaddress.ip_address(host).is_loopback
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._unhandled)
        self._loop.call_soon(self._accept_again)
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="tachoscope-web", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End all connections and the thread. May be called twice, and before `start`."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self.site.auth.close(wait=True)
        if self._slow is not None:
            self._slow.shutdown(wait=False, cancel_futures=True)

    def reload(self, web_config: WebConfig | None) -> None:
        """Serve new connections by this configuration; those that wait for another request are closed, others after their answer.

        Raises:
            TachoscopeError: when the certificates cannot be used: then all is as before.
        """
        site = _site(web_config)
        loop, done = self._loop, threading.Event()
        if loop is None:
            self._web_config = web_config
            return
        loop.call_soon_threadsafe(self._replace_site, site, done)
        done.wait(5.0)

    @property
    def _is_open(self) -> bool:
        """Whether nothing but the address keeps anybody out; a page in a browser knows neither certificate nor password."""
        return self.site.door.context is None and not self.site.auth.asks

    # In the server's thread.

    def most_body_bytes(self, head: RequestHead) -> int:
        """Return how long the body of a request may be; 0: it may have none."""
        handler = _of_path(self._posts, head.request.path) if head.method == "POST" and not head.from_page else None
        return handler.most_body_bytes if isinstance(handler, SlowHandler) else 0

    def answer(self, head: RequestHead, later: Callable[[Response], None]) -> Response | None:
        """Return the page that an authorised client asks for; None: `later` gets it, in another thread."""
        if self._loopback and self._is_open and not _means_this_machine(head.host):
            return status_only(421)
        path = head.request.path
        shown, posted = _of_path(self._routes, path), _of_path(self._posts, path)
        allowed = [*(("GET", "HEAD") if shown else ()), *(("POST",) if posted else ())]
        if not allowed:
            return status_only(404)
        if head.method not in allowed:
            return status_only(405, ("Allow", ", ".join(allowed)))
        if head.method == "POST" and head.from_page:
            return status_only(403)
        handler = posted if head.method == "POST" else shown
        assert handler is not None
        if not isinstance(handler, SlowHandler):
            return self._handled(handler, head.request)
        if self._waiting >= WAITING:
            return status_only(503, ("Retry-After", "1"))
        self._waiting += 1
        self._slow = self._slow or ThreadPoolExecutor(1, thread_name_prefix="tachoscope-web-slow")
        self._slow.submit(self._handle_slowly, handler.handler, head.request, later)
        return None

    def _handle_slowly(self, handler: Handler, request: Request, later: Callable[[Response], None]) -> None:
        response, loop = self._handled(handler, request), self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the server stopped meanwhile
                loop.call_soon_threadsafe(self._one_waits_less)
        later(response)

    def _one_waits_less(self) -> None:
        self._waiting -= 1

    def _handled(self, handler: Handler, request: Request) -> Response:
        try:
            return _sound(handler(request))
        except Exception:
            self._seldom(request.path, f"the page {request.path} failed: {traceback.format_exc().strip()}")
            return status_only(500)

    def count(self, reason: str) -> None:
        self.refused[reason] += 1

    def forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            assert self._listener is not None
            loop.remove_reader(self._listener)
            self._listener.close()
            for connection in list(self._connections):
                connection.close()
            loop.run_until_complete(_finish(self._tasks))
            loop.close()

    def _replace_site(self, site: SitePolicy, done: threading.Event) -> None:
        old, self.site = self.site, site
        old.auth.close(wait=False)
        for connection in list(self._connections):
            connection.retire()
        done.set()

    def _accept_again(self) -> None:
        loop, listener = asyncio.get_running_loop(), self._listener
        assert listener is not None
        loop.add_reader(listener, self._accept, loop, listener)

    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _address = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                # No file descriptor is free: the listener stays readable, so looking again at once would only burn the CPU.
                self._seldom("accept", f"no connection can be accepted: {error.strerror}; trying again every {_RETRY_SECONDS:g} s")
                loop.remove_reader(listener)
                loop.call_later(_RETRY_SECONDS, self._accept_again)
                return
            self._admit(loop, sock)

    def _admit(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        while len(self._connections) >= self.limits.connections:
            self.count("too_many")
            self._least_worthy().close()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio does so only where the listener names its protocol
        connection = Connection(self, loop, sock)
        self._connections[connection] = None
        task = loop.create_task(loop.connect_accepted_socket(lambda: connection, sock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda task: connection.close() if task.cancelled() or task.exception() else None)

    def _least_worthy(self) -> Connection:
        for connection in self._connections:  # in the order of their coming
            if not connection.served:
                return connection
        resting = [connection for connection in self._connections if not connection.busy]
        return min(resting or self._connections, key=lambda connection: connection.last_used)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ConnectionError | TimeoutError):
            return  # a client that vanished
        text = "".join(traceback.format_exception(error)).strip() if isinstance(error, BaseException) else ""
        self._seldom("server", f"the HTTP server: {context.get('message')} {text}".strip())

    def _seldom(self, subject: str, line: str) -> None:
        """Log a line that clients can cause at will."""
        now = time.monotonic()
        if now - self._logged.get(subject, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged[subject] = now
            self._log(line)


def _means_this_machine(host: str) -> bool:
    """Return whether a name is one of this machine itself: another that leads here is a page's in a browser (DNS rebinding)."""
    if host in {"", "localhost", socket.gethostname().lower()} or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _of_path(routes: Mapping[str, AnyHandler], path: str) -> AnyHandler | None:
    parts = path.rsplit("/", 2)
    patterns = [path, f"{path.rpartition('/')[0]}/*", *([f"{parts[0]}/*/{parts[2]}"] if len(parts) == 3 else [])]
    return next((routes[pattern] for pattern in patterns if pattern in routes), None)


async def _finish(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(2):  # what was aborted is closed one turn of the loop later
        await asyncio.sleep(0)


def _sound(response: Response) -> Response:
    for text in (response.content_type, *(part for header in response.headers for part in header)):
        if not text.isascii() or not text.isprintable():
            raise ValueError(f"a header holds {text!r}")
    memoryview(response.body)
    http.HTTPStatus(response.status)
    return response


def _site(config: WebConfig | None) -> SitePolicy:
    config = config or WebConfig()
    door = ConnectionPolicy(web_configs.ssl_context(config), frozenset(plain_san(name) for name in config.client_allowed_sans))
    return SitePolicy(door, config.headers, Auth(config.users, config.tokens))


def _within_file_limit(limits: Limits) -> Limits:
    """Return limits that leave half of the process's file descriptors to others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, soft // 2)))


def _listen(address: str, port: int) -> socket.socket:
    place = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    try:
        if address in ("", "::") and socket.has_dualstack_ipv6():
            listener = socket.create_server(("::", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        else:
            found = socket.getaddrinfo(address or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)  # noqa: S104
            family, *_, sockaddr = min(found, key=lambda info: info[0] != socket.AF_INET)  # localhost is 127.0.0.1 first
            # The port as it was given: getaddrinfo makes 4464 of 70000.
            listener = socket.create_server((str(sockaddr[0]), port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        raise TachoscopeError(f"cannot listen on {place}: {_reason(error)}", fix=_way_out(error, port)) from None
    listener.setblocking(False)
    return listener


def _reason(error: Exception) -> str:
    code = getattr(error, "errno", None)
    named = isinstance(error, socket.gaierror) or code is None
    return str(getattr(error, "strerror", None) or error) if named or code is None else os.strerror(code)


def _way_out(error: Exception, port: int) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known here: write an IP address, or 0.0.0.0 for all addresses"
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"another process listens there, `ss -ltnp 'sport = :{port}'` names it: stop it or choose another port"
        case errno.EACCES | errno.EPERM:
            return "choose a port above 1023, or give the agent CAP_NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address: write one of its own, or 0.0.0.0 for all"
    return "choose an address of this machine and a port from 0 to 65535"
