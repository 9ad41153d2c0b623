"""Node and GPU: is the hardware well, and is it used?"""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_alerts.compile.links import board_uid
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.gpu import ACTIONS, GPU_HEALTH_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.gpu import errors as gpu_errors
from tachoscope_dashboards.boards.shared import gpus as gpu_panels
from tachoscope_dashboards.boards.shared import hosts as host_panels
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared import io as io_panels
from tachoscope_dashboards.boards.shared.expressions import KEPT, how_many, numbered
from tachoscope_dashboards.boards.shared.gpus import BY, NO_GPU
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, Link, PanelText, PlacedPanel, Query, row, stat, table, timeline
from tachoscope_dashboards.parts.variables import CLUSTER, NAMESPACE, WHERE, Variable

NODES = Variable("node", "instance", f"tachoscope_agent_info{{{WHERE}}}", "Nodes", some=True)
GPU = Variable("gpu", "gpu", f'tachoscope_gpu_info{{{WHERE}, instance=~"$node"}}', "GPU")
_NODE = f'{WHERE}, instance=~"$node"'
_HERE = f'{_NODE}, gpu=~"$gpu"'
HEALTH_COLORS = {"healthy": palette.OK, "degraded": palette.WARN, "unhealthy": palette.BAD, "unknown": palette.UNKNOWN}
_BAD, _WARN = (ColorStep(1.0, palette.BAD),), (ColorStep(1.0, palette.WARN),)
_BOARD = links.board("gpu-node", "This node", KEPT | {"node": "${__data.fields.Node}"})


def board(policy: Policy) -> Board:
    """Return the board on the GPUs of chosen nodes."""
    return Board(
        uid=board_uid("gpu-node"),
        title="Node and GPU",
        question="Is the hardware well, and is it used?",
        hint="The first table is of all nodes, and empty when all are well; a click on a node chooses it. All else is of the nodes "
        "that are chosen above: what their GPUs do, who has them, what fails, and the host below them.",
        variables=(CLUSTER, NAMESPACE, NODES, GPU),
        panels=_panels(policy),
        events=_events(),
        alerts='alertname=~"Gpu.+", instance=~"$node|"',
    )


def _panels(policy: Policy) -> list[PlacedPanel]:
    return [
        row("Is anything wrong?"),
        _reasons(policy),
        *_gpu_counts(policy),
        *_node_counts(policy),
        _health(policy),
        row("What do the GPUs do?"),
        *gpu_panels.work(policy, _HERE),
        gpu_panels.kernels(policy, _HERE),
        gpu_panels.memory(policy, _HERE),
        gpu_panels.clock(policy, _HERE),
        gpu_panels.held_down(policy, _HERE),
        gpu_panels.held_down_by_reason(policy, _HERE),
        row("Power and heat"),
        gpu_panels.power_of_limit(policy, _HERE),
        gpu_panels.power(_HERE),
        gpu_panels.energy(_HERE),
        gpu_panels.margin(policy, _HERE),
        gpu_panels.temperature(policy, _HERE),
        row("Who has them?"),
        _workloads(policy),
        _inventory(policy),
        row("Errors"),
        gpu_errors.xids(policy, _HERE),
        gpu_errors.new_memory_errors(policy, _HERE),
        gpu_errors.memory(policy, _HERE),
        row("Links of the GPUs"),
        gpu_panels.nvlink_bytes(policy, _HERE),
        gpu_errors.nvlinks(policy, _HERE),
        gpu_panels.pcie_bytes(policy, _HERE),
        gpu_errors.pcie(policy, _HERE),
        gpu_errors.links(policy, _HERE),
        row("The host"),
        *_host(policy),
    ]


def _events() -> tuple[BoardAnnotation, ...]:
    return (
        BoardAnnotation(
            "Xid errors",
            f"(time() - max by (instance, gpu, xid) (tachoscope_gpu_xid_last_seen_seconds{{{_HERE}}})) < 60",
            "Xid {{xid}} of GPU {{gpu}} on {{instance}}",
            palette.BAD,
        ),
        BoardAnnotation(
            "Other driver",
            f"count by (instance, driver_version) (tachoscope_gpu_info{{{_HERE}}}) "
            f"unless count by (instance, driver_version) (tachoscope_gpu_info{{{_HERE}}} offset 1m)",
            "{{instance}}: GPUs with driver {{driver_version}}",
            palette.SERIES[0],
        ),
    )


def _reasons(policy: Policy) -> PlacedPanel:
    return table(
        "What is wrong, on all nodes",
        PanelText(
            "Each reason why a GPU, or its node as a whole, is not healthy by the agent's word, and what to do about it.",
            "empty",
            "do what the last column says; where a node has several, drain it first, and reset or reboot it after that",
            "nothing is wrong with any GPU",
        ),
        [Query(f"max by (instance, gpu, uuid, reason, action) (tachoscope_gpu_health_reason_info{{{WHERE}}})")],
        [
            Column("instance", "Node", link=_BOARD),
            Column("gpu", "GPU"),
            Column("uuid", "UUID"),
            Column("reason", "What is wrong"),
            Column("action", "What to do", texts={action: action.replace("_", " ") for action in ACTIONS}),
        ],
        height=7,
        sort="Node",
        descending=False,
        links=[runbook(policy, alert) for alert in ("GpuLost", "GpuXidError", "GpuEccUncorrected", "GpuThrottled")],
    )


def _gpu_counts(policy: Policy) -> list[PlacedPanel]:
    expected, seen = (f'sum(tachoscope_gpus{{{_NODE}, kind="{kind}"}})' for kind in ("expected", "seen"))
    degraded, unhealthy = (f'sum(tachoscope_gpu_health{{{_HERE}, state="{state}"}})' for state in ("degraded", "unhealthy"))
    see = "the table above says what to do"
    lost, slow = runbook(policy, "GpuLost"), runbook(policy, "GpuThrottled")
    return [
        _count(
            "GPUs that answer", ("GPUs of these nodes that answered when last asked.", "as many as expected", see), seen, (), lost
        ),
        _count(
            "GPUs missing",
            ("GPUs that should be here and do not answer.", "0", see),
            f"clamp_min({expected} - {seen}, 0)",
            _BAD,
            lost,
        ),
        _count("GPUs degraded", ("GPUs that work, slower or less surely than they should.", "0", see), degraded, _WARN, slow),
        _count("GPUs unhealthy", ("GPUs on which nothing should run.", "0", see), unhealthy, _BAD, lost),
    ]


def _count(title: str, words: tuple[str, str, str], expr: str, steps: Sequence[ColorStep], link: Link) -> PlacedPanel:
    return stat(title, PanelText(*words, NO_GPU), Query(expr), unit="short", steps=steps, links=[link])


def _node_counts(policy: Policy) -> list[PlacedPanel]:
    clock = f"tachoscope_host_clock_synchronised{{{_NODE}}}"
    kubelet = f"tachoscope_gpu_pod_resources_up{{{_NODE}}}"
    return [
        stat(
            "Clocks not synchronised",
            PanelText(
                "Nodes with a clock that their kernel does not consider synchronised.",
                "0",
                "start chrony or ntpd there: without it, waiting and transfer across nodes cannot be distinguished",
                "no agent is scraped on these nodes",
            ),
            Query(how_many(f"{clock} == 0", clock)),
            unit="short",
            steps=_WARN,
        ),
        stat(
            "Kubelets silent",
            PanelText(
                "Nodes with an agent that cannot ask the kubelet which pod has which GPU.",
                "0",
                "see gpu.pod_resources in the agent's configuration, and the mount of its directory",
                "the kubelet is not asked on these nodes",
            ),
            Query(how_many(f"{kubelet} == 0", kubelet)),
            unit="short",
            steps=_WARN,
            links=[runbook(policy, "CollectorFailing")],
        ),
    ]


def _health(policy: Policy) -> PlacedPanel:
    numbers = {number: state for number, state in enumerate(GPU_HEALTH_STATES) if number}
    return timeline(
        "Health of each GPU",
        PanelText(
            "The agent's verdict on each GPU, once a second. Unknown: nothing could be measured that would tell.",
            "healthy, all the time",
            "the table at the top has the reasons of now, and what to do; those of then are in the agent's log",
            NO_GPU,
        ),
        [
            Query(
                numbered("tachoscope_gpu_health", _HERE, "state", numbers, "instance, gpu, uuid"),
                "{{instance}} GPU {{gpu}}",
            )
        ],
        {str(number): (state, HEALTH_COLORS[state]) for number, state in enumerate(GPU_HEALTH_STATES)},
        links=[runbook(policy, "GpuLost"), runbook(policy, "GpuXidError")],
    )


def _workloads(policy: Policy) -> PlacedPanel:
    by = f"{BY}, {identity.JOB}, workload_pod, rank"
    chosen = identity.job_of_row(KEPT, "${__data.fields.Job}")
    job = {"job": "${__data.fields.Job}", "rank": "${__data.fields.Rank}"}
    return table(
        "Who has each GPU",
        PanelText(
            "Workloads that have a GPU, or a share of it, and the device memory of their processes. What is not known is empty.",
            "one rank a GPU in training",
            "a GPU with two ranks is overcommitted; one with memory and no rank has a process that was left behind",
            "no workload on these GPUs, or its name is not known",
        ),
        [
            Query(f"max by ({by}) (tachoscope_gpu_workload_info{{{_HERE}}})"),
            Query(f"sum by ({by}) (tachoscope_gpu_workload_memory_bytes{{{_HERE}}})"),
        ],
        [
            Column("instance", "Node"),
            Column("gpu", "GPU"),
            Column("mig", "MIG"),
            *identity.COLUMNS,
            Column("workload_pod", "Pod"),
            Column("training_job", "Job", link=links.board("training", "This job", chosen)),
            Column("rank", "Rank", link=links.explorer(policy, "job", "This rank in the explorer", job)),
            Column("B", "Memory", unit="bytes"),
        ],
        sort="Node",
        descending=False,
        links=[runbook(policy, "GpuUnderused"), runbook(policy, "GpuBadlyUnderused")],
    )


def _inventory(policy: Policy) -> PlacedPanel:
    return table(
        "What there is",
        PanelText(
            "GPUs and MIG instances as the driver reports them, and whether they answer.",
            "one model and driver on the nodes of a job; all answer",
            "a driver unlike the others': the node missed a roll-out; lost: reboot the node",
            NO_GPU,
        ),
        [
            Query(f"max by ({BY}, uuid, model, driver_version, pci_bus_id, mig_profile) (tachoscope_gpu_info{{{_HERE}}})"),
            Query(f"max by ({BY}, uuid) (tachoscope_gpu_up{{{_HERE}}})"),
            Query(f"max by ({BY}, uuid) (tachoscope_gpu_processes{{{_HERE}}})"),
        ],
        [
            Column("instance", "Node"),
            Column("gpu", "GPU"),
            Column("mig", "MIG"),
            Column("mig_profile", "Profile"),
            Column("model", "Model"),
            Column("driver_version", "Driver"),
            Column("pci_bus_id", "PCI address"),
            Column("uuid", "UUID"),
            Column("B", "Answers", texts={"1": "yes", "0": "no"}),
            Column("C", "Processes", unit="short"),
        ],
        sort="Node",
        descending=False,
        links=[runbook(policy, "GpuLost")],
    )


def _host(policy: Policy) -> list[PlacedPanel]:
    return [
        host_panels.cpu(policy, _NODE),
        host_panels.pressure(policy, _NODE),
        host_panels.memory(policy, _NODE),
        host_panels.killed(policy, _NODE),
        host_panels.faults(policy, _NODE),
        host_panels.clock(_NODE),
        *io_panels.disks_and_network(policy, _NODE),
        io_panels.rdma_states(policy, _NODE),
        io_panels.rdma_used(policy, _NODE),
        io_panels.rdma_errors(policy, _NODE),
    ]
