"""Which machines of a fleet are lost, out of service, or behind a slow link."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import Column, PanelText, PlacedPanel, Query, table, timeseries

_HERE = 'cluster=~"$cluster"'
_NO_WATCH = "no watch runs with --nodes, or the rules of tachoscope are not loaded"


def out_of_service(policy: Policy) -> PlacedPanel:
    """Return the nodes by the state of their life cycle."""
    return timeseries(
        "Nodes out of service",
        PanelText(
            "Nodes by the state of their life cycle: suspect ones still run jobs, quarantined and draining ones get none, testing "
            "ones run tests, returned ones are on probation. Held ones should be out; a limit or the breaker keeps them in.",
            "none, or a few in testing",
            "tachoscope nodes ls names them; held: follow the runbook",
            _NO_WATCH,
        ),
        [
            Query(f"sum by (state) (fleet:tachoscope_watch_nodes:max{{{_HERE}}})", "{{state}}"),
            Query(f"sum(fleet:tachoscope_watch_nodes_held:max{{{_HERE}}})", "held"),
        ],
        unit="short",
        colors={"quarantined": palette.BAD, "suspect": palette.WARN, "returned": palette.OK},
        links=[runbook(policy, "NodesNotTakenOut")],
    )


def slow_links() -> PlacedPanel:
    """Return the hosts and switches behind slow links."""
    chosen = identity.job_of_row(CLUSTER_KEPT, "${__data.fields.Job}")
    return table(
        "Slow links, by the host or switch that they share",
        PanelText(
            "Jobs with slow links that all pass one host or switch, which no other link of the job passes. Switches are known "
            "where the job's topology is.",
            "empty",
            "several jobs with one place: it is the place. Test the host, or the switch's ports and cables",
            "no job has slow links of one place, or no watch runs",
        ),
        [Query(f"max by ({identity.JOB}, place) (place:tachoscope_slow_links:max{{{_HERE}}})")],
        [
            Column("place", "Host or switch"),
            Column("training_job", "Job", link=links.board("training", "Why it is slow", chosen)),
            *identity.COLUMNS,
            Column("A", "Slow links", unit="short"),
        ],
        width=12,
        height=8,
        sort="Host or switch",
        descending=False,
    )
