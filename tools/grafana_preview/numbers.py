"""Panels of single numbers: the last value of each series, large; or a bar for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_preview import fields
from grafana_preview import time_series as lines
from grafana_preview.query import Series, last

Json = Mapping[str, Any]
MOST_ITEMS = 100


def stat(panel: Json, found: Sequence[Series]) -> dict[str, Any]:
    """Return the numbers with their colours; with a curve below where the panel has one."""
    options = panel.get("options", {})
    is_coloured, has_curve = options.get("colorMode", "value") != "none", options.get("graphMode", "area") == "area"
    items = []
    for one in found[:MOST_ITEMS]:
        known, value = fields.of(panel, one.name), last(one.values)
        items.append(
            {
                "name": one.name if len(found) > 1 else "",
                "text": known.text(value),
                "color": known.color(value) if is_coloured else "",
                "curve": [lines.rounded(point) for point in one.values] if has_curve and len(one.values) > 1 else [],
            }
        )
    return {"kind": "numbers", "items": items, "notes": _left(found)}


def bars(panel: Json, found: Sequence[Series]) -> dict[str, Any]:
    """Return bars with how much of their length is filled: from the panel's least to its most, or the largest value there is."""
    known = [(one, fields.of(panel, one.name), last(one.values)) for one in found[:MOST_ITEMS]]
    numbers = [value for _, _, value in known if value is not None and math.isfinite(value)]
    least = min((field.minimum if field.minimum is not None else min(numbers, default=0.0)) for _, field, _ in known)
    most = max((field.maximum if field.maximum is not None else max(numbers, default=1.0)) for _, field, _ in known)
    items = [
        {
            "name": one.name,
            "text": field.text(value),
            "color": field.color(value),
            "part": 0.0 if value is None or most <= least else (min(max(value, least), most) - least) / (most - least),
        }
        for one, field, value in known
    ]
    return {"kind": "bars", "items": items, "notes": _left(found)}


def _left(found: Sequence[Series]) -> list[str]:
    return [f"the first {MOST_ITEMS} of {len(found)} series"] if len(found) > MOST_ITEMS else []
