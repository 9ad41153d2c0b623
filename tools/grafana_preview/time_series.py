"""Panels over time with values up the side: lines, bars or points, or areas on each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_preview import axis, fields
from grafana_preview.query import Series
from grafana_preview.times import Span

Json = Mapping[str, Any]
MOST_SERIES = 200


def draw(panel: Json, found: Sequence[Series], span: Span) -> dict[str, Any]:
    """Return what the page draws: times in milliseconds, a trace a series, the axis, and thresholds as lines."""
    base = fields.of(panel, "")
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    is_log = custom.get("scaleDistribution", {}).get("type") == "log"
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    drawn = found[:MOST_SERIES]
    traces = [_trace(panel, one, number, is_log=is_log) for number, one in enumerate(drawn)]
    return {
        "kind": "lines",
        "times": [time * 1000 for time in span.times()],
        "traces": traces,
        "style": "points" if custom.get("drawStyle") == "points" else "bars" if custom.get("drawStyle") == "bars" else "line",
        "step": span.step * 1000,
        "stacked": is_stacked,
        "fill": custom.get("fillOpacity", 0) / 100,
        "width": custom.get("lineWidth", 1),
        "axis": _axis(base, _extent(drawn, is_stacked=is_stacked), is_log=is_log),
        "lines": _thresholds(base) if custom.get("thresholdsStyle", {}).get("mode", "off") != "off" else [],
        "notes": [f"the first {MOST_SERIES} of {len(found)} series"] if len(found) > MOST_SERIES else [],
    }


def rounded(value: float | None) -> float | None:
    """Return a value with six digits, which is more than can be seen; None for what cannot be drawn."""
    return None if value is None or math.isinf(value) else float(f"{value:.6g}")


def _trace(panel: Json, one: Series, number: int, *, is_log: bool) -> dict[str, Any]:
    known = fields.of(panel, one.name)
    values = [None if is_log and value is not None and value <= 0.0 else rounded(value) for value in one.values]
    return {
        "name": one.name,
        "color": fields.series_color(known, number),
        "values": values,
        "texts": ["" if value is None else known.text(value) for value in values],
    }


def _extent(found: Sequence[Series], *, is_stacked: bool) -> list[float]:
    """Return the values that the axis has to show."""
    drawn = [[value for value in one.values if value is not None and math.isfinite(value)] for one in found]
    if not is_stacked:
        return [value for values in drawn for value in values]
    columns = zip(*(one.values for one in found), strict=True)
    return [0.0, *(sum(value for value in column if value is not None and math.isfinite(value)) for column in columns)]


def _axis(base: fields.Field, values: Sequence[float], *, is_log: bool) -> dict[str, Any]:
    if is_log:
        positive = [value for value in values if value > 0.0] or [1.0, 10.0]
        places, texts = axis.powers(min(positive), max(max(positive), min(positive) * 10.0), base.unit)
        return {"log": True, "range": [places[0], places[-1]], "ticks": places, "texts": texts}
    low, high = axis.span(values, base.minimum, base.maximum)
    places, texts = axis.ticks(low, high, base.unit)
    return {"log": False, "range": [low, high], "ticks": places, "texts": texts}


def _thresholds(base: fields.Field) -> list[dict[str, Any]]:
    return [{"at": at, "color": color, "text": base.text(at)} for at, color in base.steps if math.isfinite(at)]
