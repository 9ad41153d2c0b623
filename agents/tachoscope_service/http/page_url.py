"""Whether a URL can be that of a page of metrics."""

from __future__ import annotations

from urllib.parse import urlsplit

_PAGE = "http://127.0.0.1:9400/metrics"


def page_fault(url: str) -> str:
    """Return what keeps a URL from being that of a page, or nothing."""
    if not url.startswith(("http://", "https://")):
        return f"is not an http:// or https:// URL, as {_PAGE} is"
    if not url.isascii() or not url.isprintable() or " " in url:
        return f"has a space or a character in it that no URL has: write it as {_PAGE} is"
    try:
        parts = urlsplit(url)
        if parts.port == 0:
            return f"has a port that is not from 1 to 65535: write it as {_PAGE} is"
    except ValueError as error:
        return f"is not a URL ({error}): write it as {_PAGE} is"
    return "" if parts.hostname else f"names no host: write it as {_PAGE} is"
