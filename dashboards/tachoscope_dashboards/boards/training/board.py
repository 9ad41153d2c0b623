"""Job: why is this job slow? One training job, from its ledger down to the rank that the others wait for."""

from __future__ import annotations

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.compile.sli_expressions import bound_matcher
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT, JOB_KEPT
from tachoscope_dashboards.boards.training import faults, ranks
from tachoscope_dashboards.boards.training.expressions import JOB, NO_JOB, job_rate, mean, quantile, share
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import Link, PanelText, PlacedPanel, Query, row, stat, timeseries
from tachoscope_dashboards.parts.variables import CLUSTER, JOB_NAMESPACE, NAMESPACE, ONE_JOB, RANK

_GOODPUT, _REGULARITY = "training-goodput", "training-step-regularity"
_NO_STEP = "no step was done"


def board(policy: Policy) -> Board:
    """Return the board on one training job."""
    return Board(
        uid=board_uid("training"),
        title="Job",
        question="Why is this job slow?",
        hint="Choose the job above. The widest colour of the ledger that is not compute is the reason; the rows below follow it: "
        "a slow rank, input, communication, faults, checkpoints, GPUs. An alert of all jobs together leads here without a job: "
        "the board Fleet names the worst. Of several jobs of one name the first is shown: choose another by its cluster, "
        "namespace or team.",
        variables=(CLUSTER, NAMESPACE, JOB_NAMESPACE, *ONE_JOB, RANK),
        panels=(
            *_now(policy),
            row("Where does its time go?"),
            _ledger(policy),
            _steps(policy),
            _named(policy),
            row("Does it wait for a rank?"),
            ranks.heat(policy),
            ranks.table_of_ranks(policy),
            _slowdown(policy),
            _irregular(policy),
            row("Input, host or network?"),
            *ranks.shares(policy),
            row("Does something fail?"),
            *faults.of_ranks(policy),
            row("Checkpoints"),
            *faults.checkpoints(policy),
            row("Are its GPUs busy?"),
            *faults.gpus(policy),
        ),
        events=_events(),
        alerts='area="training", training_job=~"$training_job|"',
        refresh="30s",
    )


def _events() -> tuple[BoardAnnotation, ...]:
    return (
        BoardAnnotation(
            "Restarts",
            f"max by ({identity.JOB}) (increase(tachoscope_restarts_total{{{JOB}}}[$__rate_interval])) > 0",
            f"{identity.JOB_LEGEND} starts again",
            palette.WARN,
        ),
        BoardAnnotation(
            "Failed processes",
            f"sum by (host) (increase(tachoscope_worker_failures_total{{{JOB}}}[$__rate_interval])) > 0",
            "processes fail on {{host}}",
            palette.BAD,
        ),
        BoardAnnotation(
            "Hangs",
            f"max by ({identity.JOB}) (increase(tachoscope_hangs_total{{{JOB}}}[$__rate_interval])) > 0",
            f"{identity.JOB_LEGEND} hangs",
            palette.STATE_COLORS["hung"],
        ),
    )


def _explored(policy: Policy) -> Link:
    return explorer(policy, "job", "This job, in the explorer", {"job": "${training_job}"})


# --- now ----------------------------------------------------------------------------------------------------------------------


def _now(policy: Policy) -> list[PlacedPanel]:
    return [_goodput(policy), *_pace(policy), *faults.status_panels(policy)]


def _goodput(policy: Policy) -> PlacedPanel:
    return stat(
        "ETTR",
        PanelText(
            "Effective training time ratio: of the time for which the job holds its ranks, the share in which a step is done for "
            "the first time.",
            f"{slo_objectives.objective(_GOODPUT).target:.0%} or more, as the objective asks of all jobs together",
            "the ledger below says in which state the rest goes",
            NO_JOB,
        ),
        Query(share(slo_objectives.GOOD_STATES)),
        unit="percentunit",
        width=3,
        steps=slo_objectives.at_least(_GOODPUT),
        links=[runbook(policy, slo_objectives.objective(_GOODPUT).alert), _explored(policy)],
    )


def _pace(policy: Policy) -> list[PlacedPanel]:
    return [
        stat(
            "Step",
            PanelText(
                "Mean time of a step.",
                "what it was yesterday, for the same code and scale",
                "see below whether all steps are slower, or some",
                _NO_STEP,
            ),
            Query(mean("tachoscope_step_seconds")),
            unit="s",
            width=3,
            links=[_explored(policy)],
        ),
        stat(
            "Slowdown",
            PanelText(
                "Time of a step over what it would be if no rank came late: the worst node's, of the ranks on it. Ranks of several "
                "nodes are compared in the rows below.",
                f"below {slo_objectives.bound(_REGULARITY):g}",
                "the heat map below shows which rank the others wait for",
                "fewer than two ranks on each node, or no rank waits",
            ),
            Query(f"max(tachoscope_slowdown_ratio{{{JOB}}})"),
            unit="none",
            width=3,
            steps=slo_objectives.above(_REGULARITY),
            links=[runbook(policy, "compute_straggler"), _explored(policy)],
        ),
    ]


# --- where its time goes ------------------------------------------------------------------------------------------------------


def _ledger(policy: Policy) -> PlacedPanel:
    rate = job_rate("tachoscope_job_time_seconds_total")
    return timeseries(
        "Ranks by what they do",
        PanelText(
            "The ledger of the job: all ranks, by the state in which they spend their time; a rank-second a second is one rank. "
            "What is not explained is shown as such.",
            "nearly all is compute, with some communication, and the height is the number of ranks",
            "the widest other colour is where to look: data_wait and host_wait in the row of input and host, communication and "
            "straggler_wait in that of the ranks, checkpoint in its own; lost_work, restore and hung in that of faults; compile, "
            "after the start: see TrainingRecompiling",
            NO_JOB,
        ),
        [Query(f"sum by (state) ({rate}) > 0", "{{state}}")],
        unit="short",
        width=16,
        height=10,
        stacked=True,
        colors={state: palette.STATE_COLORS[state] for state in TRAINING_STATES},
        links=[
            _explored(policy),
            runbook(policy, "TrainingRecompiling"),
            links.board("fleet", "Fleet", CLUSTER_KEPT),
            links.board("nccl", "Its collectives", JOB_KEPT),
        ],
    )


def _named(policy: Policy) -> PlacedPanel:
    return timeseries(
        "Bottlenecks by name",
        PanelText(
            "What `tachoscope watch` finds in the job as a whole, over all its nodes: the share of the step that each costs.",
            "no line",
            "the class is the name of its runbook; the explorer has evidence, ranks and what fixing it would bring",
            "nothing is found, or no watch analyzes this job: see the board Suite health",
        ),
        [Query(f"max by (class) (tachoscope_bottleneck_ratio{{{JOB}}})", "{{class}}")],
        unit="percentunit",
        width=24,
        height=6,
        links=[runbook(policy, "TrainingBottleneck"), _explored(policy)],
    )


def _steps(policy: Policy) -> PlacedPanel:
    name = "tachoscope_step_seconds"
    return timeseries(
        "Time of a step",
        PanelText(
            "Mean time of a step over all ranks, and the times within which half, 95 % and 99 % of the steps are done. These are "
            "read from the buckets of a histogram, and are as coarse as those; the mean is exact.",
            "flat, and all lines close together",
            "all rise: each step costs more, see the ledger. The upper ones alone rise: some steps are slow, as by checkpoints, "
            "evaluations or garbage collection",
            _NO_STEP,
        ),
        [
            Query(mean(name), "mean"),
            *(Query(quantile(part, name), title) for part, title in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))),
        ],
        unit="s",
        width=8,
        height=10,
        links=[runbook(policy, slo_objectives.objective(_REGULARITY).alert), _explored(policy)],
    )


# --- how regular its steps are ------------------------------------------------------------------------------------------------


def _slowdown(policy: Policy) -> PlacedPanel:
    return timeseries(
        "Slowdown by stragglers, by node",
        PanelText(
            "Time of a step over what it would be without the latest rank, from the ranks of each node.",
            f"1, and below {slo_objectives.bound(_REGULARITY):g}",
            "the rising line is the node with the slow rank: see its GPUs for throttling, then its host",
            "fewer than two ranks on each node, or no rank waits",
        ),
        [Query(f"topk(10, max by (instance) (tachoscope_slowdown_ratio{{{JOB}}}))", "{{instance}}")],
        unit="none",
        minimum=1.0,
        steps=slo_objectives.above(_REGULARITY),
        links=[runbook(policy, "compute_straggler"), runbook(policy, "gpu_throttle")],
    )


def _irregular(policy: Policy) -> PlacedPanel:
    name, bound = "tachoscope_step_slowdown_ratio", slo_objectives.bound(_REGULARITY)
    within = f"sum({job_rate(f'{name}_bucket', bound_matcher(bound))})"
    return timeseries(
        "Irregular steps",
        PanelText(
            f"Share of the steps that take more than {bound:g} times the usual step of this job. Checkpoints and evaluations are "
            "not counted.",
            "below the line, which is what the objective allows of all jobs",
            "with the heat map above: one rank, or all at once? At regular intervals it is something that the job does itself",
            "fewer than 33 steps were done",
        ),
        [Query(f"1 - {within} / (sum({job_rate(f'{name}_count')}) > 0)", "irregular")],
        unit="percentunit",
        maximum=1.0,
        steps=slo_objectives.spent(_REGULARITY),
        links=[runbook(policy, slo_objectives.objective(_REGULARITY).alert)],
    )
