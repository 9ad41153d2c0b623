"""Where an alert leads: its runbook, whose file has the alert's name, and the board that shows what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tachoscope_alerts.spec.policy import Policy


def runbook_url(policy: Policy, alert: str) -> str:
    """Return the URL of an alert's runbook; nobody types one."""
    return f"{policy.runbook_base}/{alert}.md"


BOARDS = frozenset({"agents", "data", "fleet", "gpu-node", "inference", "nccl", "slos", "storage", "training"})
"""Names of the suite's boards, as objectives, alerts and links name them."""
_PREFIX = "tachoscope-"
"""Of their uids: a Grafana has one board of a uid, in whichever folder, and others have a board `data` too."""


def board_uid(board: str) -> str:
    """Return the uid of a board by its name, such as `tachoscope-fleet` of `fleet`; a board of others is named by its uid."""
    return f"{_PREFIX}{board}" if board in BOARDS else board


def board_name(uid: str) -> str:
    """Return the short name of a board, which its files have: `fleet` of `tachoscope-fleet`; of another board its uid."""
    return uid.removeprefix(_PREFIX)


_VARIABLES = {"training_job": "training_job", "service": "service", "model": "model"}
_OF_BOARD = {
    "gpu-node": {"instance": "node", "gpu": "gpu"},
    "nccl": {"instance": "node"},
    "agents": dict[str, str](),
    "slos": {"slo": "slo"},
}
"""Variables of boards by the label of an alert that chooses them; on other boards an instance is not always a node."""


def chosen_by(board: str, labels: Iterable[str]) -> dict[str, str]:
    """Return the variables of a board that an alert's labels set, as Prometheus templates."""
    of_board = _OF_BOARD.get(board_name(board), _VARIABLES)
    return {of_board[label]: f"{{{{ $labels.{label} | urlquery }}}}" for label in labels if label in of_board}


def dashboard_url(policy: Policy, board: str, variables: Mapping[str, str]) -> str:
    """Return the URL of a board with its variables set, as Grafana's boards take them; of no board that of the list of boards.

    Args:
        board: name of one of the suite's, or uid of another.
    """
    if not board:
        return policy.dashboard_base
    chosen = "&".join(f"var-{name}={value}" for name, value in variables.items())
    return f"{policy.dashboard_base}/{board_uid(board)}" + (f"?{chosen}" if chosen else "")
