"""What a panel's page draws: asks its queries, and shapes what they give by the type of the panel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grafana_preview import fields, numbers, tables, units
from grafana_preview import heatmap as heat
from grafana_preview import state_timeline as bands
from grafana_preview import time_series as lines
from grafana_preview.query import Asked, Series, last
from tachoscope_core.errors import TachoscopeError

Json = Mapping[str, Any]
TYPES = ("timeseries", "stat", "table", "bargauge", "heatmap", "state-timeline")
"""Those that have queries."""
NOTHING = "No data"
"""What Grafana writes where a panel does not say why it may be empty."""


def draw(panel: Json, asked: Asked) -> dict[str, Any]:
    """Return what the page draws; `kind` says what it is: `empty` with why, `error` with what went wrong, or the picture."""
    if panel["type"] not in TYPES:
        return {"kind": "error", "text": f"the preview cannot draw panels of type {panel['type']}"}
    try:
        found = asked.series(panel)
    except TachoscopeError as error:
        return {"kind": "error", "text": str(error)}
    if not found or (panel["type"] != "table" and all(last(one.values) is None for one in found)):
        return {"kind": "empty", "text": fields.of(panel, "").no_value or NOTHING}
    with units.seen_from(asked.span.end):  # of a time long ago nobody asks how long ago its parts are now
        drawn = _drawn(panel, found, asked)
    drawn["notes"] = [*drawn.get("notes", []), *(f"not shown here: {name}" for name in fields.unknown(panel))]
    return drawn


def _drawn(panel: Json, found: list[Series], asked: Asked) -> dict[str, Any]:
    match panel["type"]:
        case "stat":
            return numbers.stat(panel, found)
        case "bargauge":
            return numbers.bars(panel, found)
        case "table":
            return tables.draw(panel, found, asked)
        case "heatmap":
            return heat.draw(panel, found, asked.span)
        case "state-timeline":
            return bands.draw(panel, found, asked.span)
        case _:
            return lines.draw(panel, found, asked.span)
