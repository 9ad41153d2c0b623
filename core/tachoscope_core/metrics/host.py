"""Metrics of the host that ranks run on. Counters are the kernel's own totals, mostly since the machine started."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

LINK_STATES = ("nop", "down", "init", "armed", "active", "active_defer")
"""What the kernel calls the states of an InfiniBand port, in the order of its numbers for them."""

_DEVICE = ("device",)
_DEVICE_DIRECTION = ("device", "direction")
_PORT = ("device", "port")
_RANK_LEVEL = ("training_job", "rank", "level")

CPU_SECONDS = Metric(
    "tachoscope_host_cpu_seconds_total",
    "Time of all cores together by mode: user, nice, system, idle, iowait, irq, softirq, steal; user includes guests.",
    ("mode",),
)
CPU_CORES = Metric("tachoscope_host_cpu_cores", "Cores that are online, as the kernel counts them (with SMT: threads).")
PRESSURE_SECONDS = Metric(
    "tachoscope_host_pressure_seconds_total",
    "Time in which some tasks, or all that were not idle (full), waited for cpu, memory or io.",
    ("resource", "kind"),
)
MEMORY_BYTES = Metric(
    "tachoscope_host_memory_bytes",
    "Memory of the host by kind: total, free, available, cached (with shmem), anonymous, shmem, dirty, writeback, swap_total, "
    "swap_free; kinds overlap.",
    ("kind",),
)
MAJOR_FAULTS = Metric("tachoscope_host_major_faults_total", "Page faults of the host that had to wait for a disk.")
OOM_KILLS = Metric("tachoscope_host_oom_kills_total", "Processes of the host killed because memory was exhausted.")
DISK_BYTES = Metric("tachoscope_host_disk_bytes_total", "Bytes that a disk finished, by direction: read, write.", _DEVICE_DIRECTION)
DISK_OPERATIONS = Metric(
    "tachoscope_host_disk_operations_total", "Operations that a disk finished, by direction: read, write.", _DEVICE_DIRECTION
)
DISK_OPERATION_SECONDS = Metric(
    "tachoscope_host_disk_operation_seconds_total",
    "Time that operations took, summed over them, by direction; over the operations it is their mean latency.",
    _DEVICE_DIRECTION,
)
DISK_IO_SECONDS = Metric("tachoscope_host_disk_io_seconds_total", "Time in which a disk had at least one operation to do.", _DEVICE)
NETWORK_BYTES = Metric(
    "tachoscope_host_network_bytes_total",
    "Bytes over a network interface by direction: receive, transmit; RDMA traffic is not among them.",
    _DEVICE_DIRECTION,
)
NETWORK_ERRORS = Metric(
    "tachoscope_host_network_errors_total", "Packets that a network interface found in error.", _DEVICE_DIRECTION
)
NETWORK_DROPS = Metric("tachoscope_host_network_drops_total", "Packets that a network interface dropped.", _DEVICE_DIRECTION)
TCP_SENT = Metric("tachoscope_host_tcp_sent_segments_total", "TCP segments that the host sent, without those sent again.")
TCP_RETRANSMITTED = Metric("tachoscope_host_tcp_retransmitted_segments_total", "TCP segments that the host had to send again.")
INFINIBAND_BYTES = Metric(
    "tachoscope_host_infiniband_bytes_total",
    "Bytes over a port of an RDMA adapter (InfiniBand, RoCE, EFA) by direction: receive, transmit.",
    (*_PORT, "direction"),
)
INFINIBAND_ERRORS = Metric(
    "tachoscope_host_infiniband_errors_total",
    "Errors of a port of an RDMA adapter by kind, the kernel's name of the counter.",
    (*_PORT, "kind"),
)
INFINIBAND_LINK_STATE = Metric(
    "tachoscope_host_infiniband_link_state",
    "1 for the state that a port of an RDMA adapter is in, 0 for the others.",
    (*_PORT, "state"),
    LINK_STATES,
)
INFINIBAND_LINK_RATE = Metric(
    "tachoscope_host_infiniband_link_rate_bytes_per_second", "Bytes a second that a port of an RDMA adapter has negotiated.", _PORT
)
CGROUP_THROTTLED_SECONDS = Metric(
    "tachoscope_cgroup_throttled_seconds_total",
    "Time that a CPU quota stopped a rank's control group, by level: own, or ancestor (the nearest above it with a quota).",
    _RANK_LEVEL,
)
CGROUP_THROTTLED_PERIODS = Metric(
    "tachoscope_cgroup_throttled_periods_total", "Periods in which the CPU quota was used up, by level.", _RANK_LEVEL
)
CGROUP_PERIODS = Metric("tachoscope_cgroup_periods_total", "Periods in which the CPU quota was enforced, by level.", _RANK_LEVEL)
CLOCK_ERROR = Metric("tachoscope_host_clock_error_seconds", "Largest error that the kernel thinks its clock may have.")
CLOCK_OFFSET = Metric("tachoscope_host_clock_offset_seconds", "Offset of the clock that the kernel is still correcting.")
CLOCK_SYNCHRONISED = Metric("tachoscope_host_clock_synchronised", "1 if the kernel holds its clock to be synchronised, 0 if not.")

HOST_METRICS: tuple[Metric, ...] = (
    CPU_SECONDS,
    CPU_CORES,
    PRESSURE_SECONDS,
    MEMORY_BYTES,
    MAJOR_FAULTS,
    OOM_KILLS,
    DISK_BYTES,
    DISK_OPERATIONS,
    DISK_OPERATION_SECONDS,
    DISK_IO_SECONDS,
    NETWORK_BYTES,
    NETWORK_ERRORS,
    NETWORK_DROPS,
    TCP_SENT,
    TCP_RETRANSMITTED,
    INFINIBAND_BYTES,
    INFINIBAND_ERRORS,
    INFINIBAND_LINK_STATE,
    INFINIBAND_LINK_RATE,
    CGROUP_THROTTLED_SECONDS,
    CGROUP_THROTTLED_PERIODS,
    CGROUP_PERIODS,
    CLOCK_ERROR,
    CLOCK_OFFSET,
    CLOCK_SYNCHRONISED,
)
