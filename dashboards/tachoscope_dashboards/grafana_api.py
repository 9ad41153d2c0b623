"""Asks a Grafana over its HTTP API, with a token that no message holds: https://grafana.com/docs/grafana/latest/developers/http_api/.

The token goes to the address that was named and nowhere else: no redirect is followed, and plain http is refused on the way to
another machine.
"""

from __future__ import annotations

import http
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import is_loopback
from tachoscope_core.net.http_client import HttpError, request

ANSWER_SECONDS = 30.0
MOST_BYTES = 16 << 20
_MOST_WORDS = 300


class GrafanaResponse(NamedTuple):
    """An answer: its status, and its JSON."""

    status: int
    content: Any

    @property
    def text(self) -> str:
        """What it says, for people: printable, and not long."""
        said = self.content.get("message", "") if isinstance(self.content, dict) else ""
        return "".join(sign if sign.isprintable() else " " for sign in str(said)[:_MOST_WORDS])


class Grafana:
    """A Grafana and a token of a service account."""

    def __init__(self, url: str, token: str, *, insecure: bool = False) -> None:
        """Check the address and the token; nothing is asked yet.

        Args:
            url: such as https://grafana.example.com, with a path where it is served below one. insecure: send the token over plain
                http to another machine.

        Raises:
            TachoscopeError: one of them cannot be used.
        """
        self.url = _checked(url, insecure=insecure)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise TachoscopeError("the token is empty, or has invalid characters", fix="one line, as Grafana showed it")
        self._token = token

    def request(self, path: str, body: dict[str, Any] | None = None, *, method: str = "") -> GrafanaResponse:
        """Return the answer to a GET, or with a body to a POST or `method`; also where Grafana does not find it, or refuses it.

        Raises:
            TachoscopeError: no answer, none of a Grafana, or the token may not do this.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        url = f"{self.url}{path}"
        try:
            answer = request(
                url, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES, method=method, body=data, headers=headers, proxies=True
            )
        except HttpError as error:
            raise TachoscopeError(f"could not reach Grafana at {self.url}: {self._without_token(str(error))}") from None
        self._refuse_redirect(answer.status, answer.headers.get("Location", ""))
        return self._understood(path, answer.status, answer.content)

    def _understood(self, path: str, status: int, content: bytes) -> GrafanaResponse:
        try:
            found = GrafanaResponse(status, json.loads(self._without_token(content.decode())))
        except ValueError:
            raise TachoscopeError(
                f"{self.url}{path} is not a Grafana server (status {status})",
                fix="name its address without a page's path",
            ) from None
        if status == http.HTTPStatus.UNAUTHORIZED:
            raise TachoscopeError(f"{self.url} rejects the token with {found.text!r}", fix="make one of a service account")
        if status == http.HTTPStatus.FORBIDDEN:
            what = f"the token may not do this, and Grafana says {found.text!r}"
            raise TachoscopeError(f"{self.url}{path}: {what}", fix="give its service account the role Editor")
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TachoscopeError(f"{self.url}{path} answers {status}: {found.text}", fix="look into Grafana's log")
        return found

    def _refuse_redirect(self, status: int, where: str) -> None:
        if http.HTTPStatus.MULTIPLE_CHOICES <= status < http.HTTPStatus.BAD_REQUEST:
            place = self._without_token(where)[:_MOST_WORDS]
            raise TachoscopeError(f"{self.url} redirects to {place}, where the token is not sent", fix="name the address itself")

    def _without_token(self, text: str) -> str:
        return text.replace(self._token, "<token>")


def _checked(url: str, *, insecure: bool) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise TachoscopeError(f"{url!r} is not an address", fix="write https://host") from None
    if parts.username or parts.password:
        raise TachoscopeError("the address contains a user or a password", fix="give a token by --token-file or --token-env")
    if not usable or parts.query or parts.fragment:
        raise TachoscopeError(f"{url!r} is not an http:// or https:// address of a Grafana", fix="write https://host")
    if parts.scheme == "http" and not insecure and not is_loopback(parts.hostname or ""):
        fix = "use https://, or --insecure if the network between is yours"
        raise TachoscopeError(f"{url} is plain http to another machine: the token would be sent unencrypted", fix=fix)
    return url.rstrip("/")
