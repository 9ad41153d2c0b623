"""A server for one test, and clients that speak to it on bare sockets."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import bcrypt

from tachoscope_service.http.server import AnyHandler, Limits, Request, Response, SlowHandler, WebServer
from tachoscope_service.http.web_config import WebConfig

PAGE = b"".join(b'tachoscope_gpu_busy_ratio{gpu="%d"} 0.5\n' % number for number in range(100))
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4))
USERS = WebConfig(users={"alice": HASH})
MOST_BODY_BYTES = 4096


def broken(_: Request) -> Response:
    raise RuntimeError("the secret reason")


@contextlib.contextmanager
def serving(
    config: WebConfig | None = None, *, page: bytes = PAGE, address: str = "127.0.0.1", **limits: Any
) -> Iterator[WebServer]:
    """Serve /metrics, /broken and /echo; the log's lines are in `lines` of the server."""
    lines: list[str] = []
    routes: dict[str, AnyHandler] = {
        "/metrics": lambda _: Response(200, "text/plain", page, ()),
        "/broken": broken,
        "/echo": lambda request: Response(200, "text/plain", repr(request).encode(), (("X-Extra", "1"),)),
    }
    posts: dict[str, AnyHandler] = {
        "/a/*/do": lambda request: Response(202, "text/plain", f"did {request.path}".encode()),
        "/a/*/take": SlowHandler(lambda request: Response(201, "text/plain", request.body), MOST_BODY_BYTES),
        "/a/*/break": SlowHandler(broken),
    }
    routes["/a/*/do"] = routes["/echo"]
    server = WebServer(routes, posts=posts, address=address, port=0, web_config=config, log=lines.append, limits=Limits(**limits))
    server.lines = lines  # type: ignore[attr-defined]
    server.start()
    try:
        yield server
    finally:
        server.stop()


def connect(server: WebServer, context: ssl.SSLContext | None = None) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    return sock if context is None else context.wrap_socket(sock, server_hostname="localhost")


def ask(path: str = "/metrics", *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def answer(sock: socket.socket, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Read one response."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = sock.recv(1)  # no more than this response: the next may follow at once
        if not part:
            raise EOFError(f"closed after {got!r}")
        got += part
    first, *lines = got.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    length = 0 if head_only else int(headers.get("content-length", 0))
    body = b""
    while len(body) < length:
        part = sock.recv(length - len(body))
        if not part:
            raise EOFError("closed within the body")
        body += part
    return int(first.split()[1]), headers, body


def fetch(
    server: WebServer, *headers: str, path: str = "/metrics", context: ssl.SSLContext | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Ask once on a connection of its own."""
    with connect(server, context) as sock:
        sock.sendall(ask(path, *headers))
        return answer(sock)


def closed(sock: socket.socket) -> bool:
    """Wait until the server ends the connection; what it still says is thrown away."""
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()
