"""Asks a Prometheus a query over HTTP: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from tachoscope_core.errors import TachoscopeError

ANSWER_SECONDS = 60.0
MOST_BYTES = 32 << 20


def ask(
    url: str, query: str, *, at: float | None = None, most_bytes: int = MOST_BYTES, less: str = "ask for less time"
) -> list[Mapping[str, Any]]:
    """Return the series that an instant query gives, each with its labels in `metric` and with `value` or `values`.

    Args:
        url: such as http://prometheus:9090. at: Unix seconds; now without. less: what a user can do about too large an answer.

    Raises:
        TachoscopeError: no answer within `ANSWER_SECONDS`, none of a Prometheus, or one of more than `most_bytes`.
    """
    when = {} if at is None else {"time": f"{at:.3f}"}
    body = urllib.parse.urlencode({"query": query, "timeout": f"{ANSWER_SECONDS:g}s", **when}).encode()
    target = f"{url.rstrip('/')}/api/v1/query"
    try:
        if urllib.parse.urlsplit(target).scheme not in {"http", "https"}:
            raise TachoscopeError(f"{url!r} is no http:// or https:// URL of a Prometheus", fix="such as http://127.0.0.1:9090")
        with urllib.request.urlopen(target, data=body, timeout=ANSWER_SECONDS) as answer:  # noqa: S310  # checked above
            content = answer.read(most_bytes + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(url, query, error.code, error.read(1 << 16)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise TachoscopeError(f"could not ask the Prometheus {url}: {reason}") from None
    if len(content) > most_bytes:
        raise TachoscopeError(f"{url} has more than {most_bytes >> 20} MiB for {query[:80]}", fix=less)
    try:
        found: list[Mapping[str, Any]] = json.loads(content)["data"]["result"]
    except (ValueError, KeyError, TypeError):
        raise _no_prometheus(url) from None
    return found


def _refused(url: str, query: str, status: int, content: bytes) -> TachoscopeError:
    try:
        why = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError):
        return _no_prometheus(url, f": it answers {status}")
    return TachoscopeError(f"{url} refuses {query[:120]}: {why}")


def _no_prometheus(url: str, why: str = "") -> TachoscopeError:
    return TachoscopeError(f"{url} does not answer as a Prometheus does{why}", fix="name its address without a path of its pages")
