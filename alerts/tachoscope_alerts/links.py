"""Where an alert leads: its runbook, whose file has the alert's name, and the board that shows what it is about."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_alerts.policy import Policy


def runbook_url(policy: Policy, alert: str) -> str:
    """Return the URL of an alert's runbook; nobody types one."""
    return f"{policy.runbook_base}/{alert}.md"


def dashboard_url(policy: Policy, uid: str, variables: Mapping[str, str]) -> str:
    """Return the URL of a board with its variables set, as Grafana's boards take them; of no board that of the list of boards."""
    if not uid:
        return policy.dashboard_base
    chosen = "&".join(f"var-{name}={value}" for name, value in variables.items())
    return f"{policy.dashboard_base}/{uid}" + (f"?{chosen}" if chosen else "")
