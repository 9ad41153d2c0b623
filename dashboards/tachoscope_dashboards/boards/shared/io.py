"""Panels about disks and networks of hosts. Each takes the matchers of the hosts that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.host import LINK_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import RATE, numbered
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import PanelText, PlacedPanel, Query, happenings, timeline, timeseries

_NO_HOST = "no agent is scraped on these nodes"
_LINK_COLORS = dict.fromkeys(LINK_STATES, palette.WARN) | {"down": palette.BAD, "active": palette.OK, "nop": palette.UNKNOWN}


def disks_and_network(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return what disks and networks of any host do, two lines of three."""
    parts = (disk_bytes, disk_latency, disk_busy, network_bytes, network_faults, sent_again)
    return [part(policy, where) for part in parts]


def disk_bytes(policy: Policy, where: str) -> PlacedPanel:
    """Return what disks read and write."""
    return timeseries(
        "Disks: bytes",
        PanelText(
            "Bytes that disks read and write, by node, disk and direction. Network storage is not among them.",
            "reads when an epoch begins or the cache is too small, writes when a checkpoint is saved",
            "reads all the time at what the disk can do: data do not fit into memory; put them on a faster disk or in fewer bytes",
            "no disk, or no agent is scraped",
        ),
        [
            Query(
                f"sum by (instance, device, direction) (rate(tachoscope_host_disk_bytes_total{{{where}}}{RATE}))",
                "{{instance}} {{device}} {{direction}}",
            )
        ],
        unit="Bps",
        width=8,
        links=[runbook(policy, "input_fetch")],
    )


def disk_latency(policy: Policy, where: str) -> PlacedPanel:
    """Return how long an operation of a disk takes."""
    return timeseries(
        "Disks: time of an operation",
        PanelText(
            "Mean time that an operation of a disk took, by direction.",
            "below a millisecond on flash, below 20 on disks that turn",
            "a disk that is busy and slow is overloaded; one that is slow and idle is ill",
            "no disk had anything to do",
        ),
        [
            Query(
                f"sum by (instance, device, direction) (rate(tachoscope_host_disk_operation_seconds_total{{{where}}}{RATE})) / "
                f"(sum by (instance, device, direction) (rate(tachoscope_host_disk_operations_total{{{where}}}{RATE})) > 0)",
                "{{instance}} {{device}} {{direction}}",
            )
        ],
        unit="s",
        width=8,
        links=[runbook(policy, "input_fetch"), runbook(policy, "CheckpointStorageSlow")],
    )


def disk_busy(policy: Policy, where: str) -> PlacedPanel:
    """Return how busy disks are."""
    return timeseries(
        "Disks: busy",
        PanelText(
            "Share of the time in which a disk had something to do.",
            "far below 1; 1 says little of flash, which does many things at once",
            "see who reads or writes, and whether operations take longer, too",
            "no disk, or no agent is scraped",
        ),
        [
            Query(
                f"sum by (instance, device) (rate(tachoscope_host_disk_io_seconds_total{{{where}}}{RATE}))",
                "{{instance}} {{device}}",
            )
        ],
        unit="percentunit",
        width=8,
        maximum=1.0,
        links=[runbook(policy, "checkpoint_stall")],
    )


def network_bytes(policy: Policy, where: str) -> PlacedPanel:
    """Return what goes over networks."""
    return timeseries(
        "Network: bytes",
        PanelText(
            "Bytes over network interfaces, by node, interface and direction. RDMA is not among them.",
            "alike on the nodes of a job, and below what the card can do",
            "one node that differs: its link, or a rank that reads what others do not",
            "no interface, or no agent is scraped",
        ),
        [
            Query(
                f"sum by (instance, device, direction) (rate(tachoscope_host_network_bytes_total{{{where}}}{RATE}))",
                "{{instance}} {{device}} {{direction}}",
            )
        ],
        unit="Bps",
        width=8,
        links=[runbook(policy, "network_degraded")],
    )


def network_faults(policy: Policy, where: str) -> PlacedPanel:
    """Return errors and drops of interfaces, in packets a second."""
    return timeseries(
        "Network: packets lost",
        PanelText(
            "Packets a second that an interface found in error, or dropped.",
            "0",
            "errors: cable, transceiver or port; drops: the host does not take packets as fast as they come",
            "no interface, or no agent is scraped",
        ),
        [
            Query(
                f"sum by (instance, device) (rate(tachoscope_host_network_errors_total{{{where}}}{RATE}))",
                "{{instance}} {{device}} errors",
            ),
            Query(
                f"sum by (instance, device) (rate(tachoscope_host_network_drops_total{{{where}}}{RATE}))",
                "{{instance}} {{device}} drops",
            ),
        ],
        unit="pps",
        width=8,
        links=[runbook(policy, "network_degraded")],
    )


def sent_again(policy: Policy, where: str) -> PlacedPanel:
    """Return the share of TCP segments that were sent again."""
    return timeseries(
        "Network: TCP segments sent again",
        PanelText(
            "Share of the TCP segments of a node that it had to send again.",
            "below a thousandth",
            "packets are lost on the way: of one node its link, of all a switch",
            _NO_HOST,
        ),
        [
            Query(
                f"sum by (instance) (rate(tachoscope_host_tcp_retransmitted_segments_total{{{where}}}{RATE})) / "
                f"(sum by (instance) (rate(tachoscope_host_tcp_sent_segments_total{{{where}}}{RATE})) > 0)",
                "{{instance}}",
            )
        ],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "network_degraded")],
    )


_PORT, _BY_PORT = "{{instance}} {{device}} {{port}}", "instance, device, port"
_NO_PORT = "no RDMA adapter on these nodes"


def rdma_states(policy: Policy, where: str) -> PlacedPanel:
    """Return the states of the ports of RDMA adapters."""
    states = {number: state for number, state in enumerate(LINK_STATES) if number}
    return timeline(
        "RDMA ports: state",
        PanelText(
            "The state of each port of an RDMA adapter (InfiniBand, RoCE, EFA).",
            "active, all the time",
            "down: cable or switch; init or armed: the subnet manager has not configured it",
            _NO_PORT,
        ),
        [Query(numbered("tachoscope_host_infiniband_link_state", where, "state", states, _BY_PORT), _PORT)],
        {str(number): (state, _LINK_COLORS[state]) for number, state in enumerate(LINK_STATES)},
        width=8,
        links=[runbook(policy, "slow_link")],
    )


def rdma_used(policy: Policy, where: str) -> PlacedPanel:
    """Return how much of the rate of their links RDMA adapters use."""
    used = f"sum by ({_BY_PORT}, direction) (rate(tachoscope_host_infiniband_bytes_total{{{where}}}{RATE}))"
    most = f"max by ({_BY_PORT}) (tachoscope_host_infiniband_link_rate_bytes_per_second{{{where}}})"
    return timeseries(
        "RDMA ports: share of the rate that is used",
        PanelText(
            "Bytes over a port, of what it has negotiated with the switch, by direction.",
            "alike on all ports of a job, and bursts well below 1",
            "one port that carries less than the others: a slow link; all near 1: the network is what limits",
            _NO_PORT,
        ),
        [Query(f"{used} / on ({_BY_PORT}) group_left () {most}", f"{_PORT} {{{{direction}}}}")],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "comm_exposed"), runbook(policy, "slow_link")],
    )


def rdma_errors(policy: Policy, where: str) -> PlacedPanel:
    """Return errors of the ports of RDMA adapters."""
    return happenings(
        "RDMA ports: errors",
        PanelText(
            "Errors of a port as they come, of all kinds that the kernel counts.",
            "0",
            "a link that recovers or goes down, or symbol errors that rise, ask for another cable or transceiver",
            _NO_PORT,
        ),
        [Query(f"sum by ({_BY_PORT}) (rate(tachoscope_host_infiniband_errors_total{{{where}}}{RATE}))", _PORT)],
        width=8,
        links=[runbook(policy, "slow_link"), runbook(policy, "network_degraded")],
    )
