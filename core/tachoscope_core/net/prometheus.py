"""Asks a Prometheus a query over HTTP: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.http_client import HttpError, HttpResponse, TooLongError
from tachoscope_core.net.http_client import request as ask_server

ANSWER_SECONDS = 60.0
MOST_BYTES = 32 << 20


def instant_query(
    url: str, query: str, *, at: float | None = None, most_bytes: int = MOST_BYTES, less: str = "ask for less time"
) -> list[Mapping[str, Any]]:
    """Return the series that an instant query gives, each with its labels in `metric` and with `value` or `values`.

    Args:
        url: such as http://prometheus:9090. at: Unix seconds; now without. less: what a user can do about too large an answer.

    Raises:
        TachoscopeError: no answer within `ANSWER_SECONDS`, none of a Prometheus, or one of more than `most_bytes`.
    """
    when = {} if at is None else {"time": f"{at:.3f}"}
    data = fetch(url, "query", {"query": query, **when}, most_bytes=most_bytes, less=less)
    return series_in(url, data)


def range_query(url: str, query: str, *, start: float, end: float, step: float) -> list[Mapping[str, Any]]:
    """Return the series that a query gives over time, with `values` at `start` and each `step` seconds after it up to `end`.

    Raises:
        TachoscopeError: as `instant_query`.
    """
    times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
    return series_in(url, fetch(url, "query_range", {"query": query, **times}))


def label_values(url: str, label: str, selector: str, *, start: float, end: float) -> list[str]:
    """Return the values that a label has on the series of a selector between two times.

    Raises:
        TachoscopeError: as `instant_query`.
    """
    asked = {"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"}
    found = fetch(url, f"label/{urllib.parse.quote(label, safe='')}/values", asked, post=False)
    if not isinstance(found, list):
        raise _no_prometheus(url)
    return [str(value) for value in found]


def series_in(url: str, data: Any) -> list[Mapping[str, Any]]:
    """Return the series of an answer's data.

    Raises:
        TachoscopeError: it has none.
    """
    try:
        found: list[Mapping[str, Any]] = data["result"]
    except (KeyError, TypeError):
        raise _no_prometheus(url) from None
    return found


def fetch(
    url: str,
    path: str,
    asked: Mapping[str, str],
    *,
    post: bool = True,
    most_bytes: int = MOST_BYTES,
    less: str = "ask for less time",
) -> Any:
    """Return the data of what a Prometheus answers on `/api/v1/<path>`; labels have to be asked without POST.

    Raises:
        TachoscopeError: as `instant_query`.
    """
    form = urllib.parse.urlencode({**asked, "timeout": f"{ANSWER_SECONDS:g}s"} if post else asked)
    query = asked.get("query") or asked.get("match[]", "")
    target = f"{url.rstrip('/')}/api/v1/{path}" + ("" if post else f"?{form}")
    if not target.startswith(("http://", "https://")):
        raise TachoscopeError(f"{url!r} is not an http:// or https:// URL of a Prometheus", fix="such as http://127.0.0.1:9090")
    body = form.encode() if post else None
    try:
        answer = ask_server(target, seconds=ANSWER_SECONDS, most_bytes=most_bytes, body=body, proxies=True)
    except TooLongError:
        raise TachoscopeError(f"{url} has more than {most_bytes >> 20} MiB for {query[:80]}", fix=less) from None
    except HttpError as error:
        raise TachoscopeError(f"could not query the Prometheus {url}: {error}") from None
    if answer.status != 200:
        raise _refused(url, query, answer)
    try:
        return json.loads(answer.content)["data"]
    except (ValueError, KeyError, TypeError):
        raise _no_prometheus(url) from None


def _refused(url: str, query: str, answer: HttpResponse) -> TachoscopeError:
    if answer.is_redirect:
        return TachoscopeError(f"{url} redirects{answer.redirects_to}, which is not followed", fix="name that address itself")
    try:
        why = json.loads(answer.content)["error"]
    except (ValueError, KeyError, TypeError):
        return _no_prometheus(url, f": it answers {answer.status}")
    return TachoscopeError(f"{url} refuses {query[:120]}: {why}")


def _no_prometheus(url: str, why: str = "") -> TachoscopeError:
    return TachoscopeError(f"{url} is not a Prometheus server{why}", fix="give its address without the path of a page")
