"""Nobody gets anything of the explorer who may not: neither pages nor files, uploads, other routes or the socket."""

from __future__ import annotations

import asyncio
import ipaddress
import urllib.parse
from typing import Any

import pytest

from tachoscope_core.net.allowed_hosts import HostNames
from tachoscope_explorer.server.access import HEALTH, Access, GuardedApp
from trying import each

SECRET = b"what only some may see"
PATHS = ["/", "/job", "/static/js/index.js", "/media/a.csv", "/_stcore/host-config", "/_stcore/upload_file/a/b", "/_stcore/metrics",
         "/perfetto/index.html", "/_stcore/health/", "/%2e%2e/_stcore/health"]  # fmt: skip


async def inner(scope: Any, receive: Any, send: Any) -> None:
    """Stand for Streamlit: gives everything to everybody; of a socket it sends back each message."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": SECRET})
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "bytes": message["bytes"]})


def door(names: tuple[str, ...] = (), **access: Any) -> GuardedApp:
    return GuardedApp(inner, Access(names=names, **access), HostNames("127.0.0.1", 8501, names))


def scope_of(kind: str, path: str, method: str, client: str, headers: dict[str, str]) -> dict[str, Any]:
    path, _, query = path.partition("?")
    asked = {"host": "127.0.0.1:8501"} | headers
    return {
        "type": kind,
        "method": method,
        "path": urllib.parse.unquote(path),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in asked.items() if value is not None],
        "client": (client, 5000),
        "scheme": "http",
    }


def ask(
    to: GuardedApp, path: str = "/", method: str = "GET", body: bytes = b"", client: str = "127.0.0.1", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body; underscores in the names of headers are hyphens."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {name.replace("_", "-"): value for name, value in headers.items()}
    asyncio.run(to(scope_of("http", path, method, client, given), receive, send))
    head = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:])


@each("path", PATHS)
@each("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
def test_whom_the_proxy_does_not_name_gets_nothing(path: str, method: str) -> None:
    status, _, body = ask(door(proxy_header="X-User"), path, method)

    assert (status, SECRET in body) == (403, False)


def test_a_probe_gets_its_answer_from_wherever_it_asks() -> None:
    assert ask(door(proxy_header="X-User"), HEALTH, client="10.0.0.9", host="10.0.0.2:8501")[0] == 200


@pytest.mark.parametrize("host", ["evil.example.com:8501", "127.0.0.1", "", "127.0.0.1:1"])
def test_a_name_that_was_made_to_lead_here_gets_nothing(host: str) -> None:
    for kind in ("http", "websocket"):
        assert talk(door(), kind=kind, host=host) == []
    status, _, body = ask(door(), host=host)
    assert status == 421
    assert b"--allow-host NAME" in body


@pytest.mark.parametrize(
    "origin", ["http://evil.example.com", "null", "http://127.0.0.1:9999", "http://localhost:8501", "", "x", "http://["]
)
def test_pages_of_other_sites_get_nothing_and_no_socket(origin: str) -> None:
    assert ask(door(), method="PUT", origin=origin)[0] == 403
    assert talk(door(), origin=origin) == []


def test_our_own_pages_and_programs_get_what_they_ask_for() -> None:
    assert ask(door(), method="PUT", origin="http://127.0.0.1:8501")[0] == 200
    assert talk(door(), origin="http://127.0.0.1:8501") == [b"hello"]
    assert talk(door()) == [b"hello"]
    assert talk(door(("explorer.example.com",)), host="explorer.example.com", origin="https://explorer.example.com") == [b"hello"]


def test_where_a_proxy_says_who_asks_only_it_is_believed() -> None:
    to = door(proxy_header="X-Forwarded-User", trusted=(ipaddress.ip_network("10.0.0.0/8"),))

    assert ask(to, client="10.0.0.7", x_forwarded_user="ada")[0] == 200
    for asked in ({"client": "10.0.0.7"}, {"client": "10.0.0.7", "x_forwarded_user": "  "}):
        status, _, body = ask(to, **asked)
        assert (status, b"one header X-Forwarded-User is needed" in body) == (403, True)
    status, _, body = ask(to, client="192.0.2.7", x_forwarded_user="ada")
    assert (status, b"only the proxy" in body) == (403, True)
    assert talk(to, client="192.0.2.7", x_forwarded_user="ada") == []
    assert talk(to, client="::ffff:10.0.0.7", x_forwarded_user="ada") == [b"hello"]


def test_a_header_that_came_twice_is_not_believed() -> None:
    to, sent = door(proxy_header="X-User"), list[Any]()
    scope = scope_of("http", "/", "GET", "127.0.0.1", {})
    scope["headers"] += [(b"x-user", b"mallory"), (b"x-user", b"ada")]

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(to(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 403


@pytest.mark.parametrize("path", ["/", HEALTH, "/media/x"])
@pytest.mark.parametrize("access", [{}, {"proxy_header": "X-User"}])
def test_every_answer_tells_browsers_to_ask_nobody_else_and_to_guess_nothing(path: str, access: dict[str, Any]) -> None:
    _, headers, _ = ask(door(**access), path)

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["frame-ancestors"] == "'self'"
    assert policy["default-src"] in ("'self'", "'none'")
    assert not any("http" in value or "*" in value or "unsafe-eval" in value for value in policy.values())
    assert "unsafe-inline" not in policy.get("script-src", "")


def talk(to: GuardedApp, *, kind: str = "websocket", client: str = "127.0.0.1", **headers: str) -> list[bytes]:
    """Return what a socket sends back to `hello`, nothing where it is refused."""
    sent: list[Any] = []

    async def talked() -> None:
        messages = [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "bytes": b"hello"},
            {"type": "websocket.disconnect"},
        ]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        given = {name.replace("_", "-"): value for name, value in headers.items()}
        await to(scope_of(kind, "/_stcore/stream", "GET", client, given), receive, send)

    asyncio.run(talked())
    return [message["bytes"] for message in sent if message["type"] == "websocket.send"]
