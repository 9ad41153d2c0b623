"""What a fire drill holds an alert against, once it reached the receiver: times, and what the person who is told needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tachoscope_alerts.spec.policy import Policy
from tachoscope_cli.drill.webhook_receiver import Arrival
from tachoscope_show.text.runbook_pages import text_of

_LEFT_OVER = re.compile(r"\{\{|<no value>|<error|\bNaN\b|%!")
"""What a template leaves in a text when it goes wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a drill looks at: what was found, and whether that is as it should be; of a time also in seconds."""

    what: str
    passed: bool
    found: str
    measured_seconds: float | None = None
    earliest_seconds: float | None = None
    latest_seconds: float | None = None


def check_time(what: str, measured: float | None, earliest: float, latest: float) -> Check:
    """Compare a time with the computed one; all in seconds, None: it did not happen."""
    computed = f"computed: {earliest:.1f} to {latest:.1f} s"
    passed = measured is not None and earliest <= measured <= latest
    said = "not at all" if measured is None else f"{measured:.1f} s"
    return Check(what, passed, f"{said}; {computed}", measured, earliest, latest)


def of_message(arrival: Arrival, policy: Policy) -> list[Check]:
    """Check what an alert says: a summary with numbers, a board, and a runbook that exists."""
    summary = arrival.annotations.get("summary", "")
    board = arrival.annotations.get("dashboard_url", "")
    runbook = arrival.annotations.get("runbook_url", "")
    file = f"runbooks/{arrival.name}.md"
    there = bool(text_of(file))
    is_its_own = runbook == f"{policy.runbook_base}/{arrival.name}.md"
    return [
        Check("summary with numbers", bool(re.search(r"\d", summary)) and not _LEFT_OVER.search(summary), summary or "none"),
        Check("dashboard", board.startswith(policy.dashboard_base) and not _LEFT_OVER.search(board), board or "none"),
        Check("runbook", there and is_its_own, runbook if there else f"{runbook or 'none'}: there is no {file}"),
    ]


def of_route(arrival: Arrival, policy: Policy) -> Check:
    """Check that it reached its owner's receiver."""
    owner, severity = arrival.labels.get("owner", ""), arrival.labels.get("severity", "")
    passed = owner in policy.owners and arrival.receiver == f"{owner}-{severity}"
    return Check("reached its owner", passed, f"{arrival.receiver} (severity {severity or 'none'}, owner {owner or 'none'})")
