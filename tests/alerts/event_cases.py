"""The event alerts and the series that their authors gave for them, as files that promtool tests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from helpers import REPOSITORY
from tachoscope_alerts.compile import recordings
from tachoscope_core import yaml_text

_EVENTS = REPOSITORY / "alerts" / "events"
RECORDINGS = recordings.load(REPOSITORY / "alerts" / "recordings.yaml")

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """Series in which an alert fires at a time, with these labels of its own beside those of its rule; or does not."""

    alert: str
    what: str
    fires: bool
    interval: str
    series: Sequence[Series]
    at: str
    labels: dict[str, str] = field(default_factory=dict)


def files() -> dict[str, dict[str, Any]]:
    """Return what each file says, by its stem."""
    return {path.stem: yaml_text.load(path.read_text()) for path in sorted(_EVENTS.glob("*.yaml"))}


def alerts() -> dict[str, dict[str, Any]]:
    """Return all alerts by name."""
    return {alert["alert"]: alert for content in files().values() for alert in content["alerts"]}


def cases_of(alert: dict[str, Any]) -> list[Case]:
    """Return the cases of an alert, those that everyone has first."""
    given = [{**test, "fires": name == "fires"} for name, test in alert["tests"].items()] + alert.get("also", [])
    return [Case(alert=alert["alert"], **one) for one in given]


def rule_labels(alert: dict[str, Any]) -> dict[str, str]:
    """Return the labels that the rule of an alert sets."""
    own = {key: alert[key] for key in ("severity", "area", "owner", "slo") if key in alert}
    return own | alert.get("labels", {})


def write_rules(path: Path, chosen: Iterable[dict[str, Any]], *, annotated: bool) -> None:
    """Write a plain rule file, with what the alerts read of what is recorded."""
    rules = []
    for alert in chosen:
        rule = {"alert": alert["alert"], "expr": alert["expr"], "keep_firing_for": alert.get("keep_firing_for", "5m")}
        rule["labels"] = rule_labels(alert)
        if annotated:
            rule["annotations"] = {"summary": alert["summary"], "description": alert["description"]}
        rules.append(rule)
    read = recordings.needed([rule["expr"] for rule in rules], RECORDINGS)
    rules = [*({"record": one.name, "expr": one.expr} for one in read), *rules]
    path.write_text(yaml.safe_dump({"groups": [{"name": "events", "rules": rules}]}, sort_keys=False))


def block(case: Case, expected: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return promtool's test that an alert fires with these label sets at the case's time, and with no others."""
    at = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": [{"exp_labels": labels} for labels in expected]}
    series = [dict(one) for one in case.series]
    return {"name": f"{case.alert}: {case.what}", "interval": case.interval, "input_series": series, "alert_rule_test": [at]}


def promtool_test(
    folder: Path,
    chosen: Sequence[dict[str, Any]],
    blocks: Sequence[dict[str, Any]],
    *,
    annotated: bool = False,
    together: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run promtool once on tests of alerts.

    It evaluates all rules of a file in all its tests, so each alert has files of its own, unless they are to be seen `together`.
    """
    names = {alert["alert"]: "all" if together else alert["alert"] for alert in chosen}
    tests: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in blocks:
        of = names[one["alert_rule_test"][0]["alertname"]]
        tests.setdefault((of, one["interval"]), []).append(one)
    for name in set(names.values()):
        write_rules(folder / f"{name}.yaml", [alert for alert in chosen if names[alert["alert"]] == name], annotated=annotated)
    for (name, interval), some in tests.items():
        document = {"rule_files": [f"{name}.yaml"], "evaluation_interval": interval, "tests": some}
        (folder / f"{name}_{interval}_test.yaml").write_text(yaml.safe_dump(document, sort_keys=False, width=1000))
    return promtool(folder, "test", "rules", *(f"{name}_{interval}_test.yaml" for name, interval in tests))


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder."""
    return subprocess.run(["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
