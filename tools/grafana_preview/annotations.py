"""Annotations: from when to when a board's events were true, to be marked on its panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grafana_preview import interpolate as filling
from grafana_preview import query as asking
from grafana_preview.interpolate import Choice
from grafana_preview.times import Span, span
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net import prometheus as prometheus_query

Json = Mapping[str, Any]
MOST_MARKS = 200
STEP_SECONDS = 60.0


def marks(board: Json, url: str, shown: Span, choices: Sequence[Choice]) -> dict[str, Any]:
    """Return the marks, in milliseconds, the first `MOST_MARKS` of each event, and what went wrong with which."""
    found: list[dict[str, Any]] = []
    errors = []
    spread = span(shown.start, shown.end, int(shown.seconds / STEP_SECONDS) + 1)
    for one in board.get("annotations", {}).get("list", []):
        if not one.get("enable") or "expr" not in one:
            continue
        try:
            found += _marks(one, url, spread, choices)[:MOST_MARKS]
        except TachoscopeError as error:
            errors.append(f"{one['name']}: {error}")
    return {"marks": found, "errors": errors}


def _marks(one: Json, url: str, spread: Span, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    times = spread.times()
    expr = filling.query(one["expr"], choices, spread)
    rows = prometheus_query.range_query(url, expr, start=times[0], end=times[-1], step=spread.step)
    found = []
    for row in rows:
        title = asking.name_of(row["metric"], one.get("titleFormat") or one["name"], expr).strip()
        for start, end in stretches([float(time) for time, value in row["values"] if float(value)], spread.step):
            times_shown = {"start": max(start, spread.start) * 1000, "end": min(end, spread.end) * 1000}
            found.append({"name": one["name"], "text": title or one["name"], "color": one["iconColor"], **times_shown})
    return found


def stretches(times: Sequence[float], step: float) -> list[tuple[float, float]]:
    """Return from when to when there is a value at each step."""
    found: list[tuple[float, float]] = []
    for time in times:
        if found and time - found[-1][1] <= step * 1.5:
            found[-1] = found[-1][0], time
        else:
            found.append((time, time))
    return found
