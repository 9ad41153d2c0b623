"""Where an alert leads: its runbook, whose file has the alert's name, and the board that shows what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tachoscope_alerts.policy import Policy


def runbook_url(policy: Policy, alert: str) -> str:
    """Return the URL of an alert's runbook; nobody types one."""
    return f"{policy.runbook_base}/{alert}.md"


_VARIABLES = {"training_job": "training_job", "service": "service", "model": "model"}
_OF_BOARD = {
    "gpu-node": {"instance": "node", "gpu": "gpu"},
    "nccl": {"instance": "node"},
    "agents": dict[str, str](),
    "slos": {"slo": "slo"},
}
"""Variables of boards by the label of an alert that chooses them; on other boards an instance is not always a node."""


def chosen_by(uid: str, labels: Iterable[str]) -> dict[str, str]:
    """Return what the labels of an alert choose on a board, by its variables, as Prometheus's templates."""
    of_board = _OF_BOARD.get(uid, _VARIABLES)
    return {of_board[label]: f"{{{{ $labels.{label} | urlquery }}}}" for label in labels if label in of_board}


def dashboard_url(policy: Policy, uid: str, variables: Mapping[str, str]) -> str:
    """Return the URL of a board with its variables set, as Grafana's boards take them; of no board that of the list of boards."""
    if not uid:
        return policy.dashboard_base
    chosen = "&".join(f"var-{name}={value}" for name, value in variables.items())
    return f"{policy.dashboard_base}/{uid}" + (f"?{chosen}" if chosen else "")
