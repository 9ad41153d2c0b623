"""A small board that keeps all rules, and its parts to damage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from helpers import REPOSITORY
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import KEPT
from tachoscope_dashboards.lint import board_json
from tachoscope_dashboards.lint.board_json import Dashboard
from tachoscope_dashboards.lint.lint import Finding, Rule
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.links import board as to_board
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, Query, row, stat, table, timeseries
from tachoscope_dashboards.parts.variables import CLUSTER, NAMESPACE, NODE, WHERE, Variable

Json = dict[str, Any]
POLICY = policy.load(REPOSITORY / "alerts" / "policy.yaml")
SLOS = slo_files.load([REPOSITORY / "alerts" / "slos"])
KNOWN = catalogue(SLOS)
ABOUT = PanelText("What there is.", "all of it", "look at the rest", "nothing was found")
_ONE_JOB = Variable("training_job", "training_job", f"tachoscope_job_active{{{WHERE}}}", "Training job", one=True)
"""Without the variables of its place, which boards of one job have."""
_NODE = f'{WHERE}, instance=~"$node", training_job="$training_job"'


def board() -> Board:
    """Return a board with a number, lines, a table, an event and links."""
    return Board(
        uid="small",
        title="Small",
        question="Is all of it there?",
        hint="Look from the top.",
        variables=(CLUSTER, NAMESPACE, NODE, _ONE_JOB),
        panels=(
            stat("Nodes", ABOUT, Query(f'count(tachoscope_agent_info{{{WHERE}, instance=~"$node"}})'), unit="short"),
            row("Time"),
            timeseries(
                "Where time goes",
                ABOUT,
                [Query(f"sum by (state) (rate(tachoscope_job_time_seconds_total{{{_NODE}}}[$__rate_interval]))", "{{state}}")],
                unit="short",
                stacked=True,
                colors=palette.STATE_COLORS,
                links=[runbook(POLICY, "TrainingGoodputBurn"), explorer(POLICY, "job", "Explorer", {"job": "${training_job}"})],
            ),
            table(
                "Ranks",
                ABOUT,
                [
                    Query(f"max by (rank) (tachoscope_heartbeat_age_seconds{{{_NODE}}})"),
                    Query(f"sum by (rank) (rate(tachoscope_steps_total{{{_NODE}}}[5m]))"),
                ],
                [
                    Column(
                        "rank",
                        "Rank",
                        link=to_board("small", "This board", KEPT | {"node": "${node}", "training_job": "${training_job}"}),
                    ),
                    Column("A", "Silent for", "s"),
                    Column("B", "Steps", "ops", steps=(ColorStep(0.0, palette.WARN),)),
                ],
            ),
        ),
        events=(
            BoardAnnotation("Restarts", f"changes(tachoscope_job_active{{{_NODE}}}[2m]) > 0", "{{training_job}}", palette.WARN),
        ),
        alerts='area="training"',
    )


def made() -> Json:
    """Return the board as JSON, new each time."""
    return to_json(board())


def read(raw: Json) -> Dashboard:
    """Return what checks read of a board."""
    return board_json.dashboard(raw, str(raw.get("uid", "board")))


def panel(raw: Json, title: str) -> Json:
    """Return a panel of a board."""
    (found,) = [one for one in raw["panels"] if one.get("title") == title]
    return found


def variable(raw: Json, name: str) -> Json:
    """Return a variable of a board."""
    (found,) = [one for one in raw["templating"]["list"] if one["name"] == name]
    return found


def found(rules: Iterable[Rule], name: str, raw: Json) -> list[Finding]:
    """Return what the rule of a name finds in a board."""
    (rule,) = [one for one in rules if one.name == name]
    return list(rule.find(read(raw)))
