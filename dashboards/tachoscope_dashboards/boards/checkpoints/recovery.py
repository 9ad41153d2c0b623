"""Panels about failures: how long jobs take to be back, what that costs, and why they end. Each takes the matchers of the jobs."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.checkpoints.checkpoints import NO_JOB, THIS_JOB
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import KEPT, RATE, WHOLE, attained
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import Column, PanelText, PlacedPanel, Query, bars, happenings, stat, table, timeseries
from tachoscope_dashboards.parts.slo_objectives import above
from tachoscope_dashboards.parts.variables import CHOSEN_PLACE, WHERE

RECOVERY = "training-recovery"
LOST = ("lost_work", "restore", "initialisation", "hung", "checkpoint")
"""States of the ledger into which failures and the care for them go."""
END_COLORS = {
    "completed none": palette.OK,
    "failed infra": palette.BAD,
    "failed unknown": palette.WARN,
    "failed user": palette.SERIES[4],
    **{f"cancelled {cause}": palette.UNKNOWN for cause in ("infra", "user", "unknown")},
}
"""By result and cause."""
_SECONDS = "tachoscope_recovery_seconds"
_NONE = "no job came back from a failure in this time"


def recoveries(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how long jobs take until they do new steps, and what it costs."""
    return [
        attained(policy, RECOVERY, "Back soon enough, 3 days", "see below which jobs take long to recover", "3d", 6),
        *(_quantile(policy, where, part, title) for part, title in ((0.5, "Half are back within"), (0.9, "90 % are back within"))),
        _restarts_now(policy, where),
        _restarts(policy, where),
        _means(policy, where),
        _lost(policy),
        _jobs(policy, where),
    ]


def _quantile(policy: Policy, where: str, part: float, title: str) -> PlacedPanel:
    return stat(
        title,
        PanelText(
            "Time from a failure, or from the last step before a hang, to the first step that is new. Rough: it is read off a "
            "histogram.",
            "below the objective's bound",
            "detection, rescheduling, rendezvous, restore or steps done again: `tachoscope goodput` splits it",
            _NONE,
        ),
        Query(f"histogram_quantile({part:g}, sum by (le) (increase({_SECONDS}_bucket{{{where}}}{WHOLE}))) >= 0", instant=True),
        unit="s",
        width=6,
        steps=above(RECOVERY),
        links=[runbook(policy, "TrainingRecoveryBurn")],
    )


def _restarts_now(policy: Policy, where: str) -> PlacedPanel:
    return stat(
        "Restarts in this time",
        PanelText(
            "Attempts of jobs that followed another one, in the selected time range.",
            "as few as nodes fail",
            "see who is restarted, and on which hosts processes fail",
            NO_JOB,
        ),
        Query(f"round(sum(max by ({identity.JOB}) (increase(tachoscope_restarts_total{{{where}}}{WHOLE}))))", instant=True),
        unit="short",
        width=6,
        links=[runbook(policy, "TrainingWorkersFailing")],
    )


def _restarts(policy: Policy, where: str) -> PlacedPanel:
    return happenings(
        "Restarts, and processes that failed",
        PanelText(
            "Attempts that followed another one, and processes that failed, of the ten jobs with the most.",
            "none",
            "failures without a restart: the job is not back; one failure ends all ranks of a node, so they come in eights",
            "no job was restarted and no process failed in this time",
        ),
        [
            Query(
                f"topk(10, max by ({identity.JOB}) (rate(tachoscope_restarts_total{{{where}}}{RATE})) > 0)",
                f"{identity.JOB_LEGEND} restarted",
            ),
            Query(
                f"topk(10, sum by ({identity.JOB}) (rate(tachoscope_worker_failures_total{{{where}}}{RATE})) > 0)",
                f"{identity.JOB_LEGEND} processes failed",
            ),
        ],
        width=8,
        links=[runbook(policy, "TrainingWorkersFailing"), runbook(policy, "TrainingJobStuckInRecovery")],
    )


def _means(policy: Policy, where: str) -> PlacedPanel:
    taken, count = (f"sum by ({identity.JOB}) (increase({_SECONDS}_{part}{{{where}}}{RATE}))" for part in ("sum", "count"))
    return timeseries(
        "Recoveries, as they end",
        PanelText(
            "Time that a job took to be back, where it did its first new step; of several at once the mean.",
            "points below the dashed line",
            "points that climb: the storage restores slower, or more steps are done again; none after a restart: it is not back",
            _NONE,
        ),
        [Query(f"{taken} / ({count} > 0)", identity.JOB_LEGEND)],
        unit="s",
        width=8,
        style="points",
        steps=above(RECOVERY),
        links=[runbook(policy, "TrainingRecoveryBurn"), runbook(policy, "TrainingJobStuckInRecovery")],
    )


def _lost(policy: Policy) -> PlacedPanel:
    series = f'job_state:tachoscope_job_time:rate1m{{{CHOSEN_PLACE}, training_job=~"$training_job"'
    return timeseries(
        "Time that failures and saves take",
        PanelText(
            "Share of the time of the ranks of these jobs, of all namespaces of agents, by state: steps done again, reading a "
            "checkpoint, starting, hanging, saving.",
            "hundredths",
            "lost_work: save more often; restore: read from nearer; initialisation: many starts, or long ones",
            NO_JOB,
        ),
        [
            Query(
                f'sum by (state) ({series}, state=~"{"|".join(LOST)}"}}) / on () group_left () sum({series}}})',
                "{{state}}",
            )
        ],
        unit="percentunit",
        width=8,
        stacked=True,
        colors={state: palette.STATE_COLORS[state] for state in LOST},
        links=[runbook(policy, "lost_work"), runbook(policy, "TrainingGoodputBurn")],
    )


def _jobs(policy: Policy, where: str) -> PlacedPanel:
    taken, count = (f"sum by ({identity.JOB}) (increase({_SECONDS}_{part}{{{where}}}{WHOLE}))" for part in ("sum", "count"))
    spent = f'sum by ({identity.JOB}) (increase(tachoscope_job_time_seconds_total{{{where}, state="%s"}}{WHOLE})) > 0'
    explore = links.explorer(policy, "job", "Its failures in the explorer", {"job": "${__data.fields.Job}"})
    return table(
        "Failures and recoveries, by job",
        PanelText(
            "Of jobs that were restarted or lost work in the selected time range; times of ranks are of all together.",
            "few rows, with little lost",
            "failures on one host: drain it; much lost for few restarts: save more often",
            "no job was restarted or lost work in this time",
        ),
        [
            Query(f"round(max by ({identity.JOB}) (increase(tachoscope_restarts_total{{{where}}}{WHOLE}))) > 0"),
            Query(f"round(sum by ({identity.JOB}) (increase(tachoscope_worker_failures_total{{{where}}}{WHOLE}))) > 0"),
            Query(f"round(sum by ({identity.JOB}) (increase(tachoscope_hangs_total{{{where}}}{WHOLE}))) > 0"),
            Query(f"{taken} / ({count} > 0)"),
            Query(spent % "lost_work"),
            Query(spent % "restore"),
        ],
        [
            Column("training_job", "Job", link=THIS_JOB),
            *identity.COLUMNS,
            Column("A", "Restarts", unit="short"),
            Column("B", "Processes failed", unit="short", link=explore),
            Column("C", "Hangs", unit="short"),
            Column("D", "Back after (mean)", unit="s", steps=above(RECOVERY)),
            Column("E", "Work done again", unit="s"),
            Column("F", "Restoring", unit="s"),
        ],
        sort="Restarts",
        links=[runbook(policy, "TrainingWorkersFailing"), runbook(policy, "lost_work")],
    )


def job_endings(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return why jobs fail, and how they end."""
    return [
        attained(policy, "training-job-success", "Not failed by us, 3 days", "see the causes beside it", "3d", 5, 8),
        _ended(policy),
        _hosts(policy, where),
        _notices(policy, where),
    ]


def _ended(policy: Policy) -> PlacedPanel:
    return bars(
        "Attempts that ended",
        PanelText(
            "Attempts of all jobs that ended in this time. infra: the provider took the node, or a GPU broke; user: "
            "the code, or someone interrupted it; unknown: all else.",
            "completed, and none that infra failed",
            "infra: see hosts and notices; unknown must not become the place where failures of the infrastructure hide",
            "no attempt ended in this time",
        ),
        Query(
            f"round(sum by (result, cause) (increase(tachoscope_jobs_finished_total{{{WHERE}}}{WHOLE}))) > 0",
            "{{result}} {{cause}}",
        ),
        unit="short",
        width=5,
        colors=END_COLORS,
        links=[runbook(policy, "TrainingJobSuccessBurn")],
    )


def _hosts(policy: Policy, where: str) -> PlacedPanel:
    node = links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Host}"})
    failures = f"increase(tachoscope_worker_failures_total{{{where}}}{WHOLE})"
    return table(
        "Processes that failed, by host",
        PanelText(
            "Processes that failed in the selected time range, by the host they ran on, and of how many jobs.",
            "empty, or spread over all hosts",
            "one host with processes of several jobs: drain it and test it; `tachoscope store failures` says whether it is chance",
            "no process failed in this time",
        ),
        [
            Query(f"round(sum by (host) ({failures})) > 0"),
            Query(f"count by (host) (sum by (host, {identity.JOB}) ({failures}) > 0)"),
        ],
        [
            Column("host", "Host", link=node),
            Column("A", "Processes failed", unit="short"),
            Column("B", "Jobs", unit="short"),
        ],
        width=7,
        height=8,
        sort="Jobs",
        links=[runbook(policy, "TrainingWorkersFailing"), runbook(policy, "TrainingJobStuckInRecovery")],
    )


def _notices(policy: Policy, where: str) -> PlacedPanel:
    node = links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})
    notice = f"max by (cluster, instance, provider) (tachoscope_preemption_notice{{{WHERE}}}) == 1"
    return table(
        "Nodes that the provider takes back",
        PanelText(
            "Nodes of these jobs that the cloud provider has announced to take back.",
            "empty",
            "the job has 30 to 120 seconds to save and leave; see the runbook for what is to be done before",
            "no notice, or no provider is asked (`preemption` in the agent's configuration)",
        ),
        [
            Query(
                f"(max by (instance, {identity.JOB}) (tachoscope_job_active{{{where}}}) == 1) "
                f"* on (cluster, instance) group_left (provider) ({notice})"
            )
        ],
        [
            Column("instance", "Node", link=node),
            Column("training_job", "Job", link=THIS_JOB),
            *identity.COLUMNS,
            Column("provider", "Provider"),
        ],
        width=7,
        height=8,
        sort="Node",
        links=[runbook(policy, "NodePreempted"), runbook(policy, "procedure-spot-preemption")],
    )
