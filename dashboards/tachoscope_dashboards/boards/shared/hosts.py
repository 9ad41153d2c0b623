"""Panels about hosts: processors, memory and clocks. Each takes the matchers of the hosts that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import PanelText, PlacedPanel, Query, happenings, timeseries

_NO_HOST = "no agent is scraped on these nodes"


def cpu(policy: Policy, where: str) -> PlacedPanel:
    """Return what the cores do, by mode."""
    return timeseries(
        "Processors",
        PanelText(
            "Share of the time of all cores, by what they do.",
            "some idle time is left, and hardly any iowait or steal",
            "no idle time: loaders or neighbours take it all; iowait: see the disks; steal: the hypervisor gives too little",
            _NO_HOST,
        ),
        [
            Query(
                f"sum by (mode) (rate(tachoscope_host_cpu_seconds_total{{{where}}}{RATE})) "
                f"/ on () group_left () sum(tachoscope_host_cpu_cores{{{where}}})",
                "{{mode}}",
            )
        ],
        unit="percentunit",
        width=8,
        stacked=True,
        colors={"idle": palette.STATE_COLORS["idle"]},
        maximum=1.0,
        links=[runbook(policy, "cpu_contention")],
    )


def pressure(policy: Policy, where: str) -> PlacedPanel:
    """Return the kernel's pressure."""
    return timeseries(
        "Pressure: time in which tasks waited",
        PanelText(
            "Share of the time in which some tasks, or all (full), waited for cpu, memory or io, by the kernel's word (PSI).",
            "near 0; a tenth of the time is felt by training",
            "cpu: too many workers for the cores; memory: it swaps or reads files again and again; io: disks or network storage",
            "the kernel tells no pressure, or no agent is scraped",
        ),
        [
            Query(
                f"sum by (instance, resource, kind) (rate(tachoscope_host_pressure_seconds_total{{{where}}}{RATE}))",
                "{{instance}} {{resource}} {{kind}}",
            )
        ],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "cpu_contention"), runbook(policy, "host_memory")],
    )


def quota(policy: Policy, where: str) -> PlacedPanel:
    """Return how long quotas of the control groups stopped ranks; `where` needs the job."""
    return timeseries(
        "Ranks stopped by a CPU quota",
        PanelText(
            "Share of the time in which the CPU quota of its control group, or of one above it, stopped a rank.",
            "0: a rank that is stopped makes all others wait",
            "raise the CPU limit of the pod, or take it away; fewer loader workers",
            "no quota on these ranks",
        ),
        [
            Query(
                f"max by (rank) (rate(tachoscope_cgroup_throttled_seconds_total{{{where}}}{RATE}))",
                "rank {{rank}}",
            )
        ],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "cpu_contention")],
    )


def memory(policy: Policy, where: str) -> PlacedPanel:
    """Return what is left of the memory."""
    return timeseries(
        "Memory left",
        PanelText(
            "Share of the memory that could be had without swapping: free, or files that need not be kept.",
            "a tenth or more: the cache of what is read again lives in it",
            "see who grows; at 0 the kernel kills a process",
            _NO_HOST,
        ),
        [
            Query(
                f'max by (instance) (tachoscope_host_memory_bytes{{{where}, kind="available"}}) '
                f'/ max by (instance) (tachoscope_host_memory_bytes{{{where}, kind="total"}})',
                "{{instance}}",
            )
        ],
        unit="percentunit",
        width=8,
        maximum=1.0,
        links=[runbook(policy, "host_memory")],
    )


def killed(policy: Policy, where: str) -> PlacedPanel:
    """Return processes that the kernel killed."""
    return happenings(
        "Processes killed out of memory",
        PanelText(
            "Processes of the host that the kernel killed because memory was exhausted, when it happened.",
            "0",
            "less in memory, such as fewer loader workers or less prefetching, or a higher limit of the pod",
            _NO_HOST,
        ),
        [Query(f"sum by (instance) (rate(tachoscope_host_oom_kills_total{{{where}}}{RATE}))", "{{instance}}")],
        width=8,
        links=[runbook(policy, "host_memory")],
    )


def faults(policy: Policy, where: str) -> PlacedPanel:
    """Return page faults that waited for a disk."""
    return timeseries(
        "Page faults that waited for a disk",
        PanelText(
            "Page faults a second that had to wait for a disk: memory that was swapped out, or files that are mapped.",
            "few, once a job has started",
            "memory is short, or data that are read as mapped files do not fit into it",
            _NO_HOST,
        ),
        [Query(f"sum by (instance) (rate(tachoscope_host_major_faults_total{{{where}}}{RATE}))", "{{instance}}")],
        unit="cps",
        width=8,
        links=[runbook(policy, "host_memory"), runbook(policy, "input_fetch")],
    )


def clock(where: str) -> PlacedPanel:
    """Return how far clocks may be off."""
    return timeseries(
        "Clock: how far it may be off",
        PanelText(
            "The offset that the kernel is still correcting, and the largest error that it thinks its clock may have.",
            "milliseconds",
            "start chrony or ntpd: without a common clock, waiting and transfer across nodes cannot be distinguished",
            _NO_HOST,
        ),
        [
            Query(f"max by (instance) (tachoscope_host_clock_offset_seconds{{{where}}})", "{{instance}} offset"),
            Query(f"max by (instance) (tachoscope_host_clock_error_seconds{{{where}}})", "{{instance}} largest error"),
        ],
        unit="s",
        width=8,
        minimum=None,
    )
