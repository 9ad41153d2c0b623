"""Where an alert leads: its runbook, whose file has the alert's name, and the board that shows what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Links(Protocol):
    """The part of the policy that says where runbooks and boards are: URLs without a slash at the end."""

    @property
    def runbook_base(self) -> str: ...

    @property
    def dashboard_base(self) -> str: ...


def runbook_url(links: Links, alert: str) -> str:
    """Return the URL of an alert's runbook; nobody types one."""
    return f"{links.runbook_base}/{alert}.md"


def dashboard_url(links: Links, uid: str, variables: Mapping[str, str]) -> str:
    """Return the URL of a board with its variables set, as Grafana's boards take them; of no board that of the list of boards."""
    if not uid:
        return links.dashboard_base
    chosen = "&".join(f"var-{name}={value}" for name, value in variables.items())
    return f"{links.dashboard_base}/{uid}" + (f"?{chosen}" if chosen else "")
