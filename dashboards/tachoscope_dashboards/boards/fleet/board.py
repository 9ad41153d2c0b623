"""Fleet: where do all accelerator hours go, and who loses them? It reads recorded series only."""

from __future__ import annotations

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.fleet.machines import out_of_service, slow_links
from tachoscope_dashboards.boards.fleet.scheduler import queue
from tachoscope_dashboards.boards.fleet.tables import GOODPUT, alerts, firing, nodes, worst_jobs
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import CLUSTER_KEPT
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.links import explorer, runbook
from tachoscope_dashboards.parts.panels import ColorStep, Link, PanelText, PlacedPanel, Query, row, stat, timeseries
from tachoscope_dashboards.parts.variables import CLUSTER

_HERE = 'cluster=~"$cluster"'
_TIME = "fleet_state:tachoscope_job_time:rate1m"
_SEEN = f'sum(fleet:tachoscope_gpus:sum{{{_HERE}, kind="seen"}})'
_EXPECTED = f'sum(fleet:tachoscope_gpus:sum{{{_HERE}, kind="expected"}})'
_HELD = f"(sum(fleet:tachoscope_gpus_held:count{{{_HERE}}}) or 0 * {_SEEN})"
_IDLE = f"clamp_min({_SEEN} - {_HELD}, 0)"
_NO_RULES = "no job runs, or the rules of tachoscope are not loaded"
_NO_GPU = "no agent has found a GPU, or the rules of tachoscope are not loaded"


def board(policy: Policy) -> Board:
    """Return the board on all accelerator hours, by state, job and node."""
    return Board(
        uid=board_uid("fleet"),
        title="Fleet",
        question="Where do all accelerator hours go, and who loses them?",
        hint="From the top: how much is lost, in which state, by which jobs, on which nodes. A job's name leads to its board, a "
        "node's to the hardware. Red marks are pages.",
        variables=(CLUSTER,),
        panels=(
            *_now(policy),
            row("Where do the hours go?"),
            _ledger(policy),
            _goodput(policy),
            row("Which jobs lose them?"),
            worst_jobs(policy, _NO_RULES),
            row("On which machines?"),
            *_machines(policy),
            nodes(policy),
            out_of_service(policy),
            slow_links(),
            row("What does the scheduler say?"),
            *queue(policy),
            row("Who was notified?"),
            firing(),
            alerts(policy),
        ),
        alerts='severity="page"',
    )


def _of(states: str) -> str:
    return f'sum({_TIME}{{{_HERE}, state=~"{states}"}})'


def _but(states: str) -> str:
    return f'sum({_TIME}{{{_HERE}, state!~"{states}"}})'


def _counted() -> str:
    """Return the accelerators that the objective counts: all that jobs hold."""
    return _but(slo_objectives.LEFT_OUT_STATES)


def _share(states: str) -> str:
    return f"{_of(states)} / ({_counted()} > 0)"


def _hours(accelerators: str) -> str:
    """Return accelerator-hours over the time range: each evaluation of the subquery stands for a minute."""
    return f"sum_over_time(({accelerators})[$__range:1m]) / 60"


def _spenders(policy: Policy) -> list[Link]:
    return [
        runbook(policy, slo_objectives.objective(GOODPUT).alert),
        links.board("slos", "Its budget", CLUSTER_KEPT | {"slo": GOODPUT}),
        explorer(policy, "jobs", "Jobs, in the explorer", {}),
    ]


# --- now ----------------------------------------------------------------------------------------------------------------------


def _now(policy: Policy) -> list[PlacedPanel]:
    target = slo_objectives.objective(GOODPUT).target
    return [
        stat(
            "ETTR",
            PanelText(
                "Effective training time ratio: of the time for which jobs hold accelerators, the share in which a step is done "
                "for the first time, now.",
                f"{target:.0%} or more, as the objective asks",
                "the ledger below says in which state the rest goes, the table which jobs lose it",
                _NO_RULES,
            ),
            Query(_share(slo_objectives.GOOD_STATES)),
            unit="percentunit",
            width=3,
            steps=slo_objectives.at_least(GOODPUT),
            links=_spenders(policy),
        ),
        stat(
            "Budget left",
            PanelText(
                "What is left of the time that may be lost over the objective's period, of all clusters together.",
                "above 0",
                "below 0 more is lost than was agreed: who loses it is in the table of jobs",
                "the rules of tachoscope are not loaded, or no job ran in the period",
            ),
            Query(f'slo:error_budget:remaining_ratio{{slo="{GOODPUT}"}}'),
            unit="percentunit",
            width=3,
            steps=(ColorStep(float("-inf"), palette.BAD), ColorStep(0.0, palette.OK)),
            links=_spenders(policy),
        ),
        *_cost(policy),
        *_jobs(policy),
        *_missing(policy),
    ]


def _cost(policy: Policy) -> list[PlacedPanel]:
    lost = _but(f"{slo_objectives.GOOD_STATES}|{slo_objectives.LEFT_OUT_STATES}")
    allowed = 1 - slo_objectives.objective(GOODPUT).target
    return [
        stat(
            "Hours lost",
            PanelText(
                "Accelerator-hours of jobs within the time range that brought no step forward: waiting for data, blocking "
                "checkpoints, starts, restores, work done again, hangs, and what is not explained. Multiply by your "
                "price.",
                f"at most {allowed:.0%} of all hours of the range",
                "go on with the ledger below",
                _NO_RULES,
            ),
            Query(_hours(lost), instant=True),
            unit="short",
            width=3,
            links=_spenders(policy),
        ),
        stat(
            "Hours idle",
            PanelText(
                "Accelerator-hours of GPUs within the time range that answered and were not allocated. Multiply by your price.",
                "little, while jobs wait for GPUs",
                "compare with the scheduler's queue: GPUs that are free and cannot be given are in pieces, or on nodes that are "
                "not in use",
                _NO_GPU,
            ),
            Query(_hours(_IDLE), instant=True),
            unit="short",
            width=3,
            links=[runbook(policy, "GpuUnderused")],
        ),
    ]


def _jobs(policy: Policy) -> list[PlacedPanel]:
    stuck = f'sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_HERE}, state=~"silent|hung"}}) > 0'
    return [
        stat(
            "Jobs",
            PanelText(
                "Jobs with at least one rank that has not left.",
                "as many as the scheduler has started",
                "a job that is missing here tells nothing: see the alerts, and whether the agents are up",
                "no job runs",
            ),
            Query(f"count(sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_HERE}}}) > 0)"),
            unit="short",
            width=3,
            links=[runbook(policy, "TrainingNoProgress")],
        ),
        stat(
            "Jobs stuck",
            PanelText(
                "Jobs in which a rank hangs, or wrote nothing for a minute.",
                "0",
                "the table below names them: open the job's board, and see which ranks they are",
                "no job runs",
            ),
            Query(f"count({stuck}) or 0 * sum(job:tachoscope_ranks:sum{{{_HERE}}})"),
            unit="short",
            width=3,
            steps=(ColorStep(1.0, palette.BAD),),
            links=[runbook(policy, "CollectiveHang"), runbook(policy, "TrainingNoProgress")],
        ),
    ]


def _missing(policy: Policy) -> list[PlacedPanel]:
    return [
        stat(
            "GPUs missing",
            PanelText(
                "GPUs that nodes should have, or have had, and that do not answer now.",
                "0",
                "the table of nodes names where: drain the node, then follow the runbook",
                _NO_GPU,
            ),
            Query(f"{_EXPECTED} - {_SEEN}"),
            unit="short",
            width=3,
            steps=(ColorStep(1.0, palette.BAD),),
            links=[runbook(policy, "GpuLost"), links.board("gpu-node", "Nodes and GPUs", CLUSTER_KEPT)],
        ),
        stat(
            "Agents down",
            PanelText(
                "Nodes with an agent that does not answer: they are missing on all boards.",
                "0",
                "restart the agents before you believe the rest",
                "no agent is scraped, or the rules of tachoscope are not loaded",
            ),
            Query(f"sum(fleet:tachoscope_agents_down:sum{{{_HERE}}})"),
            unit="short",
            width=3,
            steps=(ColorStep(1.0, palette.WARN),),
            links=[runbook(policy, "AgentDown"), links.board("agents", "Suite health", CLUSTER_KEPT)],
        ),
    ]


# --- over time ----------------------------------------------------------------------------------------------------------------


def _ledger(policy: Policy) -> PlacedPanel:
    return timeseries(
        "Accelerators by what they do",
        PanelText(
            "All accelerators, by the state of the ledger in which their ranks are: a rank-second a second is one accelerator. "
            "`elsewhere` are allocated GPUs without a ledger, such as those that serve; `idle` are free GPUs. "
            "`queued` holds nothing, and lies above what there is.",
            "compute fills it, with some communication",
            "look for the widest of the other colours, then for the jobs that have most of it",
            _NO_RULES,
        ),
        [
            Query(f"sum by (state) ({_TIME}{{{_HERE}}}) > 0", "{{state}}"),
            Query(f"clamp_min({_HELD} - {_counted()}, 0)", "elsewhere"),
            Query(_IDLE, "idle"),
        ],
        unit="short",
        width=16,
        height=11,
        stacked=True,
        colors={state: palette.STATE_COLORS[state] for state in (*TRAINING_STATES, "elsewhere", "idle")},
        links=_spenders(policy),
    )


def _goodput(policy: Policy) -> PlacedPanel:
    return timeseries(
        "ETTR and compute share",
        PanelText(
            "The effective training time ratio, with its objective as a line; and the stricter share of the time that accelerators "
            "compute: the distance between both is communication, waiting for stragglers, launching and copying.",
            "ETTR above its line, the compute share close below it",
            "ETTR falls: time is lost outside of steps. The compute share falls alone: steps have become less efficient",
            _NO_RULES,
        ),
        [
            Query(_share(slo_objectives.GOOD_STATES), "ETTR"),
            Query(_share("compute"), "compute share"),
        ],
        unit="percentunit",
        width=8,
        height=11,
        maximum=1.0,
        steps=slo_objectives.at_least(GOODPUT),
        links=_spenders(policy),
    )


def _machines(policy: Policy) -> list[PlacedPanel]:
    return [
        timeseries(
            "GPUs",
            PanelText(
                "GPUs that there should be, that answer, and that a workload has.",
                "expected and seen are one line, held is close below",
                "seen below expected: GPUs are lost. Held far below seen: they are idle",
                _NO_GPU,
            ),
            [Query(_EXPECTED, "expected"), Query(_SEEN, "seen"), Query(_HELD, "held")],
            unit="short",
            links=[runbook(policy, "GpuLost")],
        ),
        timeseries(
            "Nodes by health",
            PanelText(
                "Nodes by the state that their GPUs together are in.",
                "all are healthy",
                "the table below names those that are not",
                _NO_GPU,
            ),
            [Query(f"sum by (state) (fleet:tachoscope_node_health:count{{{_HERE}}}) > 0", "{{state}}")],
            unit="short",
            stacked=True,
            colors={"healthy": palette.OK, "degraded": palette.WARN, "unhealthy": palette.BAD, "unknown": palette.UNKNOWN},
            links=[links.board("gpu-node", "Nodes and GPUs", CLUSTER_KEPT), runbook(policy, "GpuXidError")],
        ),
    ]
