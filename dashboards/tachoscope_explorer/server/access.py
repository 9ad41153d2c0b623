"""Who may look: stands around the whole of the explorer, its pages, their socket, files, uploads and all else that is served.

Two questions, in this order. Does the request name this server (see `allowed_hosts`), and come from a page of it? Where a proxy
authenticates people: does the request come from that proxy, and say who asks? Only `/_stcore/health` answers everybody, for probes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response

from tachoscope_core.net.allowed_hosts import HostNames, is_in_networks
from tachoscope_explorer.server.headers import Message, Send, guarded

Receive = Callable[[], Awaitable[Message]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HEALTH = "/_stcore/health"
LOOPBACK = ipaddress.ip_network("127.0.0.1")
_POLICY_VIOLATED = 1008


@dataclass(frozen=True, slots=True)
class Access:
    """Who may look; all who reach the server where no header is set.

    Attributes:
        proxy_header: in which a proxy says who asks; empty for none. trusted: where that proxy is.
        names: by which browsers know the proxy in front of this server.
    """

    proxy_header: str = ""
    trusted: tuple[Network, ...] = (LOOPBACK,)
    names: tuple[str, ...] = ()


class GuardedApp:
    """The application with `Access` around it, as ASGI has it."""

    def __init__(self, app: App, access: Access, names: HostNames) -> None:
        self._app, self._access, self._names = app, access, names

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        send = guarded(send)
        probe = scope["type"] == "http" and scope["path"] == HEALTH
        if not probe and (why := self._refused(HTTPConnection(scope))):
            await _refuse(*why, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refused(self, asked: HTTPConnection) -> tuple[HTTPStatus, str] | None:
        """Return why a request gets nothing, whatever it is for."""
        host, origin = asked.headers.get("host", ""), asked.headers.get("origin")
        if not self._names.has(host):
            return HTTPStatus.MISDIRECTED_REQUEST, (
                f"this server does not go by the name {host[:200]!r}: ask for it by its address, or start it with --allow-host NAME"
            )
        if origin is not None and not _same_place(origin, host):
            return HTTPStatus.FORBIDDEN, "requests of other sites' pages are refused"
        header = self._access.proxy_header
        if header and not is_in_networks(asked.client.host if asked.client else "", self._access.trusted):
            return HTTPStatus.FORBIDDEN, "only the proxy in front of this server may ask: use the proxy's address"
        if header and [bool(value.strip()) for value in asked.headers.getlist(header)] != [True]:
            return HTTPStatus.FORBIDDEN, f"the proxy does not say who asks: one header {header} is needed"
        return None


def _same_place(origin: str, host: str) -> bool:
    return origin.partition("://")[2].lower() == host.lower()


async def _refuse(status: HTTPStatus, why: str, scope: Any, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATED, "reason": why[:120]})
        return
    answer = Response(f"{why}\n", status, {"cache-control": "no-store"}, media_type="text/plain")
    await answer(scope, receive, send)
