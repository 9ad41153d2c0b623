"""Serves the preview's pages on this machine: files that are its own, plotly.js as it is installed, and answers as JSON.

Only GET (the library refuses all else), only the paths below, and only where the browser asks for the address that is served: a
page elsewhere that makes its name lead here (DNS rebinding) gets nothing.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import urllib.parse
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from grafana_preview.api import Preview
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import HostNames

_SCRIPTS = ("page.js", "draw.js", "controls.js", "plotly.min.js")
_FILES = {"page.css": "text/css", **dict.fromkeys(_SCRIPTS, "text/javascript")}
_BOARD = re.compile(r"/d/([\w-]{1,80})(?:/[\w-]*)?")
_ANSWER = re.compile(r"/api/(board|marks|panel)/([\w-]{1,80})(?:/(\d{1,6}))?")
_HEADERS = {
    # plotly.js sets styles of elements and makes heatmaps images; scripts and requests are from here alone.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LONGEST_PATH, _MOST_CHOICES = 16_384, 1000
_KEPT = "plotly.min.js"


class Server(ThreadingHTTPServer):
    """A server of one preview."""

    daemon_threads = True

    def __init__(self, preview: Preview, host: str, port: int) -> None:
        self.preview = preview
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise TachoscopeError(f"could not serve on {host} port {port}: {error}", fix="--port 0 takes a free one") from None
        self.url = f"http://{host}:{self.server_port}"
        self.names = HostNames(host, self.server_port)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away in the middle of an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    timeout = 120

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        if not self.server.names.has(self.headers.get("Host", "")):
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST, f"this is {self.server.url}")
        if len(self.path) > _LONGEST_PATH:
            return self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
        if address.path == "/":
            return self._lead(f"/d/{next(iter(self.server.preview.boards))}{address.query and '?'}{address.query}")
        if found := _ANSWER.fullmatch(address.path):
            return self._answer(found, address.query)
        if (board := _BOARD.fullmatch(address.path)) and board[1] in self.server.preview.boards:
            return self._send(HTTPStatus.OK, "text/html", _file("page.html"))
        name = address.path.removeprefix("/static/")
        if address.path == f"/static/{name}" and name in _FILES:
            return self._send(HTTPStatus.OK, _FILES[name], _file(name), keep="max-age=600" if name == _KEPT else "no-store")
        return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _answer(self, found: re.Match[str], query: str) -> None:
        preview, (what, uid, number) = self.server.preview, found.groups()
        try:
            asked = urllib.parse.parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_CHOICES)
            if what == "panel":
                answer = preview.panel(uid, number or "", asked)
            else:
                answer = preview.frame(uid, asked) if what == "board" else preview.marks(uid, asked)
        except KeyError as error:
            return self._refuse(HTTPStatus.NOT_FOUND, f"there is no {what} {error}")
        except ValueError as error:
            return self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except TachoscopeError as error:
            return self._refuse(HTTPStatus.BAD_GATEWAY, str(error))
        return self._send(HTTPStatus.OK, "application/json", json.dumps(answer, allow_nan=False).encode())

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(status, "application/json", json.dumps({"error": why}).encode())

    def _lead(self, path: str) -> None:
        self.send_response(HTTPStatus.FOUND)
        self.send_header("Location", path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, status: HTTPStatus, kind: str, body: bytes, keep: str = "no-store") -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), "Cache-Control": keep}
        for name, value in (headers | _HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the library names it
        pass


@cache
def _file(name: str) -> bytes:
    return (plotly_folder() if name == _KEPT else Path(__file__).parent).joinpath(name).read_bytes()


def plotly_folder() -> Path:
    """Return where the installed plotly keeps plotly.js.

    Raises:
        TachoscopeError: it is not installed.
    """
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise TachoscopeError("this command needs plotly", fix="pip install 'tachoscope[dashboards]'")
    return Path(found.origin).parent / "package_data"
