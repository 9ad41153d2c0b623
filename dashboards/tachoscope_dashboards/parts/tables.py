"""Tables: instant queries side by side, joined by the labels that are columns."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_core.metrics.metric import IDENTITY
from tachoscope_core.report import palette
from tachoscope_dashboards.parts import panel_json
from tachoscope_dashboards.parts.descriptions import Column, Json, Link, PanelText, PlacedPanel, Query

NOTHING = "–"
"""Stands in a cell that has no value; why all of a table is empty is said by the panel."""


def table(
    title: str,
    about: PanelText,
    queries: Sequence[Query],
    columns: Sequence[Column],
    *,
    width: int = 24,
    height: int = 9,
    sort: str = "",
    descending: bool = True,
    links: Sequence[Link] = (),
) -> PlacedPanel:
    """Return a table of instant queries, joined by the label columns. sort: title of a column."""
    targets = [Query(query.expr, query.legend, instant=True, name=query.name) for query in queries]
    labels = [column.source for column in columns if not _is_value(column.source, targets)]
    names = {
        (f"Value #{column.source}" if len(targets) > 1 else "Value")
        if _is_value(column.source, targets)
        else column.source: column.title
        for column in columns
    }
    kept = "|".join([*labels, *(name for name in names if name.startswith("Value"))])
    # What is not a column goes first: rows are joined by all labels that they have left.
    transformations: list[Json] = [
        {"id": "filterFieldsByName", "options": {"include": {"pattern": f"^({kept})$"}}},
        *([{"id": "merge", "options": {}}] if len(targets) > 1 else []),
        {"id": "organize", "options": {"renameByName": names, "indexByName": {name: number for number, name in enumerate(names)}}},
    ]
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "footer": {"show": False, "reducer": ["sum"], "fields": ""},
        "sortBy": [{"displayName": sort, "desc": descending}] if sort else [],
    }
    fields = panel_json.defaults(about, "none", (), None, None)
    settings = panel_json.settings(fields, [_column(column) for column in columns], options, links) | {
        "transformations": transformations
    }
    return PlacedPanel(panel_json.panel("table", title, about, targets, settings, "table"), width, height)


def _is_value(source: str, queries: Sequence[Query]) -> bool:
    return source in {query.name or panel_json.name_of(number) for number, query in enumerate(queries)}


def _column(column: Column) -> Json:
    # Links take these cells as values of variables, where only an empty one is what has no such label.
    properties: list[Json] = [
        {"id": "unit", "value": column.unit},
        {"id": "noValue", "value": "" if column.source in IDENTITY else NOTHING},
    ]
    if column.steps:
        properties += [
            {"id": "thresholds", "value": panel_json.thresholds(column.steps, palette.OK)},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
            {"id": "color", "value": {"mode": "thresholds"}},
        ]
    if column.link:
        properties.append({"id": "links", "value": [{"title": column.link.title, "url": column.link.url, "targetBlank": False}]})
    if column.texts:
        properties.append({"id": "mappings", "value": panel_json.mappings(column.texts)})
    return {"matcher": {"id": "byName", "options": column.title}, "properties": properties}
