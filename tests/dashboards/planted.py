"""Boards as Grafana loads them, and what the real promtool answers to their expressions over series that are planted.

BOARD = made(fleet.board(POLICY))
wrong(tmp_path, {'up{job="tachoscope"}': "1x30"}, [(expression(BOARD, "Agents up"), "10m", {"{}": 1.0})])  # "": all is right
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import REPOSITORY
from promtool_running import faults
from tachoscope_alerts.compile import event_alerts
from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec import files, policy, slo_files
from tachoscope_core import yaml_text
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json

RULES = REPOSITORY / "alerts" / "generated" / "prometheus"
POLICY = policy.load(REPOSITORY / "alerts" / "policy.yaml")
Json = dict[str, Any]
Answer = Mapping[str, float]
"""Values by the labels of their series, as promtool writes them: `{service="chat"}`; `{}` has none."""
_GRAFANAS = {"__rate_interval": "1m", "__range": "1h", "__interval_ms": "60000"}


def made(board: Board) -> Json:
    """Return a board as Grafana reads it."""
    found: Json = json.loads(json.dumps(to_json(board), allow_nan=False))
    return found


# --- parts of a board ---------------------------------------------------------------------------------------------------------


def panels(board: Json) -> dict[str, Json]:
    """Return the panels of a board that ask, by their titles; two of one title are an error."""
    asking = [panel for panel in board["panels"] if panel.get("targets")]
    found = {panel["title"]: panel for panel in asking}
    assert len(found) == len(asking)
    return found


def panel(board: Json, title: str) -> Json:
    """Return the one panel of a title."""
    return panels(board)[title]


def variable(board: Json, name: str) -> Json:
    """Return a variable."""
    (found,) = [one for one in board["templating"]["list"] if one["name"] == name]
    return dict(found)


def written(board: Json) -> dict[tuple[str, str], str]:
    """Return the expressions of a board with their variables: of panels by title and refId, of marks by name and nothing."""
    found = {(title, one["refId"]): one["expr"] for title, shown in panels(board).items() for one in shown["targets"]}
    return found | {(mark["name"], ""): mark["expr"] for mark in board["annotations"]["list"]}


def expression(board: Json, title: str, name: str = "A", **chosen: str) -> str:
    """Return an expression of a panel with variables at what is chosen, by default at all; of a mark with the name ""."""
    return filled(written(board)[title, name], chosen)


def filled(expr: str, chosen: Mapping[str, str]) -> str:
    """Return an expression without variables: those that are not chosen are all, windows of rates a minute, the time an hour."""
    return re.sub(r"\$([a-z_]\w*)", lambda found: (_GRAFANAS | dict(chosen)).get(found[1], ".*"), expr)


def steps(panel: Json) -> list[tuple[float | None, str]]:
    """Return the colours of a panel, each with the value from which it holds."""
    return [(one["value"], one["color"]) for one in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def colors(panel: Json) -> dict[str, str]:
    """Return the fixed colours of a panel's series, by legend."""
    return {
        override["matcher"]["options"]: one["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        for one in override["properties"]
        if one["id"] == "color" and "fixedColor" in one["value"]
    }


def column(panel: Json, title: str) -> dict[str, Any]:
    """Return the properties of a table's column by their ids."""
    (found,) = [one for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == title]
    return {one["id"]: one["value"] for one in found["properties"]}


def texts(panel: Json) -> dict[str, str]:
    """Return what a timeline writes for each value."""
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    return {value: one["text"] for value, one in mapping["options"].items()}


def links(panel: Json) -> Iterator[str]:
    """Yield where a panel and the cells of its columns lead."""
    yield from (link["url"] for link in panel.get("links", []))
    for override in panel["fieldConfig"]["overrides"]:
        for one in override["properties"]:
            if one["id"] == "links":
                yield from (link["url"] for link in one["value"])


# --- what boards are not to have ----------------------------------------------------------------------------------------------


def lines_of_what_happens_now_and_then(board: Json) -> list[str]:
    """Return panels that draw single events as a line, which shows no value that stands alone."""
    return [
        title
        for title, one in panels(board).items()
        if one["type"] == "timeseries"
        and one["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "line"
        and any("increase(" in target["expr"] or "__interval_ms" in target["expr"] for target in one["targets"])
    ]


def unmarked_alerts(board: Json) -> list[str]:
    """Return alerts that lead people to a board and are not marked on it; the one that always fires would mark all of it."""
    (pattern,) = set(re.findall(r'alertname=~"([^"]+)"', written(board)["Alerts", ""]))
    leading = [(slo.dashboard, slo.alert) for slo in slo_files.load([files.path_of("slos")])]
    leading += [(event.dashboard, event.alert) for event in event_alerts.load(files.path_of("events")) if event.severity != "none"]
    return [alert for name, alert in leading if board_uid(name) == board["uid"] and not re.fullmatch(pattern, alert)]


# --- what expressions answer --------------------------------------------------------------------------------------------------


def wrong(
    folder: Path,
    series: Mapping[str, str],
    asked: Sequence[tuple[str, str, Answer]],
    *,
    rules: Sequence[str] = (),
    interval: str = "30s",
    choice: Mapping[str, str] | None = None,
) -> str:
    """Return what promtool finds wrong in the answers, of which it compares six digits after the point; "" if nothing.

    Args:
        series: values of each, an interval apart, in promtool's notation. asked: expressions, times and answers.
        rules: files of generated rules that are evaluated. choice: of variables that expressions still have; all by default.
    """
    documents = {name: yaml_text.load((RULES / name).read_text()) for name in rules}
    tests = [
        {
            "expr": f"round(({filled(expr, choice or {})}) * 1e6) / 1e6",
            "eval_time": at,
            "exp_samples": [{"labels": labels, "value": round(value, 6)} for labels, value in answer.items()],
        }
        for expr, at, answer in asked
    ]
    planted = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "rule_files": list(rules),
        "evaluation_interval": "30s",
        "tests": [{"interval": interval, "input_series": planted, "promql_expr_test": tests}],
    }
    said: str = faults(folder, documents, {"test.yaml": document}).get("test.yaml", "")
    return said


def differs(folder: Path, expr: str, series: Mapping[str, str], expected: Answer, at: str = "10m") -> str:
    """Return what promtool finds wrong if an expression's answer is not as expected; "" if it is."""
    return wrong(folder, series, [(expr, at, expected)])
