"""All that a fleet's servers are asked: the expressions of the generated rules, and of the panels of all boards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.board_queries import queries
from benchmarks.fleet_series import Fleet

from grafana_preview.interpolate import Choice
from tachoscope_alerts.spec import files, policy
from tachoscope_core import yaml_text
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.board import Board

RULES = Path(__file__).parents[2] / "alerts" / "generated" / "prometheus"


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression, and where it stands: for messages. instant: of a panel, whether it asks for one moment only."""

    where: str
    text: str
    instant: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of a board with its expressions."""

    name: str
    expressions: tuple[Expression, ...]


def rule_files() -> list[Path]:
    return sorted(RULES.glob("*.rules.yaml"))


def of_rules() -> list[Expression]:
    """Return the expressions of all rules, in the order of their files."""
    return [
        Expression(f"rule {group['name']}, {number}: {rule.get('record') or rule['alert']}", rule["expr"])
        for path in rule_files()
        for group in yaml_text.load(path.read_text())["groups"]
        for number, rule in enumerate(group["rules"], start=1)
    ]


def panels(fleet: Fleet, seconds: float) -> list[Panel]:
    """Return the panels of all boards as they ask over so many seconds: of one node or job where one has to be chosen."""
    found = []
    for board in boards(policy.load(files.path_of("policy.yaml"))):
        for title, asked in queries(board, _choices(board, fleet), seconds).items():
            name = f"{board.title}: {title}"
            found.append(Panel(name, tuple(Expression(f"panel {name}", text, instant) for text, instant in asked)))
    return found


def _choices(board: Board, fleet: Fleet) -> list[Choice]:
    """Return what is chosen of the variables that do not take all."""
    known = {**fleet.job_labels(0), "node": fleet.node_labels(0)["instance"], "slo": "training-goodput"}
    # A matcher on the Kubernetes namespace of a fleet that is not in one takes what is empty.
    chosen = [Choice(one.name, (known.get(one.name, ""),)) for one in board.variables if one.one or one.some]
    return [*chosen, *(Choice(one.name, _nodes_of_job(fleet)) for one in board.variables if one.listed)]


def _nodes_of_job(fleet: Fleet) -> tuple[str, ...]:
    """Return the nodes of the chosen job, which are what boards of one job list."""
    nodes = (node for node in range(fleet.nodes) if fleet.job_labels(node) == fleet.job_labels(0))
    return tuple(fleet.node_labels(node)["instance"] for node in nodes)
