"""Writes boards in the schema of Grafana 11 to 13, with grafanalib and with what grafanalib lacks: no other file uses it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafanalib import core as grafana
from grafanalib._gen import DashboardEncoder

from tachoscope_core.metrics.metric import IDENTITY
from tachoscope_core.report import palette
from tachoscope_dashboards.parts import panels
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.descriptions import Json, Panel, PlacedPanel, Query
from tachoscope_dashboards.parts.variables import DATASOURCE, Variable

SCHEMA_VERSION = 41
_MARKS_STEP = "1m"
"""Marks are asked for so often."""
PROMETHEUS = {"type": "prometheus", "uid": f"${{{DATASOURCE}}}"}
_TEXT_KEYS = ("id", "type", "title", "description", "gridPos", "options", "links", "transparent")
_PANEL_KEYS = (*_TEXT_KEYS, "fieldConfig", "transformations", "interval")


class _Panel(grafana.Panel):  # type: ignore[misc]
    """A panel of any kind; its own part is `extraJson`, because grafanalib's classes for kinds write what Grafana has dropped."""

    def to_json_data(self) -> Json:
        found: Json = self.panel_json({})
        return found


def to_json(board: Board) -> Json:
    """Return the board as Grafana 11 to 13 load it; the same each time."""
    head = panels.text(f"### {board.question}\n{board.hint}", height=3)
    dashboard = grafana.Dashboard(
        title=f"tachoscope / {board.title}",
        uid=board.uid,
        description=board.question,
        tags=["tachoscope"],
        refresh=board.refresh,
        time=grafana.Time(board.since, "now"),
        timezone="browser",
        editable=False,
        panels=_placed([head, *board.panels]),
    )
    return _finalized(dashboard, board)


def _placed(wanted: Sequence[PlacedPanel]) -> list[grafana.Panel]:
    found, left, top, tallest = [], 0, 0, 0
    for number, one in enumerate(wanted):
        is_row = one.panel.kind == "row"
        if is_row or left + one.width > 24:
            left, top, tallest = 0, top + tallest, 0
        place = grafana.GridPos(h=one.height, w=one.width, x=left, y=top)
        found.append(_grafana_panel(one.panel, number + 1, place))
        left, tallest = left + one.width, max(tallest, one.height)
    return found


def _grafana_panel(panel: Panel, id_: int, place: grafana.GridPos) -> grafana.Panel:
    return _Panel(
        id=id_,
        gridPos=place,
        title=panel.title,
        description=panel.description,
        targets=[_grafana_target(query, panel.format) for query in panel.queries],
        extraJson={"type": panel.kind, **panel.settings},
    )


def _grafana_target(query: Query, format_: str) -> grafana.Target:
    legend = query.legend or "__auto"
    return grafana.Target(expr=query.expr, legendFormat=legend, instant=query.instant, refId=query.name, format=format_)


def _finalized(dashboard: grafana.Dashboard, board: Board) -> Json:
    """Return a dashboard as JSON; keys in one order, nothing that is null or of times before."""
    raw = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    return {
        "uid": raw["uid"],
        "title": raw["title"],
        "description": raw["description"],
        "tags": raw["tags"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "timezone": raw["timezone"],
        "refresh": raw["refresh"],
        "time": {"from": raw["time"]["from"], "to": raw["time"]["to"]},
        "timepicker": {},
        "links": [_to_others()],
        "annotations": {"list": [_alerts(board), *(_marks(event) for event in board.events)]},
        "templating": {"list": [_datasource(), *(_variable(one) for one in board.variables)]},
        "panels": [_panel(panel) for panel in raw["panels"]],
    }


def _panel(raw: Json) -> Json:
    if raw["type"] == "row":
        return {"id": raw["id"], "type": "row", "title": raw["title"], "gridPos": raw["gridPos"], "collapsed": False, "panels": []}
    keys = _TEXT_KEYS if raw["type"] == "text" else _PANEL_KEYS
    found = {key: raw[key] for key in keys if raw.get(key) not in (None, [], "")}
    if raw["type"] != "text":
        found |= {"datasource": PROMETHEUS, "targets": [_target(target) for target in raw["targets"]]}
    return found


def _target(raw: Json) -> Json:
    instant = bool(raw["instant"])
    taken = {key: raw[key] for key in ("expr", "format", "legendFormat", "refId")}
    return {"datasource": PROMETHEUS, **taken, "instant": instant, "range": not instant, "editorMode": "code"}


def _datasource() -> Json:
    return {
        "name": DATASOURCE,
        "type": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "regex": "",
        "current": {},
        "options": [],
    }


def _variable(one: Variable) -> Json:
    query = f"label_values({one.source}, {one.label})"
    has_all = not (one.one or one.some)
    everything: Json = {"current": {"selected": True, "text": ["All"], "value": ["$__all"]}} if has_all else {"current": {}}
    if has_all and not one.listed:
        everything["allValue"] = ".*"
    return {
        "name": one.name,
        "type": "query",
        "label": one.title,
        "datasource": PROMETHEUS,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{one.name}"},
        "refresh": 2,
        "sort": 3,
        "hide": 0,
        "includeAll": has_all,
        "multi": not one.one,
        "regex": "",
        "options": [],
        **everything,
    }


def _to_others() -> Json:
    return {
        "title": "tachoscope",
        "type": "dashboards",
        "tags": ["tachoscope"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "The other boards, with the same choice and time",
        "url": "",
    }


def _alerts(board: Board) -> Json:
    # Alerts of all clusters or namespaces together have no such label.
    here = [f'{one.label}=~"${one.name}|"' for one in board.variables if one.label in IDENTITY]
    chosen = ", ".join(['alertstate="firing"', *here, *([board.alerts] if board.alerts else [])])
    firing = f"ALERTS{{{chosen}}}"
    # Where one begins: what fires for hours would colour all of it.
    by = ", ".join(("alertname", "severity", *IDENTITY, "training_job", "service", "instance"))
    expr = f"max by ({by}) ({firing} unless {firing} offset {_MARKS_STEP})"
    title = "{{alertname}} {{training_job}}{{service}}{{instance}} {{workload_namespace}} {{cluster}}"
    return _annotation("Alerts", expr, title, palette.BAD)


def _marks(event: BoardAnnotation) -> Json:
    return _annotation(event.name, " ".join(event.expr.split()), event.title, event.color)


def _annotation(name: str, expr: str, title: str, color: str) -> Json:
    return {
        "name": name,
        "datasource": PROMETHEUS,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": expr,
        "titleFormat": title,
        "textFormat": "",
        "tagKeys": "severity",
        "step": _MARKS_STEP,
        "useValueForTime": False,
    }
