"""The same boards in schema V2, which Grafana 13 writes: a resource with elements, and rows in which they lie.

https://grafana.com/docs/grafana/latest/as-code/observability-as-code/schema-v2/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
API_VERSION = "dashboard.grafana.app/v2"
_QUERY_VERSION = "v0"
_REFRESH = {0: "never", 1: "onDashboardLoad", 2: "onTimeRangeChanged"}
_SORT = {0: "disabled", 1: "alphabeticalAsc", 2: "alphabeticalDesc", 3: "numericalAsc", 4: "numericalDesc"}
_CURSOR = {0: "Off", 1: "Crosshair", 2: "Tooltip"}
_OF_EVERY_MARK = {"name", "datasource", "enable", "hide", "iconColor"}
_OF_THE_ENVELOPE = {"datasource", "refId"}


def to_resource(board: Json) -> Json:
    """Return a board, as `grafana_json.to_json` gives it, as a resource of Grafana's API for dashboards."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Dashboard",
        "metadata": {"name": board["uid"]},
        "spec": {
            "title": board["title"],
            "description": board["description"],
            "tags": board["tags"],
            "editable": board["editable"],
            "preload": False,
            "liveNow": False,
            "cursorSync": _CURSOR[board["graphTooltip"]],
            "timeSettings": _time_settings(board),
            "links": board["links"],
            "annotations": [_mark(one) for one in board["annotations"]["list"]],
            "variables": [_variable(one) for one in board["templating"]["list"]],
            "elements": {_name(panel): _element(panel) for panel in board["panels"] if panel["type"] != "row"},
            "layout": {"kind": "RowsLayout", "spec": {"rows": list(_rows(board["panels"]))}},
        },
    }


def _time_settings(board: Json) -> Json:
    return {
        "from": board["time"]["from"],
        "to": board["time"]["to"],
        "timezone": board["timezone"],
        "autoRefresh": board["refresh"],
        "autoRefreshIntervals": ["5s", "10s", "30s", "1m", "5m", "15m", "30m", "1h", "2h", "1d"],
        "hideTimepicker": False,
        "fiscalYearStartMonth": board["fiscalYearStartMonth"],
    }


def _query(datasource: Json, spec: Json) -> Json:
    return {
        "kind": "DataQuery",
        "group": datasource["type"],
        "version": _QUERY_VERSION,
        "datasource": {"name": datasource["uid"]},
        "spec": spec,
    }


def _mark(raw: Json) -> Json:
    """Return marks on all panels; what only its data source knows of them has a place of its own."""
    return {
        "kind": "AnnotationQuery",
        "spec": {
            **{key: raw[key] for key in ("name", "enable", "hide", "iconColor")},
            "query": _query(raw["datasource"], {}),
            "legacyOptions": {key: value for key, value in raw.items() if key not in _OF_EVERY_MARK},
        },
    }


def _variable(raw: Json) -> Json:
    current = raw["current"] or {"text": "", "value": ""}
    spec: Json = {
        "name": raw["name"],
        "label": raw["label"],
        "hide": "dontHide",
        "skipUrlSync": False,
        "refresh": _REFRESH[raw["refresh"]],
        "regex": raw["regex"],
        "current": {key: current[key] for key in ("text", "value")},
        "options": raw["options"],
        "multi": raw["multi"],
        "includeAll": raw["includeAll"],
        "allowCustomValue": True,
    }
    if raw["type"] == "datasource":
        return {"kind": "DatasourceVariable", "spec": {**spec, "pluginId": raw["query"]}}
    if "allValue" in raw:
        spec["allValue"] = raw["allValue"]
    more = {"sort": _SORT[raw["sort"]], "definition": raw["definition"], "query": _query(raw["datasource"], raw["query"])}
    return {"kind": "QueryVariable", "spec": spec | more}


# --- panels -------------------------------------------------------------------------------------------------------------------


def _name(panel: Json) -> str:
    return f"panel-{panel['id']}"


def _element(panel: Json) -> Json:
    return {
        "kind": "Panel",
        "spec": {
            "id": panel["id"],
            "title": panel.get("title", ""),
            "description": panel.get("description", ""),
            "links": panel.get("links", []),
            "transparent": panel.get("transparent", False),
            "data": {
                "kind": "QueryGroup",
                "spec": {
                    "queries": [_panel_query(one) for one in panel.get("targets", [])],
                    "transformations": [_transformation(one) for one in panel.get("transformations", [])],
                    "queryOptions": {key: panel[key] for key in ("interval",) if key in panel},
                },
            },
            "vizConfig": {
                "kind": "VizConfig",
                "group": panel["type"],
                "version": "",
                "spec": {
                    "options": panel.get("options", {}),
                    "fieldConfig": panel.get("fieldConfig", {"defaults": {}, "overrides": []}),
                },
            },
        },
    }


def _panel_query(target: Json) -> Json:
    own = {key: value for key, value in target.items() if key not in _OF_THE_ENVELOPE}
    spec = {"refId": target["refId"], "hidden": False, "query": _query(target["datasource"], own)}
    return {"kind": "PanelQuery", "spec": spec}


def _transformation(raw: Json) -> Json:
    return {"kind": "Transformation", "group": raw["id"], "spec": {key: value for key, value in raw.items() if key != "id"}}


def _rows(panels: list[Json]) -> Iterator[Json]:
    """Yield each row with the panels below it; those above the first are in one without a heading."""
    heading: Json = {"title": "", "hideHeader": True}
    items: list[Json] = []
    top = 0
    for panel in panels:
        if panel["type"] != "row":
            items.append(_item(panel, top))
            continue
        if items:
            yield _row(heading, items)
        heading, items, top = {"title": panel["title"]}, [], panel["gridPos"]["y"] + panel["gridPos"]["h"]
    yield _row(heading, items)


def _row(heading: Json, items: list[Json]) -> Json:
    layout = {"kind": "GridLayout", "spec": {"items": items}}
    return {"kind": "RowsLayoutRow", "spec": {**heading, "collapse": False, "layout": layout}}


def _item(panel: Json, top: int) -> Json:
    place = panel["gridPos"]
    where = {"x": place["x"], "y": place["y"] - top, "width": place["w"], "height": place["h"]}
    return {"kind": "GridLayoutItem", "spec": {**where, "element": {"kind": "ElementReference", "name": _name(panel)}}}
