"""Tables: a row a series, after the transformations that join, choose and name columns.

https://grafana.com/docs/grafana/latest/panels-visualizations/query-transform-data/transform-data/ (merge, filter by name, organize)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_preview import fields
from grafana_preview import interpolate as filling
from grafana_preview.query import Asked, Series

Json = Mapping[str, Any]
Row = dict[str, str | float | None]
MOST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Frame:
    """A table on the way: its columns in their order, and rows, which may lack some."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def draw(panel: Json, found: Sequence[Series], asked: Asked) -> dict[str, Any]:
    """Return columns and rows; a cell has a text, what it is sorted by, and maybe a colour and a link."""
    tables, notes = _frames(panel, found, asked.span.end * 1000), []
    for one in panel.get("transformations", []):
        change = _CHANGES.get(one["id"])
        tables = change(tables, one.get("options", {})) if change else tables
        notes += [] if change else [f"transformation {one['id']}"]
    table = tables[0] if tables else Frame((), ())
    known = {column: fields.of(panel, column) for column in table.columns}
    rows = _sorted(table.rows, panel.get("options", {}).get("sortBy", []))
    if len(rows) > MOST_ROWS:
        notes.append(f"the first {MOST_ROWS} of {len(rows)} rows")
    return {
        "kind": "table",
        "columns": [{"title": column, "number": _is_number(table, column)} for column in table.columns],
        "rows": [[_cell(row, column, known, asked) for column in table.columns] for row in rows[:MOST_ROWS]],
        "sorted": [[one["displayName"], bool(one.get("desc"))] for one in panel.get("options", {}).get("sortBy", [])[:1]],
        "notes": notes,
    }


def _frames(panel: Json, found: Sequence[Series], now: float) -> list[Frame]:
    """Return a table a query, as Grafana makes them: the time, a column a label, and `Value`, with the query's name if several."""
    names = [str(target["refId"]) for target in panel["targets"]]
    frames = []
    for name in names:
        of_query = [one for one in found if one.query == name]
        labels = sorted({label for one in of_query for label in one.labels})
        value = "Value" if len(names) == 1 else f"Value #{name}"
        rows: list[Row] = [{"Time": now, **one.labels, value: one.values[-1]} for one in of_query]
        frames += [Frame(("Time", *labels, value), tuple(rows))] if rows else []
    return frames


def _merge(frames: list[Frame], _: Json) -> list[Frame]:
    """Join rows that agree in all columns that all tables have, unless they contradict each other in another."""
    columns = tuple(dict.fromkeys(column for frame in frames for column in frame.columns))
    common = [column for column in columns if all(column in frame.columns for frame in frames)]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in (row for frame in frames for row in frame.rows):
        there = groups.setdefault(tuple(row.get(column) for column in common), [])
        fitting = [one for one in there if all(one.get(name) in {None, value} for name, value in row.items())]
        for one in fitting:
            one.update(row)
        if not fitting:
            there.append(dict(row))
    return [Frame(columns, tuple(row for rows in groups.values() for row in rows))] if frames else []


def _filter(frames: list[Frame], options: Json) -> list[Frame]:
    pattern = re.compile(options.get("include", {}).get("pattern", ""))
    found = []
    for frame in frames:
        kept = tuple(column for column in frame.columns if pattern.search(column))
        found.append(Frame(kept, tuple({column: row[column] for column in kept if column in row} for row in frame.rows)))
    return found


def _organize(frames: list[Frame], options: Json) -> list[Frame]:
    names, order, left_out = options.get("renameByName", {}), options.get("indexByName", {}), options.get("excludeByName", {})
    found = []
    for frame in frames:
        kept = [column for column in frame.columns if not left_out.get(column)]
        kept.sort(key=lambda column: order.get(column, len(order)))
        rows = tuple({names.get(column) or column: row.get(column) for column in kept} for row in frame.rows)
        found.append(Frame(tuple(names.get(column) or column for column in kept), rows))
    return found


_CHANGES: Mapping[str, Callable[[list[Frame], Json], list[Frame]]] = {
    "merge": _merge,
    "filterFieldsByName": _filter,
    "organize": _organize,
}


def _sorted(rows: Sequence[Row], by: Sequence[Json]) -> list[Row]:
    found = list(rows)
    for one in reversed(by):
        name, is_descending = one["displayName"], bool(one.get("desc"))
        there = [row for row in found if row.get(name) is not None]
        there.sort(key=lambda row: _order(row[name]), reverse=is_descending)
        found = there + [row for row in found if row.get(name) is None]
    return found


def _order(value: str | float | None) -> tuple[int, float, str]:
    return (0, value, "") if isinstance(value, float) else (1, 0.0, str(value))


def _is_number(table: Frame, column: str) -> bool:
    return any(isinstance(row.get(column), float) for row in table.rows)


def _cell(row: Row, column: str, known: Mapping[str, fields.Field], asked: Asked) -> dict[str, Any]:
    value, known_field = row.get(column), known[column]
    sortable = str(value) if isinstance(value, float) and math.isinf(value) else value
    cell: dict[str, Any] = {"text": _text(value, known_field), "sort": sortable}
    if isinstance(value, float) and known_field.cell != "auto":
        cell["color"] = known_field.color(value)
        cell["filled"] = known_field.cell == "color-background"
    if known_field.links and value is not None:
        texts = {f"__data.fields.{name}": _text(row.get(name), known[name]) for name in known}
        raw = {"__value.raw": str(value), "__value.text": cell["text"]}
        cell["link"] = filling.link(known_field.links[0]["url"], asked.choices, asked.span, texts | raw)
        cell["title"] = known_field.links[0]["title"]
    return cell


def _text(value: str | float | None, known: fields.Field) -> str:
    if isinstance(value, str):
        meaning = known.meanings.get(value)
        return meaning.text if meaning else value
    return known.text(value)
