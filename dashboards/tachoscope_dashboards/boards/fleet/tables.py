"""Who loses the accelerator hours of a fleet: its jobs, its nodes, and the alerts that fire."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.alerts import AREAS, OF_CLUSTER
from tachoscope_dashboards.boards.shared.alerts import firing as firing_alerts
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, Link, PanelText, PlacedPanel, Query, bars, table

GOODPUT = "training-goodput"
_HERE = 'cluster=~"$cluster"'
_TIME = "job_state:tachoscope_job_time:rate1m"
_USEFUL = "compute|evaluation"
_ON_A_NODE = 'instance!=""'
_COLORS = {"page": palette.BAD, "ticket": palette.WARN}


def worst_jobs(policy: Policy, empty: str) -> PlacedPanel:
    """Return the table of all jobs, the one with the lowest ETTR first."""
    chosen = identity.job_of_row(CLUSTER_KEPT, "${__data.fields.Job}")
    return table(
        "Jobs, the worst first",
        PanelText(
            "Each job that runs: its effective training time ratio (ETTR) now, how many ranks it has, what takes most of its time "
            "beside computing and evaluation, and how much: communication and straggler_wait "
            "count as effective, the others are lost; ranks that hang or are silent, and what its GPUs do.",
            f"ETTR of {slo_objectives.objective(GOODPUT).target:.0%} or more in each row, no rank hung or silent",
            "the name opens the job's board, its ETTR the job in the explorer",
            empty,
        ),
        _of_jobs(),
        [
            Column("training_job", "Job", link=links.board("training", "Why it is slow", chosen)),
            *identity.COLUMNS,
            Column(
                "A",
                "ETTR",
                unit="percentunit",
                steps=slo_objectives.at_least(GOODPUT),
                link=explorer(policy, "job", "In the explorer", {"job": "${__data.fields.Job}"}),
            ),
            Column("B", "Ranks", unit="short"),
            Column("state", "Most apart from computing"),
            Column("C", "Takes", unit="percentunit"),
            Column("D", "Hung or silent", unit="short", steps=(ColorStep(1.0, palette.BAD),)),
            Column("E", "Data wait", unit="percentunit", steps=slo_objectives.above("training-input-wait")),
            Column("F", "SM activity", unit="percentunit", steps=slo_objectives.colors_below("gpu-efficiency")),
            Column("G", "Step", unit="s"),
        ],
        height=12,
        sort="ETTR",
        descending=False,
        links=[runbook(policy, slo_objectives.objective(GOODPUT).alert)],
    )


def _of_jobs() -> list[Query]:
    left_out = slo_objectives.LEFT_OUT_STATES
    counted = f'(sum by ({identity.JOB}) ({_TIME}{{{_HERE}, state!~"{left_out}"}}) > 0)'
    losses = f'sum by ({identity.JOB}, state) ({_TIME}{{{_HERE}, state!~"{_USEFUL}|{left_out}"}})'
    return [
        Query(f'sum by ({identity.JOB}) ({_TIME}{{{_HERE}, state=~"{slo_objectives.GOOD_STATES}"}}) / {counted}'),
        Query(f"sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_HERE}}})"),
        Query(f"topk by ({identity.JOB}) (1, {losses} / on ({identity.JOB}) group_left () {counted} > 0)"),
        Query(f'sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_HERE}, state=~"silent|hung"}})'),
        Query(f'sum by ({identity.JOB}) ({_TIME}{{{_HERE}, state="data_wait"}}) / {counted}'),
        Query(f"avg by ({identity.JOB}) (job:tachoscope_sm_active:mean1m{{{_HERE}}})"),
        Query(f"avg by ({identity.JOB}) (job:tachoscope_step_seconds:mean1m{{{_HERE}}})"),
    ]


def nodes(policy: Policy) -> PlacedPanel:
    """Return the table of nodes with which something is wrong."""
    chosen = CLUSTER_KEPT | {"node": "${__data.fields.Node}"}
    return table(
        "Nodes with which something is wrong",
        PanelText(
            "Nodes with GPUs that are unhealthy or missing, or with a firing alert.",
            "empty",
            "the node's name opens its hardware: reasons and what to do about each are there",
            "no node is known to be unwell",
        ),
        [
            Query(f"max by (instance, state) (node:tachoscope_node_health:bad{{{_HERE}}})"),
            Query(f"sum by (instance) (node:tachoscope_gpus_missing:sum{{{_HERE}}})"),
            Query(f"count by (instance) ({firing_alerts(OF_CLUSTER, _ON_A_NODE)})"),
        ],
        [
            Column("instance", "Node", link=links.board("gpu-node", "Its hardware", chosen)),
            Column("state", "Health"),
            Column("B", "GPUs missing", unit="short", steps=(ColorStep(1.0, palette.BAD),)),
            Column("C", "Alerts", unit="short", steps=(ColorStep(1.0, palette.WARN),)),
        ],
        height=8,
        sort="GPUs missing",
        links=[runbook(policy, "GpuLost"), runbook(policy, "GpuXidError")],
    )


def firing() -> PlacedPanel:
    """Return how many alerts fire, by area and severity."""
    return bars(
        "Alerts that fire, by area",
        PanelText(
            "Alerts that fire now, by area and severity. A page needs a person at once, a ticket within a day.",
            "no page; few tickets",
            "begin with infrastructure: what it breaks fires elsewhere too",
            "no alert fires",
        ),
        Query(f"count by (area, severity) ({firing_alerts(OF_CLUSTER)})", "{{area}}, {{severity}}"),
        unit="short",
        height=9,
        colors={f"{area}, {severity}": color for area in AREAS for severity, color in _COLORS.items()},
        links=[links.board("slos", "Budgets", CLUSTER_KEPT)],
    )


def alerts(policy: Policy) -> PlacedPanel:
    """Return the alerts that fire, with where each leads."""
    page = Link("Runbook", f"{policy.runbook_base}/${{__value.raw}}.md")
    chosen = identity.job_of_row(CLUSTER_KEPT)
    service = identity.service_of_row(CLUSTER_KEPT)
    return table(
        "Alerts that fire",
        PanelText(
            "Alerts that fire now, with the job, service or node that they are about.",
            "empty",
            "an alert's name opens its runbook, a job's name its board",
            "no alert fires",
        ),
        [Query(firing_alerts(OF_CLUSTER))],
        [
            Column("alertname", "Alert", link=page),
            Column("severity", "Severity"),
            Column("area", "Area"),
            Column("training_job", "Job", link=links.board("training", "Why it is slow", chosen)),
            Column("service", "Service", link=links.board("inference", "Its service", service)),
            Column("model", "Model"),
            *identity.COLUMNS,
            Column("instance", "Node", link=links.board("gpu-node", "Its hardware", CLUSTER_KEPT | {"node": "${__value.raw}"})),
        ],
        width=16,
        height=9,
        sort="Severity",
        descending=False,
    )
