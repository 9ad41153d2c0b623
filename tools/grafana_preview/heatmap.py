"""Heatmaps: time to the right, a row a series or a bucket of a histogram, the value as colour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grafana_preview import axis, fields, units
from grafana_preview.query import Series
from grafana_preview.time_series import rounded
from grafana_preview.times import Span

Json = Mapping[str, Any]
MOST_ROWS = 200
MOST_LABELS = 24
SCHEMES = {"Viridis": "light", "Cividis": "light"}
"""The schemes of colours that the page has, and in which theme Grafana turns each round."""
Values = tuple[float | None, ...]


def draw(panel: Json, found: Sequence[Series], span: Span) -> dict[str, Any]:
    """Return the matrix of values, from the lowest row up, with what stands beside the rows and the colours."""
    options = panel["options"]
    is_histogram = any(target.get("format") == "heatmap" for target in panel["targets"])
    base, side = fields.of(panel, ""), options.get("yAxis", {}).get("unit", "none")
    rows = buckets(found, side) if is_histogram else _in_order([(one.name, one.values) for one in found])[:MOST_ROWS]
    if options.get("yAxis", {}).get("reverse"):
        rows = rows[::-1]
    hidden = options.get("filterValues", {}).get("le", -math.inf)
    values = [[None if value is None or value <= hidden else rounded(value) for value in row] for _, row in rows]
    unit = options.get("cellValues", {}).get("unit") or base.unit
    color = options.get("color", {})
    low, high = _ends([value for row in values for value in row if value is not None], color)
    places, texts = axis.ticks(low, high, unit, most=5)
    scheme = str(color.get("scheme", "Viridis"))
    return {
        "kind": "heat",
        "times": [time * 1000 for time in span.times()],
        "rows": [name for name, _ in rows],
        "between": is_histogram,
        "every": max(1, math.ceil(len(rows) / MOST_LABELS)),
        "values": values,
        "texts": [["" if value is None else units.text(value, unit) for value in row] for row in values],
        "range": [low, high],
        "ticks": places,
        "tick_texts": texts,
        "scheme": scheme if scheme in SCHEMES else "Viridis",
        "turned_in": SCHEMES.get(scheme, "light"),
        "reverse": bool(color.get("reverse")),
        "notes": ([] if scheme in SCHEMES else [f"colours {scheme}"]) + _left(found),
    }


def _in_order(rows: list[tuple[str, Values]]) -> list[tuple[str, Values]]:
    """Return rows as Grafana has them from below: by number where all names are numbers, else as Prometheus gives them."""
    try:
        return sorted(rows, key=lambda row: float(row[0]))
    except ValueError:
        return rows


def buckets(found: Sequence[Series], unit: str) -> list[tuple[str, Values]]:
    """Return how much is in each bucket, the smallest first: those of Prometheus count all that is up to their bound as well."""
    bounded = sorted(((float(one.labels["le"]), one.values) for one in found if "le" in one.labels), key=lambda one: one[0])
    rows: list[tuple[str, Values]] = []
    below: Values = ()
    for bound, values in bounded:
        own = tuple(_difference(value, before) for value, before in zip(values, below or [0.0] * len(values), strict=True))
        rows.append((units.text(bound, unit), own))
        below = values
    return rows


def _difference(value: float | None, before: float | None) -> float | None:
    return None if value is None else max(value - (before or 0.0), 0.0)


def _ends(values: Sequence[float], color: Json) -> tuple[float, float]:
    low = color.get("min", min(values, default=0.0))
    high = color.get("max", max(values, default=1.0))
    return (low, high) if high > low else (low, low + (abs(low) or 1.0))


def _left(found: Sequence[Series]) -> list[str]:
    return [f"the first {MOST_ROWS} of {len(found)} series"] if len(found) > MOST_ROWS else []
