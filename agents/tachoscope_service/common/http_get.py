"""Pages of metrics, of servers in any state: see `http_client`."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_core.net.http_client import HttpError, request


def get(url: str, *, seconds: float, most_bytes: int, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the page.

    Args:
        seconds: for everything together, but for the look-up of a host's name, which the system bounds.
        headers: sent with the request, checked by who gives them.

    Raises:
        HttpError: there is none within the time and size, or the server has something else to say.
    """
    answer = request(
        url, seconds=seconds, most_bytes=most_bytes, headers={"Accept": "text/plain", **(headers or {})}
    ).raise_for_status()
    if (encoding := answer.headers.get("Content-Encoding", "identity")) != "identity":
        raise HttpError(f"it sends {encoding[:20]!r}, which was not requested")
    if answer.content and not answer.content.endswith(b"\n"):
        raise HttpError(f"the connection was closed after {len(answer.content)} bytes")
    return answer.content


def check(url: str, *, seconds: float, most_bytes: int, body: str = "", headers: Mapping[str, str] | None = None) -> None:
    """Ask, and read the whole answer.

    Args:
        seconds: as for `get`. body: JSON, sent with POST; without one it is a GET.

    Raises:
        HttpError: there is no answer of 2xx within the time and size.
    """
    kind = {"Accept": "application/json", "Content-Type": "application/json"} if body else {"Accept": "text/plain"}
    request(
        url, seconds=seconds, most_bytes=most_bytes, headers={**kind, **(headers or {})}, body=body.encode() or None
    ).raise_for_status()
