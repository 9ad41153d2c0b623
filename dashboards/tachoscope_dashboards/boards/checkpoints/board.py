"""Checkpoints and recovery: how much work is at risk, and how fast are jobs back?"""

from __future__ import annotations

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.checkpoints import checkpoints as checkpoint_panels
from tachoscope_dashboards.boards.checkpoints import recovery as recovery_panels
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.panels import row
from tachoscope_dashboards.parts.variables import CLUSTER, JOB_NAMESPACE, NAMESPACE, OF_WORKLOADS, TRAINING_JOB, WHERE

_HERE = f'{OF_WORKLOADS}, training_job=~"$training_job"'
ALERTS = (
    *("CheckpointStorageSlow", "TrainingCheckpointAgeBurn", "TrainingCheckpointCorrupt", "TrainingCheckpointTooOld"),
    "TrainingCheckpointIntervalLong",
    *("NodePreempted", "TrainingJobStuckInRecovery", "TrainingJobSuccessBurn", "TrainingRecoveryBurn", "TrainingWorkersFailing"),
)
"""Those that are marked here; some lead to the board of the job, which shows more of what it did."""


def board(policy: Policy) -> Board:
    """Return the board on checkpoints, recovery and lost work."""
    return Board(
        uid=board_uid("storage"),
        title="Checkpoints and recovery",
        question="How much work is at risk, and how fast are jobs back?",
        hint="Work since the newest verified checkpoint is at risk. Below: what saves cost, whether they "
        "would restore, how long jobs take to be back after a failure, and why they end. Choose a job to see its own.",
        variables=(CLUSTER, NAMESPACE, JOB_NAMESPACE, TRAINING_JOB),
        panels=(
            row("How much work is at risk?"),
            *checkpoint_panels.at_risk(policy, _HERE),
            row("What do saves cost?"),
            *checkpoint_panels.cost(policy, _HERE),
            row("Would they restore?"),
            *checkpoint_panels.verified(policy, _HERE),
            row("How fast are jobs back?"),
            *recovery_panels.recoveries(policy, _HERE),
            row("Why do they fail, and end?"),
            *recovery_panels.job_endings(policy, _HERE),
        ),
        events=(
            BoardAnnotation(
                "Restarts",
                f"max by ({identity.JOB}) (increase(tachoscope_restarts_total{{{_HERE}}}{RATE})) > 0",
                f"{identity.JOB_LEGEND} was restarted",
                palette.WARN,
            ),
            BoardAnnotation(
                "Preemption notices",
                f"(max by (instance, {identity.JOB}) (tachoscope_job_active{{{_HERE}}}) == 1) "
                "* on (cluster, instance) group_left (provider) "
                f"(max by (cluster, instance, provider) (tachoscope_preemption_notice{{{WHERE}}}) == 1)",
                f"{{{{provider}}}} takes {{{{instance}}}} of {identity.JOB_LEGEND}",
                palette.SERIES[3],
            ),
        ),
        alerts=f'alertname=~"{"|".join(ALERTS)}", training_job=~"$training_job|"',
    )
