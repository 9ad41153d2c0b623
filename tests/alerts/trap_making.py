"""Traps as rules and series for promtool: what the usual expression says of the series, which is wrong, and what our rules say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from helpers import REPOSITORY
from promtool_running import faults
from sample_slos import AVAILABILITY, PLACES
from tachoscope_alerts.compile import event_alerts, recordings
from tachoscope_alerts.compile.planted_series import PlantedStretch
from tachoscope_alerts.compile.rules import Rule, groups
from tachoscope_alerts.compile.sli_expressions import ERROR_RATIO, quoted, recorded
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo

TIMING = Timing()
EVENTS = event_alerts.load(REPOSITORY / "alerts" / "events")
RECORDINGS = recordings.load(REPOSITORY / "alerts" / "recordings.yaml")
Trap = tuple[dict[str, Any], list[dict[str, Any]]]
"""Rules, and blocks of a test."""
Traps = dict[str, Callable[[], Trap]]
ANY = replace(AVAILABILITY, least_bad_events=0)
"""An objective whose alerts look at no number of events."""


def failing(traps: Traps, folder: Path) -> dict[str, str]:
    """Run all traps at once; return what promtool says of those that we fall into."""
    rules, tests = {}, {}
    for name, make in traps.items():
        document, blocks = make()
        rules[f"{name}.yaml"] = document
        tests[name] = {
            "rule_files": [f"{name}.yaml"],
            "evaluation_interval": "30s",
            "group_eval_order": [group["name"] for group in document["groups"]],
            "tests": blocks,
        }
    return faults(folder, rules, tests)


def rules_of(*slos: Slo, more: tuple[Rule, ...] = (), before: tuple[Rule, ...] = (), days: bool = False) -> dict[str, Any]:
    """Return the rules of objectives up to six hours, or all; with rules evaluated `before` them or after."""
    found = [group for slo in slos for group in groups(slo, PLACES, TIMING)[: None if days else 1]]
    found = [{"name": "before", "rules": list(before)}, *found, {"name": "more", "rules": list(more)}]
    return {"groups": [group for group in found if group["rules"]]}


def block(series: list[dict[str, str]], *asked: dict[str, Any]) -> dict[str, Any]:
    return {"interval": "15s", "input_series": series, "promql_expr_test": list(asked)}


def some(expression: str, at: str) -> dict[str, Any]:
    return {"expr": f"count({expression}) > bool 0", "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]}


def nothing(expression: str, at: str) -> dict[str, Any]:
    return {"expr": expression, "eval_time": at, "exp_samples": []}


def about(expression: str, value: float, at: str, off: float = 0.02) -> dict[str, Any]:
    """Ask that an expression has a value within a part of it."""
    return some(f"abs({expression} - {value:g}) <= {off * value:g}", at)


def firing(slo: Slo, **labels: str) -> str:
    wanted = {"alertname": slo.alert, "alertstate": "firing", "slo": slo.name, **labels}
    return f"ALERTS{{{','.join(f'{name}={quoted(value)}' for name, value in wanted.items())}}}"


def ratio(slo: Slo, window: str) -> str:
    return recorded(ERROR_RATIO, slo, window=window)


def minutes(count: float, total: float, bad: float, *, restart: bool = False) -> PlantedStretch:
    """Return minutes with so many events each."""
    return PlantedStretch(round(4 * count), total / 4, bad / 4, restart=restart)


def one(series: str, values: str) -> dict[str, str]:
    return {"series": series, "values": values}


def of_event(name: str) -> dict[str, Any]:
    return {"groups": groups_of_events([event for event in EVENTS if event.alert == name])}


def groups_of_events(chosen: list[event_alerts.EventAlert]) -> list[dict[str, Any]]:
    assert chosen, "the alert is not among alerts/events"
    read = recordings.needed([event.expr for event in chosen], RECORDINGS)
    return [*recordings.groups(read, TIMING), *event_alerts.groups(chosen, PLACES, TIMING)]
