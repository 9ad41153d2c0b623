"""Suite health: are the agents well, so that the other boards can be believed?"""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import KEPT, WHOLE, how_many
from tachoscope_dashboards.boards.suite import agents as agent_panels
from tachoscope_dashboards.boards.suite import prometheus as rule_panels
from tachoscope_dashboards.boards.suite import store as agent_store_panels
from tachoscope_dashboards.boards.suite import watch as watch_panels
from tachoscope_dashboards.boards.suite.agents import NO_AGENT, UP
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import (
    ColorStep,
    Column,
    Link,
    PanelText,
    PlacedPanel,
    Query,
    bars,
    row,
    stat,
    table,
    timeseries,
)
from tachoscope_dashboards.parts.variables import CLUSTER, NAMESPACE, NODE, WHERE

_HERE = f'{WHERE}, instance=~"$node"'
_CLUSTER = 'cluster=~"$cluster"'
"""Matchers of what does not run in the agents' namespace: node exporters and Prometheus."""
_INFO = f"tachoscope_agent_info{{{_HERE}}}"
_BAD, _WARN = (ColorStep(1.0, palette.BAD),), (ColorStep(1.0, palette.WARN),)
_THIS_NODE = links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})
_KNOWN_NODES = (
    f"max by (nodename) (node_uname_info{{{_CLUSTER}}}) unless on (nodename) "
    f'label_replace(max by (instance) (tachoscope_agent_info{{{WHERE}}}), "nodename", "$1", "instance", "([^:]+)(:[0-9]+)?")'
)
"""Nodes of the node exporter's without an agent of their name, with or without a port."""


def board(policy: Policy) -> Board:
    """Return the board on tachoscope itself: agents, watch, store and Prometheus."""
    return Board(
        uid=board_uid("agents"),
        title="Suite health",
        question="Can the other boards be believed: are all agents there, and do they see everything?",
        hint="What is missing here is missing everywhere. From the top down: missing agents, what the others cannot see, "
        "records that do not reach the store, and the rules and alerts that depend on all of it.",
        variables=(CLUSTER, NAMESPACE, NODE),
        panels=(
            row("Are all agents there?"),
            *_counts(policy),
            _over_time(policy),
            _versions(policy),
            _down(policy),
            _without_agent(policy),
            row("Do they see everything?"),
            agent_panels.failing(policy, _HERE),
            agent_panels.outcomes(policy, _HERE),
            agent_panels.durations(policy, _HERE),
            row("Do records reach the store?"),
            *agent_store_panels.store(policy, _HERE),
            row("Do they answer?"),
            *agent_panels.answers(policy, _HERE),
            row("Does the watch analyze all jobs?"),
            *watch_panels.watch(policy),
            row("Do rules and alerts work?"),
            *rule_panels.rules(policy, _CLUSTER),
        ),
        events=(
            BoardAnnotation(
                "Other version",
                f"count by (version) ({_INFO}) unless count by (version) (tachoscope_agent_info{{{_HERE}}} offset 1m)",
                "agents of version {{version}} begin",
                palette.SERIES[0],
            ),
        ),
        alerts='alertname=~"Agent.+|Watch[A-Z].+|NodesNotTakenOut|CollectorFailing|PrometheusRetentionShort|.+ObjectivesNotMeasured"',
    )


def _counts(policy: Policy) -> list[PlacedPanel]:
    up = UP % _HERE
    dropped = f"round(sum(increase(tachoscope_records_dropped_total{{{_HERE}}}{WHOLE})))"
    failing = how_many(f"tachoscope_collector_failing_seconds{{{_HERE}}}", _INFO)
    reload = f"tachoscope_agent_config_reload_success{{{_HERE}}}"
    down, see = runbook(policy, "AgentDown"), "the tables below name them"
    return [
        _count("Agents up", ("Agents that report themselves.", "as many as there are nodes", see), f"count({_INFO})", (), down),
        _count("Agents down", ("Agents that did not answer the last scrape.", "0", see), how_many(f"{up} == 0", up), _BAD, down),
        _count(
            "Versions",
            ("Versions of the agent that run.", "1, but during a roll-out", "finish the roll-out, or undo it"),
            f"count(count by (version) ({_INFO}))",
            (ColorStep(2.0, palette.WARN),),
            down,
        ),
        _count(
            "Collectors failing",
            (
                "Collectors that failed in their last run, over all nodes.",
                "0",
                "the table below names them, the agent's log says why",
            ),
            failing,
            _WARN,
            runbook(policy, "CollectorFailing"),
        ),
        _count(
            "Records dropped",
            ("Records that processes of jobs could not write, in this time.", "0", "see the space of spools and who drops below"),
            dropped,
            _BAD,
            runbook(policy, "AgentDroppingRecords"),
        ),
        _count(
            "Configurations refused",
            ("Agents that go on with an earlier configuration.", "0", "`tachoscope agent --check` says what is wrong"),
            how_many(f"{reload} == 0", reload),
            _WARN,
            runbook(policy, "CollectorFailing"),
        ),
    ]


def _count(title: str, words: tuple[str, str, str], expr: str, steps: Sequence[ColorStep], link: Link) -> PlacedPanel:
    return stat(title, PanelText(*words, NO_AGENT), Query(expr), unit="short", steps=steps, links=[link])


def _over_time(policy: Policy) -> PlacedPanel:
    up = UP % _HERE
    return timeseries(
        "Agents that are scraped, and that answer",
        PanelText(
            "Agents that Prometheus knows, and those of them that answered.",
            "both the same, and as many as there are nodes",
            "answering fall: agents or their nodes; scraped fall: discovery, or nodes that were given back",
            NO_AGENT,
        ),
        [Query(f"count({up})", "scraped"), Query(f"sum({up})", "answer")],
        unit="short",
        width=16,
        colors={"scraped": palette.UNKNOWN, "answer": palette.OK},
        links=[runbook(policy, "AgentDown")],
    )


def _versions(policy: Policy) -> PlacedPanel:
    return bars(
        "Agents by version",
        PanelText(
            "Agents that run each version.",
            "one version, but during a roll-out",
            "pods that stay behind: their node has no room, or the roll-out waits for one that does not get ready",
            NO_AGENT,
        ),
        Query(f"count by (version) ({_INFO})", "{{version}}"),
        unit="short",
        links=[runbook(policy, "AgentDown")],
    )


def _down(policy: Policy) -> PlacedPanel:
    return table(
        "Agents that do not answer, or not always",
        PanelText(
            "Agents that answered less than all scrapes of the last five minutes, and the part that they answered.",
            "empty",
            "0: node or agent is down; in between: it is killed again and again, or too slow to answer",
            "all answer, or no agent is scraped: see the number of those that are up",
        ),
        [Query(f"avg_over_time({UP % _HERE}[5m]) < 1")],
        [
            Column("instance", "Node", link=_THIS_NODE),
            Column("job", "Scrape job"),
            Column("A", "Answered, last 5 minutes", unit="percentunit"),
        ],
        width=12,
        sort="Answered, last 5 minutes",
        descending=False,
        links=[runbook(policy, "AgentDown")],
    )


def _without_agent(policy: Policy) -> PlacedPanel:
    return table(
        "Nodes without an agent",
        PanelText(
            "Nodes with a node exporter and without an agent of the same name, in all namespaces and whatever nodes are chosen.",
            "empty",
            "taints, a node selector, or an image that cannot be pulled; nothing is known of what runs there",
            "each has one, or no node exporter is scraped",
        ),
        [Query(_KNOWN_NODES)],
        [Column("nodename", "Node")],
        width=12,
        sort="Node",
        descending=False,
        links=[runbook(policy, "AgentDown")],
    )
