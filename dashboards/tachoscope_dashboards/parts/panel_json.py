"""How a panel becomes JSON: what is the same of all kinds. What grafanalib lacks is added as `extraJson`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib import core as grafana

from tachoscope_core.report import palette
from tachoscope_dashboards.parts.descriptions import ColorStep, Link, PanelText, Query, Unit

Json = dict[str, Any]


class Raw(grafana.Panel):  # type: ignore[misc]
    """A panel whose own part is all in `extraJson`: grafanalib's classes for these write what Grafana has given up since."""

    def to_json_data(self) -> Json:
        found: Json = self.panel_json({})
        return found


def panel(title: str, about: PanelText, queries: Sequence[Query], body: Json, kind: str = "time_series") -> grafana.Panel:
    """Return a panel; `kind`: the form in which the data source answers."""
    targets = [
        grafana.Target(
            expr=" ".join(query.expr.split()),
            legendFormat=query.legend or "__auto",
            instant=query.instant,
            refId=query.name or name_of(number),
            format=kind,
        )
        for number, query in enumerate(queries)
    ]
    return Raw(dataSource=None, targets=targets, title=title, description=about.text(), extraJson=body)


def name_of(number: int) -> str:
    """Return the refId of the first query, the second, and so on."""
    return chr(ord("A") + number)


def body(kind: str, defaults: Json, overrides: list[Json], options: Json, links: Sequence[Link]) -> Json:
    """Return what grafanalib does not know of a panel of this kind."""
    return {
        "type": kind,
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
