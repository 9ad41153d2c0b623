"""Writes what is made of the objectives and alerts: rules with their tests, generated parts of runbooks, tables in pages.

The chart of the agent has its own copies of the rules.
"""

from __future__ import annotations

import json
from pathlib import Path

from generate_chart import chart_files
from tachoscope_alerts import build
from tachoscope_alerts.compile import detection_time as detection
from tachoscope_alerts.compile import event_alerts, recordings
from tachoscope_alerts.compile.runbooks import stale as stale_runbooks
from tachoscope_alerts.compile.runbooks import subjects
from tachoscope_alerts.compile.sli_expressions import number
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import AtMost, Indicator, MoreThan, Ratio
from tachoscope_core import yaml_text

ALERTS = Path(__file__).parents[1] / "alerts"
RUNBOOKS = Path(__file__).parents[1] / "runbooks"


def detection_times() -> str:
    """Return the table of the computed times to detection."""
    return detection.table(slo_files.load([ALERTS / "slos"]))


def objective_table() -> str:
    """Return the shipped objectives as a table in Markdown."""
    rows = []
    for slo in slo_files.load([ALERTS / "slos"]):
        tells = "page, ticket" if slo.pages else "ticket"
        numbers = f"{_threshold(slo.indicator)} | {number(slo.target * 100)} % | {number(slo.period_days)} d"
        told = f"{slo.owner} | {tells}: `{slo.alert}`"
        rows.append(f"| `{slo.name}` | {slo.description} | {numbers} | {slo.target_source} | {told} |")
    head = "| objective | what it means | good is | target | period | source of the target | owner | alert |"
    return "\n".join([head, f"|{'---|' * 8}", *rows])


def _threshold(indicator: Indicator) -> str:
    if isinstance(indicator, AtMost | MoreThan):
        return f"{'at most' if isinstance(indicator, AtMost) else 'above'} {number(indicator.bound)}"
    if isinstance(indicator, Ratio):
        return ""
    words = {"lt": "below", "lte": "at most", "gt": "above", "gte": "at least"}
    return f"{words[indicator.comparison]} {number(indicator.bound)}"


def alert_files(*, write: bool) -> list[str]:
    """Write or check the rules, their tests and what else is made of objectives; return the files that were not current."""
    slos, found = slo_files.load([ALERTS / "slos"]), event_alerts.load(ALERTS / "events")
    told, recorded = policy.load(ALERTS / "policy.yaml"), recordings.load(ALERTS / "recordings.yaml")
    made, folder = build.contents(slos, found, told, Timing(), recorded), ALERTS / "generated"
    stale = [str(path.relative_to(ALERTS.parent)) for path in build.stale(made, folder)]
    if write:
        build.write(made, folder)
    rules = {name: yaml_text.load(text) for name, text in made.items() if name.endswith(".rules.yaml")}
    # As the boards: on one line, for machines. People read and compare those in the folder of alerts.
    of_chart = {Path(name).name.replace(".rules.yaml", ".json"): json.dumps(one, ensure_ascii=False) for name, one in rules.items()}
    return [*stale, *chart_files("rules", of_chart, write=write)]


def alert_runbooks(*, write: bool) -> list[str]:
    """Write or check what is generated in runbooks, with a skeleton where there is none; return those that were not current."""
    about = subjects(slo_files.load([ALERTS / "slos"]), event_alerts.load(ALERTS / "events"))
    pages = stale_runbooks(RUNBOOKS, about.values(), policy.load(ALERTS / "policy.yaml"))
    for path, text in pages.items():
        if write:
            path.write_text(text)
    return [f"runbooks/{path.name}" for path in pages]
