"""Panels about NCCL's collectives, by the word of its Inspector. Each takes the matchers of what it is about."""

from __future__ import annotations

from tachoscope_alerts.compile.sli_expressions import bound_matcher
from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.nccl import BANDWIDTH_DIFFERS, BUS_BYTES, COLLECTIVE_SECONDS, INSPECTOR_FILES, LINES, SKIPPED_BYTES
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import (
    Column,
    PanelText,
    PlacedPanel,
    Query,
    happened,
    happenings,
    heatmap,
    table,
    timeseries,
)

_NO_INSPECTOR = "no job of these nodes writes NCCL Inspector lines"
_NO_FAULT = "no such line; or no Inspector is read: see the files"
_STALL_SECONDS = 0.1
"""A bucket's bound: far above what a transfer within a step takes, so that it is waiting."""
_BY_OPERATION = f"{identity.JOB}, group, collective, size_class"


def _rate(series: str, where: str, by: str, window: str = RATE) -> str:
    return f"sum by ({by}) (rate({series}{{{where}}}{window}))"


def _bandwidth(where: str, by: str, window: str = RATE) -> str:
    """Return bytes over the bus by the seconds that operations took, waiting included; nothing where there was none."""
    return f"{_rate(BUS_BYTES.name, where, by, window)} / ({_rate(f'{COLLECTIVE_SECONDS.name}_sum', where, by, window)} > 0)"


def bandwidths(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return bus bandwidth by process group, by kind, and by size of message."""
    less = "the network is slower than it was, or ranks wait longer for a late one: see the share of long operations below"
    of = (
        (
            "Bus bandwidth by process group",
            "group",
            "each group: all ranks, or a dimension such as tp or dp",
            "flat; tp far above dp",
        ),
        ("Bus bandwidth by kind", "collective", "each kind of operation", "flat, and the kinds that move much close together"),
        (
            "Bus bandwidth by size of message",
            "size_class",
            "each class of message sizes. Small messages are all latency, and far below what the network can do",
            "flat, and the more the larger the message",
        ),
    )
    return [
        timeseries(
            title,
            PanelText(
                f"Bytes over the bus, by nccl-tests' factors, by the time in operations, waiting included: of {what}.",
                healthy,
                less,
                _NO_INSPECTOR,
            ),
            [Query(_bandwidth(where, label), f"{{{{{label}}}}}")],
            unit="Bps",
            width=8,
            links=[runbook(policy, "network_degraded"), runbook(policy, "comm_exposed")],
        )
        for title, label, what, healthy in of
    ]


def times(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return the time that ranks spend in operations, and how much of it is waiting."""
    name, late = COLLECTIVE_SECONDS.name, [runbook(policy, "compute_straggler"), runbook(policy, "comm_exposed")]
    within = _rate(f"{name}_bucket", f"{where}, {bound_matcher(_STALL_SECONDS)}", "collective")
    return [
        timeseries(
            "Operations under way, by process group",
            PanelText(
                "Seconds that ranks spend in operations in each second: how many are under way at a time, over all ranks.",
                "flat, in step with the steps",
                "a group that rises: its ranks wait for each other longer, or move more",
                _NO_INSPECTOR,
            ),
            [Query(_rate(f"{name}_sum", where, "group"), "{{group}}")],
            unit="short",
            width=8,
            stacked=True,
            links=late,
        ),
        timeseries(
            f"Operations above {_STALL_SECONDS:g} s",
            PanelText(
                f"Share of the operations of each kind that took more than {_STALL_SECONDS:g} s: waiting, not transfer.",
                "0",
                "a rank is late: its input, its device or a save; the board Job names it",
                _NO_INSPECTOR,
            ),
            [Query(f"1 - {within} / ({_rate(f'{name}_count', where, 'collective')} > 0)", "{{collective}}")],
            unit="percentunit",
            maximum=1.0,
            width=8,
            links=late,
        ),
        heatmap(
            "Operations by how long they took",
            PanelText(
                "How many operations took how long, over time; the rows are decades.",
                "bands that stay where they are: one for small messages, one for large ones",
                "a band that climbs: slower transfers. A new band at the top: stalls",
                _NO_INSPECTOR,
            ),
            Query(happened(_rate(f"{name}_bucket", where, "le")), "{{le}}"),
            unit="s",
            width=8,
            height=8,
            is_histogram=True,
            links=late,
        ),
    ]


def operations(policy: Policy, where: str) -> PlacedPanel:
    """Return all operations, those first that take the most time."""
    window = "[5m]"
    seconds, count = (_rate(f"{COLLECTIVE_SECONDS.name}_{part}", where, _BY_OPERATION, window) for part in ("sum", "count"))
    return table(
        "Operations, by the time that they take",
        PanelText(
            "Kinds and sizes of operations of a job's process groups in the last five minutes, those first that take most time.",
            "the large messages of the gradient exchange on top, with the bandwidth that the network has",
            "little bandwidth on top: late ranks or a slow network. Very many small ones: larger buckets, or fewer calls",
            _NO_INSPECTOR,
        ),
        [
            Query(seconds),
            Query(f"{count} > 0"),
            Query(f"{seconds} / ({count} > 0)"),
            Query(_bandwidth(where, _BY_OPERATION, window)),
        ],
        [
            Column("training_job", "Job"),
            *identity.COLUMNS,
            Column("group", "Process group"),
            Column("collective", "Kind"),
            Column("size_class", "Message"),
            Column("A", "Under way", unit="short"),
            Column("B", "A second", unit="ops"),
            Column("C", "Mean time", unit="s"),
            Column("D", "Bus bandwidth", unit="Bps"),
        ],
        width=24,
        sort="Under way",
        links=[runbook(policy, "comm_exposed"), runbook(policy, "network_degraded")],
    )


def uncounted_lines(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return what of the Inspector's lines is not counted, and why."""
    page = runbook(policy, "CollectorFailing")
    differ = f"sum by (collective) (rate({BANDWIDTH_DIFFERS.name}{{{where}}}{RATE}))"
    return [
        happenings(
            "Lines that were not counted",
            PanelText(
                "Lines of the Inspector that are not operations, or are impossible, by what is wrong with them.",
                "none, but for one that is cut where a process ends",
                "malformed, implausible: another version of the plugin. Oversized: something else writes there",
                _NO_FAULT,
            ),
            [Query(f'sum by (outcome) (rate({LINES.name}{{{where}, outcome!="counted"}}{RATE}))', "{{outcome}}")],
            width=6,
            links=[page],
        ),
        timeseries(
            "What was skipped",
            PanelText(
                "Output of the Inspector that was not read, by node: it writes faster than the agent may read.",
                "0",
                "the numbers above are of a sample: raise nccl.bytes_per_second, or the smallest size that the Inspector writes of",
                _NO_FAULT,
            ),
            [Query(f"topk(10, sum by (instance) (rate({SKIPPED_BYTES.name}{{{where}}}{RATE})))", "{{instance}}")],
            unit="Bps",
            width=6,
            links=[page],
        ),
        happenings(
            "Bandwidths that the Inspector has otherwise",
            PanelText(
                "Operations of which the Inspector gives another bus bandwidth than nccl-tests' factors, by more than 1 %.",
                "none",
                "it counts another way, as with reductions within the network: trust the trend, not the height",
                _NO_FAULT,
            ),
            [Query(differ, "{{collective}}")],
            width=6,
            links=[page],
        ),
        timeseries(
            "Files of the Inspector",
            PanelText(
                "Files that agents follow, by node: one a process of a job that writes them.",
                "as many as ranks on the node",
                "fewer: folders that nccl.inspector of the agent does not name, or rights",
                _NO_INSPECTOR,
            ),
            [Query(f"topk(10, sum by (instance) ({INSPECTOR_FILES.name}{{{where}}}))", "{{instance}}")],
            unit="short",
            width=6,
            links=[page],
        ),
    ]
