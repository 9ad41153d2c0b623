"""What panels of all kinds have in common, in Grafana's terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tachoscope_core.report import palette
from tachoscope_dashboards.parts.descriptions import ColorStep, Json, Link, Panel, PanelText, Query, Unit


def panel(kind: str, title: str, about: PanelText, queries: Sequence[Query], settings: Json, format_: str = "time_series") -> Panel:
    """Return a panel whose queries have names and are one line each. format_: in which the data source answers them."""
    named = (
        replace(query, expr=" ".join(query.expr.split()), name=query.name or name_of(number))
        for number, query in enumerate(queries)
    )
    return Panel(kind, title, about.text(), tuple(named), format_, settings)


def name_of(number: int) -> str:
    """Return the refId of the first query, the second, and so on."""
    return chr(ord("A") + number)


def settings(defaults: Json, overrides: list[Json], options: Json, links: Sequence[Link]) -> Json:
    """Return what Grafana keeps of a panel: of its fields, its options and its links."""
    return {
        "fieldConfig": {"defaults": defaults, "overrides": overrides},
        "options": options,
        "links": [{"title": link.title, "url": link.url, "targetBlank": True} for link in links],
    }


def defaults(about: PanelText, unit: Unit, steps: Sequence[ColorStep], minimum: float | None, maximum: float | None) -> Json:
    """Return what holds for all fields of a panel."""
    found: Json = {
        "unit": unit,
        "noValue": about.empty,
        "thresholds": thresholds(steps, palette.OK if steps else palette.SERIES[0]),
        "mappings": [],
    }
    return found | ({"min": minimum} if minimum is not None else {}) | ({"max": maximum} if maximum is not None else {})


def thresholds(steps: Sequence[ColorStep], below: str) -> Json:
    """Return the colours of values. below: of those under the first step, unless that begins at minus infinity."""
    if steps and steps[0].at == -math.inf:
        below, steps = steps[0].color, steps[1:]
    # Grafana knows the lowest step by its missing value.
    found = [{"value": None, "color": below}, *({"value": step.at, "color": step.color} for step in steps)]
    return {"mode": "absolute", "steps": found}


def fixed_color(name: str, color: str) -> Json:
    """Return the override that gives the series of a legend its colour."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
    }


def mappings(texts: Mapping[str, str]) -> list[Json]:
    """Return Grafana's value mappings that show these texts in place of values; none without texts."""
    if not texts:
        return []
    return [
        {"type": "value", "options": {value: {"text": text, "index": index} for index, (value, text) in enumerate(texts.items())}}
    ]
