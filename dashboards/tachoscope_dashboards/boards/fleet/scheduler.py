"""What the scheduler of a cluster says: which jobs wait for accelerators, and who holds some without using them."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import PanelText, PlacedPanel, Query, timeseries

_HELD = "fleet:tachoscope_scheduler_accelerators_held:max"
_HERE = 'cluster=~"$cluster"'
_NOT_ASKED = "no watch runs with --scheduler, the scheduler does not answer, or the rules of tachoscope are not loaded"
GANG_WAIT = "gang-wait"


def queue(policy: Policy) -> list[PlacedPanel]:
    """Return the panels on what jobs hold, and on the queue."""
    return [*_allocated(policy), *_pending(policy)]


def _allocated(policy: Policy) -> list[PlacedPanel]:
    return [
        timeseries(
            "Accelerators by state",
            PanelText(
                "All accelerators as the scheduler counts them. Where a node is drained or down, those that no job has.",
                "most are allocated",
                "down and drained: follow the table of nodes above. Idle while jobs wait: the free ones lie in pieces, or a limit "
                "holds the jobs back",
                _NOT_ASKED,
            ),
            [Query(f"sum by (state) (fleet:tachoscope_scheduler_accelerators:max{{{_HERE}}})", "{{state}}")],
            unit="short",
            width=6,
            stacked=True,
            colors={"allocated": palette.OK, "idle": palette.STATE_COLORS["idle"], "drained": palette.WARN, "down": palette.BAD},
            links=[links.board("gpu-node", "Nodes and GPUs", CLUSTER_KEPT)],
        ),
        timeseries(
            "Allocated, without a step",
            PanelText(
                "Accelerators by account, of jobs whose records have no step for half an hour (idle), and of jobs that no agent "
                "reports (unreported): what these do is not known.",
                "no idle ones",
                "idle: ask the account's owner, then end the job. Unreported: start the job with tachoscope run, or see whether "
                "the node's agent is up",
                _NOT_ASKED,
            ),
            [
                Query(
                    f'sum by (account, activity) ({_HELD}{{{_HERE}, activity!="stepping"}}) > 0',
                    "{{account}}, {{activity}}",
                )
            ],
            unit="short",
            width=6,
            links=[runbook(policy, "AcceleratorsHeldIdle")],
        ),
    ]


def _pending(policy: Policy) -> list[PlacedPanel]:
    burn = runbook(policy, slo_objectives.objective(GANG_WAIT).alert)
    return [
        timeseries(
            "Accelerators waited for",
            PanelText(
                "Accelerators that jobs wait for, by partition: eligible ones lack only accelerators; the others also a dependency "
                "or their begin time, or are held.",
                "eligible is low, or falls",
                "compare with what is idle and what is held without a step",
                _NOT_ASKED,
            ),
            [
                Query(
                    f"sum by (partition, state) (fleet:tachoscope_scheduler_pending_accelerators:max{{{_HERE}}})",
                    "{{partition}}, {{state}}",
                )
            ],
            unit="short",
            width=6,
            links=[burn],
        ),
        timeseries(
            "Oldest job in the queue",
            PanelText(
                "How long the job has been eligible that has waited longest for accelerators, by partition.",
                "below half an hour",
                "it is too large for what is free, or others go before it: squeue --start, sprio",
                _NOT_ASKED,
            ),
            [Query(f"max by (partition) (fleet:tachoscope_scheduler_oldest_pending:max{{{_HERE}}})", "{{partition}}")],
            unit="s",
            width=6,
            links=[burn, links.board("slos", "Its budget", CLUSTER_KEPT | {"slo": GANG_WAIT})],
        ),
        timeseries(
            "From a preemption until the job runs again",
            PanelText(
                "Mean of six hours by partition: from the end of an allocation by preemption, a lost node or a requeue to the next "
                "start of the same job.",
                "below the time between two checkpoints",
                "jobs of higher priority take the nodes for long, or too few are left: compare with the queue",
                f"{_NOT_ASKED}, or no job was put back into the queue",
            ),
            [Query(f"max by (partition) (fleet:tachoscope_scheduler_requeue:mean6h{{{_HERE}}})", "{{partition}}")],
            unit="s",
            links=[burn],
        ),
    ]
