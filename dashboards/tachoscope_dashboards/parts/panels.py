"""Panels, made by few functions so that all boards look and read alike.

Each panel says what it shows, what healthy looks like, what to do when it is not, and why it may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tachoscope_core.report import palette
from tachoscope_dashboards.parts import panel_json
from tachoscope_dashboards.parts.descriptions import ColorStep, Column, Json, Link, Panel, PanelText, PlacedPanel, Query, Unit
from tachoscope_dashboards.parts.tables import table

__all__ = [
    "ColorStep",
    "Column",
    "Link",
    "PanelText",
    "PlacedPanel",
    "Query",
    "Unit",
    "bars",
    "happened",
    "happenings",
    "heatmap",
    "row",
    "stat",
    "table",
    "text",
    "timeline",
    "timeseries",
]


LEAST_STEP = "1m"
"""Of panels of what happens now and then: so long that a step has several scrapes."""


def timeseries(
    title: str,
    about: PanelText,
    queries: Sequence[Query],
    *,
    unit: Unit,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    style: Literal["line", "bars", "points"] = "line",
    colors: Mapping[str, str] | None = None,
    steps: Sequence[ColorStep] = (),
    links: Sequence[Link] = (),
    minimum: float | None = 0.0,
    maximum: float | None = None,
    log: bool = False,
) -> PlacedPanel:
    """Return lines over time; `stacked`: areas on each other. colors: by a series' legend. steps: drawn as lines at thresholds.

    A line shows no value that stands alone: what happens now and then is drawn with `style` as bars or points.
    """
    defaults = panel_json.defaults(about, unit, steps, minimum, maximum)
    custom: Json = {
        "drawStyle": style,
        "lineWidth": 0 if stacked else 1,
        "fillOpacity": 80 if stacked or style == "bars" else 0,
        "showPoints": "always" if style == "points" else "never",
        "spanNulls": False,
        "insertNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
        "axisBorderShow": False,
    }
    if log:
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    options = {
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    overrides = [panel_json.fixed_color(name, color) for name, color in (colors or {}).items()]
    fields = {**defaults, "custom": custom, "color": {"mode": "palette-classic"}}
    settings = panel_json.settings(fields, overrides, options, links)
    return PlacedPanel(panel_json.panel("timeseries", title, about, queries, settings), width, height)


def happenings(
    title: str,
    about: PanelText,
    queries: Sequence[Query],
    *,
    width: int = 12,
    height: int = 8,
    colors: Mapping[str, str] | None = None,
    links: Sequence[Link] = (),
) -> PlacedPanel:
    """Return bars of what happens now and then, which sum up to all that happened. queries: rates over `[$__rate_interval]`."""
    said = replace(about, shows=f"{about.shows} Each bar is what happened in its step of a minute or longer.")
    counts = [replace(query, expr=happened(query.expr)) for query in queries]
    placed = timeseries(title, said, counts, unit="short", width=width, height=height, style="bars", colors=colors, links=links)
    return replace(placed, panel=replace(placed.panel, settings=placed.panel.settings | {"interval": LEAST_STEP}))


def happened(rate: str) -> str:
    """Return how much counters grew within each step of a panel, from their rates over `[$__rate_interval]`.

    Increases over that window would count what happened several times: it is longer than a step, so that windows overlap.
    """
    return f"({rate}) * $__interval_ms / 1000"


def stat(
    title: str,
    about: PanelText,
    query: Query,
    *,
    unit: Unit,
    width: int = 4,
    height: int = 4,
    steps: Sequence[ColorStep] = (),
    links: Sequence[Link] = (),
    texts: Mapping[str, str] | None = None,
    sparkline: bool = True,
) -> PlacedPanel:
    """Return one number, coloured by `steps`. texts: what to write for values."""
    defaults = panel_json.defaults(about, unit, steps, None, None) | {"mappings": panel_json.mappings(texts or {})}
    defaults["color"] = {"mode": "thresholds"}
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value" if steps else "none",
        "graphMode": "area" if sparkline and not query.instant else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    }
    settings = panel_json.settings(defaults, [], options, links)
    return PlacedPanel(panel_json.panel("stat", title, about, [query], settings), width, height)


def bars(
    title: str,
    about: PanelText,
    query: Query,
    *,
    unit: Unit,
    width: int = 8,
    height: int = 8,
    steps: Sequence[ColorStep] = (),
    colors: Mapping[str, str] | None = None,
    maximum: float | None = None,
    links: Sequence[Link] = (),
) -> PlacedPanel:
    """Return a horizontal bar a series, of now."""
    defaults = panel_json.defaults(about, unit, steps, 0.0, maximum)
    defaults["color"] = {"mode": "thresholds"}
    options = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "valueMode": "color",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    overrides = [panel_json.fixed_color(name, color) for name, color in (colors or {}).items()]
    one = Query(query.expr, query.legend, instant=True, name=query.name)
    settings = panel_json.settings(defaults, overrides, options, links)
    return PlacedPanel(panel_json.panel("bargauge", title, about, [one], settings), width, height)


def heatmap(
    title: str,
    about: PanelText,
    query: Query,
    *,
    unit: Unit,
    width: int = 24,
    height: int = 10,
    is_histogram: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    links: Sequence[Link] = (),
) -> PlacedPanel:
    """Return time by row, coloured by value: rows are series by legend, with `is_histogram` buckets (legend `{{le}}`)."""
    options = {
        "calculate": False,
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit if is_histogram else "none"},
        "rowsFrame": {"layout": "auto"},
        "color": {
            "mode": "scheme",
            "scheme": "Viridis",
            "steps": 64,
            "reverse": False,
            "exponent": 0.5,
            "fill": palette.WARN,
            **({"min": minimum} if minimum is not None else {}),
            **({"max": maximum} if maximum is not None else {}),
        },
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
        "exemplars": {"color": palette.BAD},
        "showValue": "never",
        "cellValues": {"unit": "short" if is_histogram else unit},
    }
    settings = panel_json.settings(panel_json.defaults(about, unit, (), None, None), [], options, links)
    format_ = "heatmap" if is_histogram else "time_series"
    return PlacedPanel(panel_json.panel("heatmap", title, about, [query], settings, format_), width, height)


def timeline(
    title: str,
    about: PanelText,
    queries: Sequence[Query],
    texts: Mapping[str, tuple[str, str]],
    *,
    width: int = 24,
    height: int = 8,
    links: Sequence[Link] = (),
) -> PlacedPanel:
    """Return a band a series whose colour is its state. texts: by value, what it means and its colour."""
    defaults = panel_json.defaults(about, "none", (), None, None)
    defaults["mappings"] = [
        {
            "type": "value",
            "options": {
                value: {"text": text, "color": color, "index": index} for index, (value, (text, color)) in enumerate(texts.items())
            },
        }
    ]
    defaults["custom"] = {"fillOpacity": 80, "lineWidth": 0}
    options = {
        "mergeValues": True,
        "showValue": "never",
        "alignValue": "left",
        "rowHeight": 0.9,
        "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    settings = panel_json.settings(defaults, [], options, links)
    return PlacedPanel(panel_json.panel("state-timeline", title, about, queries, settings), width, height)


def text(content: str, *, width: int = 24, height: int = 3) -> PlacedPanel:
    """Return words; `content` is Markdown. The question of a board, which stands at its head."""
    settings = {"options": {"content": content, "mode": "markdown"}, "transparent": True}
    return PlacedPanel(Panel("text", settings=settings), width, height)


def row(title: str) -> PlacedPanel:
    """Return the heading of the panels below it."""
    return PlacedPanel(Panel("row", title), 24, 1)
