"""Where panels lead: the runbook of an alert, another board, or the explorer with job, rank and time range."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_alerts.compile.links import board_uid, runbook_url
from tachoscope_alerts.spec.policy import Policy
from tachoscope_dashboards.parts.panels import Link

_TIME = "from=${__from}&to=${__to}"


def runbook(policy: Policy, alert: str) -> Link:
    """Return the link to an alert's runbook."""
    return Link(f"Runbook {alert}", runbook_url(policy, alert))


def explorer(policy: Policy, page: str, title: str, chosen: Mapping[str, str]) -> Link:
    """Return the link to a page of the explorer: `job`, `trace`, `slos`, `inference`; `chosen` are its parameters.

    Values are Grafana's variables, such as `{"job": "${training_job}"}`; the time range goes along as Unix milliseconds.
    """
    parameters = "&".join([*(f"{name}={value}" for name, value in chosen.items()), _TIME])
    return Link(title, f"{policy.explorer_base}/{page}?{parameters}")


def board(name: str, title: str, chosen: Mapping[str, str]) -> Link:
    """Return the link to another board, by its name, with variables set, the time range kept.

    A variable that is given its own value, as in `{"node": "${node}"}`, keeps all that are chosen.
    """
    parameters = "&".join([*(_variable(key, value) for key, value in chosen.items()), "var-datasource=${datasource}", _TIME])
    return Link(title, f"/d/{board_uid(name)}?{parameters}")


def _variable(name: str, value: str) -> str:
    # Written plainly, several values would arrive as one in braces: {a,b}.
    return f"${{{name}:queryparam}}" if value == f"${{{name}}}" else f"var-{name}={value}"
