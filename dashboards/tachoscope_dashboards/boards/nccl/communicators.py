"""Panels about NCCL's communicators, by the word of its RAS. Each takes the matchers of the nodes that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.nccl import COMMUNICATORS, MISSING_RANKS, RAS_UP
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import KEPT, how_many
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, stat, table, timeseries

_NOT_ASKED = "RAS is not asked: nccl.ras of the agent, and NCCL 2.28.7 or later"
_BAD = (ColorStep(1.0, palette.BAD),)
_COLORS = {
    "running": palette.OK,
    "disagreeing": palette.SERIES[0],
    "starting": palette.SERIES[1],
    "ending": palette.SERIES[2],
    "incomplete": palette.WARN,
    "hung": palette.STATE_COLORS["hung"],
    "error": palette.BAD,
}


def numbers(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how many communicators and ranks are not well now."""
    hung, broken = runbook(policy, "NcclCommunicatorHung"), runbook(policy, "NcclCommunicatorBroken")
    by_state = f"sum({COMMUNICATORS.name}{{{where}, state=~%s}})"
    return [
        stat(
            "Hung",
            PanelText(
                "Communicators whose ranks have launched different numbers of collectives, and launch none any more.",
                "0",
                "the log of the agent on the node that the table names says which ranks are behind",
                _NOT_ASKED,
            ),
            Query(by_state % '"hung"'),
            unit="short",
            width=6,
            steps=_BAD,
            links=[hung],
        ),
        stat(
            "Incomplete or in error",
            PanelText(
                "Communicators of which ranks do not answer or are dead, or to which NCCL reported an error.",
                "0, but for a minute while a job is started again",
                "the log of the agent on the node that the table names says which ranks",
                _NOT_ASKED,
            ),
            Query(by_state % '"incomplete|error"'),
            unit="short",
            width=6,
            steps=_BAD,
            links=[broken],
        ),
        stat(
            "Ranks missing",
            PanelText(
                "Ranks that communicators lack, though they have not left: unresponsive, or given up as dead.",
                "0",
                "their processes or their nodes: see who is dead on the board Job",
                _NOT_ASKED,
            ),
            Query(f'sum({MISSING_RANKS.name}{{{where}, condition!="not_a_member"}})'),
            unit="short",
            width=6,
            steps=_BAD,
            links=[broken],
        ),
        stat(
            "RAS that does not answer",
            PanelText(
                "Nodes on which a job's RAS is there and does not answer as it should: nothing is known of its communicators.",
                "0",
                "the job's processes are overloaded or ending; the agent's log says what came in place of an answer",
                _NOT_ASKED,
            ),
            Query(how_many(f"{RAS_UP.name}{{{where}}} == 0", f"{RAS_UP.name}{{{where}}}")),
            unit="short",
            width=6,
            steps=(ColorStep(1.0, palette.WARN),),
            links=[runbook(policy, "CollectorFailing")],
        ),
    ]


def states(policy: Policy, where: str) -> PlacedPanel:
    """Return communicators by state over time."""
    return timeseries(
        "Communicators by state",
        PanelText(
            "Communicators by state. The ranks of those that disagree have launched different numbers of collectives, as they do "
            "while they run; where none of these numbers changes for two minutes they are hung.",
            "running and disagreeing, and the height stays",
            "hung: a rank keeps the others. Incomplete, error: ranks died, or the network did",
            _NOT_ASKED,
        ),
        [Query(f"sum by (state) ({COMMUNICATORS.name}{{{where}}}) > 0", "{{state}}")],
        unit="short",
        width=14,
        stacked=True,
        colors=_COLORS,
        links=[runbook(policy, "NcclCommunicatorHung"), runbook(policy, "NcclCommunicatorBroken")],
    )


def not_well(policy: Policy, where: str) -> PlacedPanel:
    """Return the nodes that report communicators that are not well."""
    return table(
        "Who reports communicators that are not well",
        PanelText(
            "Nodes that ask for the communicators of a job, that of its rank 0, and those of them that are not well now.",
            "empty",
            "read the agent's log there: it names ranks, processes and hosts, which may be others than this node",
            "all are well, or RAS is not asked: see the numbers above",
        ),
        [Query(f'sum by (instance, state) ({COMMUNICATORS.name}{{{where}, state=~"hung|incomplete|error"}}) > 0')],
        [
            Column("instance", "Node", link=links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})),
            Column("state", "State"),
            Column("A", "Communicators", unit="short"),
        ],
        width=10,
        height=8,
        sort="Communicators",
        links=[runbook(policy, "NcclCommunicatorHung"), runbook(policy, "NcclCommunicatorBroken")],
    )
