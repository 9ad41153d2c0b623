"""Our own rules: what Grafana 11 to 13 still show, what people need to read a panel, one colour a meaning, a layout that fits.

Those of `HOUSE` are of our own boards only, which have the tag `tachoscope`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tachoscope_core.report import palette
from tachoscope_dashboards.lint.board_json import Dashboard, Json, Panel
from tachoscope_dashboards.lint.expressions import variables_in
from tachoscope_dashboards.lint.lint import Finding, Rule, panel_named

TAG = "tachoscope"
OLDEST_SCHEMA = 39
"""Of Grafana 11.0: what is older is changed when it is loaded, by steps that nobody here has seen."""
GONE = {
    "graph": "timeseries",
    "singlestat": "stat",
    "grafana-singlestat-panel": "stat",
    "table-old": "table",
    "grafana-piechart-panel": "piechart",
    "grafana-worldmap-panel": "geomap",
    "natel-discrete-panel": "state-timeline",
    "flant-statusmap-panel": "status-history",
}
"""Panels in Angular, which Grafana 12 shows no longer, each with its successor."""
TYPES = frozenset(
    (
        *(
            "row",
            "text",
            "stat",
            "timeseries",
            "table",
            "bargauge",
            "gauge",
            "barchart",
            "piechart",
            "heatmap",
            "histogram",
            "logs",
        ),
        *("state-timeline", "status-history", "xychart", "trend", "candlestick", "geomap", "nodeGraph", "flamegraph", "canvas"),
        *("traces", "dashlist", "alertlist", "annolist", "news", "datagrid"),
    )
)
"""Types of panels that come with Grafana 11 to 13."""
_HEATMAP_RELICS = ("cards", "dataFormat", "yBucketBound", "xAxis", "yAxis", "color", "heatmap", "tooltip", "legend")
_BOARD_RELICS = ("rows", "__inputs", "style", "hideControls", "sharedCrosshair")
_UID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_COLOR_KEYS = frozenset({"color", "fixedColor", "iconColor", "fill"})
_COLORS = frozenset([*palette.STATE_COLORS.values(), *palette.SERIES, palette.OK, palette.WARN, palette.BAD, palette.UNKNOWN])
_NO_REASON = frozenset({"", "-", "n/a", "no data", "none"})


def _modern(board: Dashboard) -> Iterator[Finding]:
    for panel in board.all_panels():
        if panel.type in GONE:
            what = f"{panel.type} is a panel in Angular, which Grafana 12 shows no longer"
            yield Finding(panel_named(panel.name), what, f"make it {GONE[panel.type]}")
        elif panel.type not in TYPES:
            yield Finding(
                panel_named(panel.name), f"Grafana has no panel of the type {panel.type!r}", "take one that comes with it"
            )
    for raw in _raw_panels(board):
        relics = [key for key in _HEATMAP_RELICS if key in raw] if raw.get("type") == "heatmap" else []
        if relics:
            what = f"a heatmap of before Grafana 9: {', '.join(relics)}"
            yield Finding(panel_named(str(raw.get("title"))), what, "describe it in options")
    if relics := [key for key in _BOARD_RELICS if key in board.raw]:
        yield Finding("", f"it has {', '.join(relics)}, which Grafana has removed", "remove them")
    if board.schema_version < OLDEST_SCHEMA:
        yield Finding("", f"its schema is version {board.schema_version}", f"write it in {OLDEST_SCHEMA} or later")


def _ids(board: Dashboard) -> Iterator[Finding]:
    panels = list(board.all_panels())
    for number, count in Counter(panel.id for panel in panels).items():
        names = ", ".join(panel.name for panel in panels if panel.id == number)
        if count > 1 or number < 1:
            yield Finding("", f"id {number} is that of {names}", "give each panel a number of its own, from 1 on")
    for panel in panels:
        for name, count in Counter(one.ref_id for one in panel.targets).items():
            if count > 1 or not name:
                yield Finding(panel_named(panel.name), f"{count} of its targets have the refId {name!r}", "name them A, B, C")


def _grid(board: Dashboard) -> Iterator[Finding]:
    for panel in board.panels:
        place = panel.grid_pos
        if place.w < 1 or place.h < 1 or place.x < 0 or place.y < 0 or place.x + place.w > 24:
            what = f"it stands at {place.x}, {place.y} and is {place.w} by {place.h}"
            yield Finding(panel_named(panel.name), what, "place it within 24 columns")
    for one, other in itertools.combinations(board.panels, 2):
        if _overlap(one, other):
            yield Finding(panel_named(one.name), f"it lies on {other.name!r}", "place them beside each other")


def _overlap(one: Panel, other: Panel) -> bool:
    a, b = one.grid_pos, other.grid_pos
    return a.x < b.x + b.w and b.x < a.x + a.w and a.y < b.y + b.h and b.y < a.y + a.h


def _uid(board: Dashboard) -> Iterator[Finding]:
    if not _UID.fullmatch(board.uid):
        yield Finding("", f"its uid is {board.uid!r}", "give it one of letters, digits, - and _, at most 40, that stays")


def _known_variables(board: Dashboard) -> Iterator[Finding]:
    """Yield variables that there are not, that come too late, or that nothing needs."""
    there = {one.name for one in board.variables()}
    needed: set[str] = set()
    for where, raw in _parts(board):
        used = {name for name in variables_in(json.dumps(raw)) if not name.startswith("__")}
        needed |= used
        yield from (Finding(where, f"the board has no variable ${name}", "add it to the board") for name in sorted(used - there))
    before: set[str] = set()
    for one in board.variables():
        used = {name for name in variables_in(one.query_text) if not name.startswith("__")}
        source = one.datasource if isinstance(one.datasource, str) else one.datasource.uid
        needed |= used | variables_in(source)
        for name in sorted(used - before):
            yield Finding(f"variable {one.name!r}", f"it needs ${name}, which does not come before it", "sort the variables")
        before.add(one.name)
    for name in sorted(there - needed):
        yield Finding(f"variable {name!r}", "nothing on the board changes with it", "use it, or take it out")


def _parts(board: Dashboard) -> Iterator[tuple[str, Json]]:
    """Yield what may use variables: panels, annotations, links, each with its place."""
    for raw in _raw_panels(board):
        yield panel_named(str(raw.get("title") or raw.get("id"))), {key: part for key, part in raw.items() if key != "panels"}
    for mark in board.raw.get("annotations", {}).get("list", []):
        yield f"annotation {mark.get('name')!r}", mark
    for link in board.raw.get("links", []):
        yield f"link {link.get('title')!r}", link


def _empty_reason(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        if panel.field_config.defaults.no_value.strip().lower() in _NO_REASON:
            what = "it does not say why it may be empty"
            yield Finding(
                panel_named(panel.name),
                what,
                'give a reason in fieldConfig.defaults.noValue, such as "no traffic" (in code: About(empty=...))',
            )


def _three_parts(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        shows, _, rest = panel.description.partition("**Healthy:**")
        healthy, _, otherwise = rest.partition("**Otherwise:**")
        for what, text in (("what it shows", shows), ("what healthy looks like", healthy), ("what to do otherwise", otherwise)):
            if not text.strip():
                yield Finding(
                    panel_named(panel.name),
                    f"its description does not say {what}",
                    "write it as text, then **Healthy:** and **Otherwise:** (in code: About)",
                )


def _question(board: Dashboard) -> Iterator[Finding]:
    if not board.description.strip().endswith("?"):
        yield Finding("", f"its description is {board.description!r}", "write the question that it answers")
    first = board.panels[0] if board.panels else None
    if first is None or first.type != "text" or board.description not in str(first.options.get("content", "")):
        yield Finding("", "it does not begin with its question", "begin with a text that has it")


def _palette(board: Dashboard) -> Iterator[Finding]:
    for where, raw in _parts(board):
        for color in sorted(set(_colors(raw)) - _COLORS - {"transparent"}):
            yield Finding(
                where,
                f"the colour {color} is not in the palette",
                f"take one of {', '.join(sorted(_COLORS))} (in code: tachoscope_core.report.palette)",
            )


def _colors(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            if key in _COLOR_KEYS and isinstance(part, str):
                yield part
            else:
                yield from _colors(part)
    elif isinstance(value, list):
        for part in value:
            yield from _colors(part)


def _state_color(board: Dashboard) -> Iterator[Finding]:
    """Yield states of a ledger that have another colour than elsewhere: of series by their legend, of values by their text."""
    for panel in board.query_panels():
        for name, color in _named_colors(panel):
            wanted = palette.STATE_COLORS.get(name.lower().replace(" ", "_"))
            if wanted and color != wanted:
                yield Finding(
                    panel_named(panel.name),
                    f"{name} is {color} here, and {wanted} elsewhere",
                    f"write {wanted} (in code: STATE_COLORS)",
                )


def _named_colors(panel: Panel) -> Iterator[tuple[str, str]]:
    for override in panel.field_config.overrides:
        for one in override.properties:
            fixed = one.value.get("fixedColor") if one.id == "color" and isinstance(one.value, dict) else None
            if fixed and override.matcher.get("id") == "byName":
                yield str(override.matcher.get("options")), str(fixed)
    for mapping in panel.field_config.defaults.mappings:
        for result in mapping.get("options", {}).values() if mapping.get("type") == "value" else ():
            if "color" in result:
                yield str(result.get("text")), str(result["color"])


def _raw_panels(board: Dashboard) -> Iterator[Json]:
    for raw in board.raw.get("panels", []):
        yield raw
        yield from raw.get("panels") or []


RULES: tuple[Rule, ...] = (
    Rule("modern", "the board uses nothing that Grafana has removed", _modern),
    Rule("ids", "panels and targets have unique ids", _ids),
    Rule("grid", "panels lie beside each other", _grid),
    Rule("uid", "links to the board stay", _uid),
    Rule("known-variables", "variables are there, in order, and needed", _known_variables),
)
HOUSE: tuple[Rule, ...] = (
    Rule("empty-reason", "a panel says why it may be empty", _empty_reason),
    Rule("three-parts", "a panel says what it shows, what healthy looks like, and what to do otherwise", _three_parts),
    Rule("question", "a board is headed by its question", _question),
    Rule("palette", "colours are those of the palette", _palette),
    Rule("state-color", "a state has one colour everywhere", _state_color),
)
