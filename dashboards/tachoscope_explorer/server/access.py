"""Who may look: stands around the whole of the explorer, its pages, their socket, files, uploads and whatever else is served.

Three questions, in this order. Does the request name this server (see `host_names`), and come from a page of it? Where a proxy has
authenticated people: does it come from that proxy, and say who? Where there is a password: is there a session? Only
`/_stcore/health` answers everybody, for probes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import urllib.parse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response

from tachoscope_core.net.allowed_hosts import HostNames, within
from tachoscope_explorer.server import login
from tachoscope_explorer.server.headers import Message, Send, guarded
from tachoscope_explorer.server.password import Password
from tachoscope_explorer.server.sessions import LIFE_SECONDS, Session, Sessions, Tries
from tachoscope_service.http.auth import AuthResult

Receive = Callable[[], Awaitable[Message]]
App = Callable[[Any, Receive, Send], Awaitable[None]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HEALTH = "/_stcore/health"
LOOPBACK = ipaddress.ip_network("127.0.0.1")
_LONGEST_FORM = 8192
_POLICY_VIOLATED = 1008


@dataclass(frozen=True, slots=True)
class Access:
    """Who may look; everybody who reaches the server where neither is set.

    Attributes:
        password_hash: of the one password, in bcrypt's form; empty for none.
        proxy_header: in which a proxy says who asks; empty for none. trusted: where that proxy is.
        names: by which browsers know the proxy in front of this server.
    """

    password_hash: bytes = b""
    proxy_header: str = ""
    trusted: tuple[Network, ...] = (LOOPBACK,)
    names: tuple[str, ...] = ()


class GuardedApp:
    """The application with `Access` around it, as ASGI has it."""

    def __init__(self, app: App, access: Access, names: HostNames) -> None:
        self._app, self._access, self._names = app, access, names
        self._password = Password(access.password_hash) if access.password_hash else None
        self._sessions, self._tries = Sessions(), Tries()
        self._cookie = f"tachoscope_{names.port}"  # browsers do not tell the ports of a host apart

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request, or let it through."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        send = guarded(send)
        asked = HTTPConnection(scope)
        if scope["type"] == "http" and scope["path"] == HEALTH:
            await self._app(scope, receive, send)
        elif why := self._refused(asked):
            await _refuse(*why, scope, receive, send)
        elif self._password is None:
            await self._app(scope, receive, send)
        elif scope["path"] in {login.PATH, login.OUT} and scope["type"] == "http":
            answer = await (self._log_in(Request(scope, receive)) if scope["path"] == login.PATH else self._log_out(asked))
            await answer(scope, receive, send)
        elif session := self._sessions.find(asked.cookies.get(self._cookie, "")):
            socket = scope["type"] == "websocket"
            await self._app(scope, self._while_it_lasts(session, receive) if socket else receive, send)
        elif scope["type"] == "http" and _is_page(asked):
            await _login_page(asked)(scope, receive, send)
        else:
            await _refuse(HTTPStatus.UNAUTHORIZED, "log in first", scope, receive, send)

    def _refused(self, asked: HTTPConnection) -> tuple[HTTPStatus, str] | None:
        """Return why a request gets nothing, whatever it is for."""
        host, origin = asked.headers.get("host", ""), asked.headers.get("origin")
        if not self._names.has(host):
            return HTTPStatus.MISDIRECTED_REQUEST, (
                f"this server does not go by the name {host[:200]!r}: ask for it by its address, or start it with --allow-host NAME"
            )
        if origin is not None and not _same_place(origin, host) and not (origin == "null" and _is_own_form(asked)):
            return HTTPStatus.FORBIDDEN, "requests of other sites' pages are refused"
        header = self._access.proxy_header
        if header and not self._is_trusted(asked):
            return HTTPStatus.FORBIDDEN, "only the proxy in front of this server may ask: use the proxy's address"
        if header and [bool(value.strip()) for value in asked.headers.getlist(header)] != [True]:
            return HTTPStatus.FORBIDDEN, f"the proxy does not say who asks: one header {header} is needed"
        return None

    def _is_trusted(self, asked: HTTPConnection) -> bool:
        return within(asked.client.host if asked.client else "", self._access.trusted)

    async def _log_in(self, request: Request) -> Response:
        if request.method != "POST":
            return _page(HTTPStatus.OK, login.page("/"))
        form = await _form(request)
        next_ = login.next_of(form.get("next", "/"))
        address = request.client.host if request.client else ""
        if wait := self._tries.wait(address):
            answer = _page(HTTPStatus.TOO_MANY_REQUESTS, login.page(next_, login.please_wait(wait)))
            answer.headers["retry-after"] = str(math.ceil(wait))
            return answer
        self._tries.count(address)
        assert self._password is not None, "only where there is one can anybody log in"
        verdict = await self._password.verdict(form.get("password", ""))
        if verdict is AuthResult.BUSY:
            return _page(HTTPStatus.SERVICE_UNAVAILABLE, login.page(next_, login.BUSY))
        if verdict is not AuthResult.ALLOWED:
            return _page(HTTPStatus.FORBIDDEN, login.page(next_, login.WRONG))
        self._tries.forgive(address)
        answer = RedirectResponse(next_, HTTPStatus.SEE_OTHER, headers={"cache-control": "no-store"})
        secure = self._is_trusted(request) and request.headers.get("x-forwarded-proto", "").lower() == "https"
        life = int(LIFE_SECONDS)
        answer.set_cookie(self._cookie, self._sessions.begin(), max_age=life, httponly=True, samesite="strict", secure=secure)
        return answer

    async def _log_out(self, asked: HTTPConnection) -> Response:
        self._sessions.end(asked.cookies.get(self._cookie, ""))
        answer = RedirectResponse(login.PATH, HTTPStatus.SEE_OTHER, headers={"cache-control": "no-store"})
        answer.delete_cookie(self._cookie, httponly=True, samesite="strict")
        return answer

    def _while_it_lasts(self, session: Session, receive: Receive) -> Receive:
        """Return `receive` that says that the browser has gone once the session is over: pages that are open show no more."""

        async def received() -> Message:
            message, over = asyncio.ensure_future(receive()), asyncio.ensure_future(session.over.wait())
            try:
                left = self._sessions.seconds_left(session)
                await asyncio.wait({message, over}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if over.done() or not message.done():
                    return {"type": "websocket.disconnect", "code": _POLICY_VIOLATED, "reason": "log in first"}
                return message.result()
            finally:
                over.cancel()
                message.cancel()

        return received


def _same_place(origin: str, host: str) -> bool:
    return origin.partition("://")[2].lower() == host.lower()


def _is_own_form(asked: HTTPConnection) -> bool:
    """Return whether it is the password's form: with our policy on referrers a browser does not say where a form was."""
    site: str = asked.headers.get("sec-fetch-site", "same-origin")
    return (asked.scope["path"], site) == (login.PATH, "same-origin")


def _is_page(asked: HTTPConnection) -> bool:
    return asked.scope["method"] in {"GET", "HEAD"} and "text/html" in asked.headers.get("accept", "")


def _login_page(asked: HTTPConnection) -> Response:
    if asked.headers.get("sec-fetch-site") == "cross-site":
        return _page(HTTPStatus.OK, login.once_more())
    query = asked.scope["query_string"].decode("latin-1")
    path = urllib.parse.quote(asked.scope["path"], safe="/~!$&'()*+,;=:@")
    return _page(HTTPStatus.UNAUTHORIZED, login.page(login.next_of(f"{path}{'?' if query else ''}{query}")))


def _page(status: HTTPStatus, body: bytes) -> Response:
    headers = {"content-security-policy": login.POLICY, "cache-control": "no-store"}
    return Response(body, status, headers, media_type="text/html")


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of one that is too long none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return {}
    fields = urllib.parse.parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
    return dict(fields[:8])


async def _refuse(status: HTTPStatus, why: str, scope: Any, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATED, "reason": why[:120]})
        return
    answer = Response(f"{why}\n", status, {"cache-control": "no-store"}, media_type="text/plain")
    await answer(scope, receive, send)
