"""The headers that every answer of the explorer has: what a browser may do with it, and whom it may ask."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@cache
def policy() -> str:
    """Return the Content-Security-Policy of Streamlit's pages: nothing is asked of any other host.

    Its styles are made in the browser, plotly makes heatmaps images and workers come from blobs. Its few lines of script are
    allowed by their hash, so that no other text in a page runs.
    """
    scripts = " ".join(f"'sha256-{_sha256(text)}'" for text in _SCRIPT.findall(_index()))
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self' data: blob:; media-src 'self' data: blob:; worker-src 'self' blob:; "
        "frame-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
    )


def guarded(send: Send) -> Send:
    """Return `send` that adds the headers to an answer; a route's own Content-Security-Policy stays."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            names = {name for name, _ in given}
            message = {**message, "headers": [*given, *((name, value) for name, value in _headers() if name not in names)]}
        await send(message)

    return sent


@cache
def _headers() -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"content-security-policy", policy().encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"x-frame-options", b"SAMEORIGIN"),
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _index() -> str:
    found = importlib.util.find_spec("streamlit")
    assert found is not None and found.origin is not None, "the explorer is made of it"
    return (Path(found.origin).parent / "static" / "index.html").read_text()
