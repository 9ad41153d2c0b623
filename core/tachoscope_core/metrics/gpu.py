"""Metrics of GPUs. `gpu` is the driver's index when the GPU was first seen, `mig` a MIG instance's id, empty for a whole GPU.

Each is read from NVML, or taken from a dcgm-exporter where one runs; docs/reference/gpus.md lists the call behind each.
"""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

GPU_HEALTH_STATES = ("healthy", "degraded", "unhealthy", "unknown")
GPU_UNITS = ("graphics", "sm", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16", "integer")
"""What of the chip was active; `sm_occupancy` is warps over the most there could be."""
THROTTLE_REASONS = (
    "idle",
    "application_clocks",
    "power_cap",
    "hardware_slowdown",
    "sync_boost",
    "thermal",
    "hardware_thermal",
    "power_brake",
)
"""Why clocks are below what they could be; the bits of nvmlClocksEventReasons in their order."""
THROTTLE_TIMES = (
    "power_cap",
    "thermal",
    "sync_boost",
    "board_limit",
    "low_utilization",
    "reliability",
    "software_thermal",
    "hardware_thermal",
    "power_brake",
)
ACTIONS = ("none", "check_configuration", "check_application", "reset_gpu", "reboot_node", "drain_node", "inspect_hardware")
"""What to do about a GPU, the mildest first."""

_GPU = ("gpu", "uuid", "mig")

GPU_INFO = Metric(
    "tachoscope_gpu_info",
    "1 for each GPU and MIG instance with what it is.",
    (*_GPU, "model", "pci_bus_id", "driver_version", "mig_profile"),
)
GPU_UP = Metric(
    "tachoscope_gpu_up", "1 if the GPU answered when it was last asked, 0 if it is lost or its driver does not answer.", _GPU
)
GPUS = Metric(
    "tachoscope_gpus", "GPUs of the node by kind: expected (configured, or the most ever seen), seen (answering now).", ("kind",)
)
GPU_UTILIZATION = Metric("tachoscope_gpu_utilization_ratio", "Share of the last sampling in which at least one kernel ran.", _GPU)
GPU_COPY_UTILIZATION = Metric(
    "tachoscope_gpu_memory_utilization_ratio", "Share of the last sampling in which device memory was read or written.", _GPU
)
GPU_ACTIVE = Metric(
    "tachoscope_gpu_active_ratio",
    "Share of cycles in which a unit was active, from GPM: graphics, sm, sm_occupancy, tensor, dram, fp64, fp32, fp16, integer.",
    (*_GPU, "unit"),
)
GPU_MEMORY_BYTES = Metric("tachoscope_gpu_memory_bytes", "Device memory by kind: total, used, free, reserved.", (*_GPU, "kind"))
GPU_POWER = Metric("tachoscope_gpu_power_watts", "Power by kind: usage (mean of a second), limit.", (*_GPU, "kind"))
GPU_ENERGY = Metric("tachoscope_gpu_energy_joules_total", "Energy since the driver was loaded.", _GPU)
GPU_CLOCK = Metric("tachoscope_gpu_clock_hertz", "Clock by domain (sm, memory) and kind (current, max).", (*_GPU, "clock", "kind"))
GPU_TEMPERATURE = Metric("tachoscope_gpu_temperature_celsius", "Temperature by sensor: gpu, memory.", (*_GPU, "sensor"))
GPU_TEMPERATURE_MARGIN = Metric(
    "tachoscope_gpu_temperature_margin_celsius",
    "Degrees left to the temperature at which the hardware slows down, by sensor: gpu, memory.",
    (*_GPU, "sensor"),
)
GPU_THROTTLED = Metric(
    "tachoscope_gpu_throttled", "1 while clocks are held down for a reason, else 0; reasons may hold together.", (*_GPU, "reason")
)
GPU_THROTTLED_SECONDS = Metric(
    "tachoscope_gpu_throttled_seconds_total", "Time in which clocks were held down, by reason.", (*_GPU, "reason")
)
GPU_ECC_ERRORS = Metric(
    "tachoscope_gpu_ecc_errors_total",
    "Memory errors by kind (corrected, uncorrected) and since when: volatile (driver load), aggregate (the GPU's life).",
    (*_GPU, "kind", "since"),
)
GPU_REMAPPED_ROWS = Metric(
    "tachoscope_gpu_remapped_rows_total", "Rows of memory remapped, by kind of error: corrected, uncorrected.", (*_GPU, "kind")
)
GPU_ROW_REMAP = Metric(
    "tachoscope_gpu_row_remap", "1 if a remapping is pending (until a reset) or has failed, by state.", (*_GPU, "state")
)
GPU_RETIRED_PAGES = Metric(
    "tachoscope_gpu_retired_pages_total", "Pages of memory retired, by kind of error: corrected, uncorrected.", (*_GPU, "kind")
)
GPU_PCIE_BYTES = Metric(
    "tachoscope_gpu_pcie_bytes_total", "Bytes over PCIe by direction: receive (to the GPU), transmit.", (*_GPU, "direction")
)
GPU_PCIE_REPLAYS = Metric("tachoscope_gpu_pcie_replays_total", "Packets that had to be sent again over PCIe.", _GPU)
GPU_PCIE_LINK = Metric(
    "tachoscope_gpu_pcie_link",
    "The PCIe link's generation and width, by what (generation, width) and kind (current, max).",
    (*_GPU, "what", "kind"),
)
GPU_NVLINK_BYTES = Metric(
    "tachoscope_gpu_nvlink_bytes_total", "Data over all NVLinks by direction: receive, transmit.", (*_GPU, "direction")
)
GPU_NVLINK_ERRORS = Metric(
    "tachoscope_gpu_nvlink_errors_total", "Errors of all NVLinks by kind: crc_flit, crc_data, replay, recovery.", (*_GPU, "kind")
)
GPU_NVLINKS = Metric("tachoscope_gpu_nvlinks", "NVLinks of the GPU by state: active, inactive.", (*_GPU, "state"))
GPU_LINK_RATE = Metric(
    "tachoscope_gpu_link_bytes_per_second",
    "Bytes a second since the last sampling, from GPM, by link (pcie, nvlink) and direction (receive, transmit).",
    (*_GPU, "link", "direction"),
)
GPU_XID_ERRORS = Metric(
    "tachoscope_gpu_xid_errors_total", "Xid errors of the driver since the agent first started, by code.", ("gpu", "uuid", "xid")
)
GPU_XID_LAST_SEEN = Metric(
    "tachoscope_gpu_xid_last_seen_seconds", "Unix time of the last Xid error of a code.", ("gpu", "uuid", "xid")
)
GPU_PROCESSES = Metric("tachoscope_gpu_processes", "Processes that compute on the GPU.", _GPU)
GPU_WORKLOAD_MEMORY = Metric(
    "tachoscope_gpu_workload_memory_bytes",
    "Device memory of the processes of a workload; labels that are not known are empty.",
    (*_GPU, "workload_namespace", "workload_pod", "workload_container", "training_job", "rank"),
)
GPU_WORKLOAD = Metric(
    "tachoscope_gpu_workload_info",
    "1 for each workload that has the GPU, or a share of it; labels that are not known are empty.",
    (*_GPU, "workload_namespace", "workload_pod", "workload_container", "training_job", "rank"),
)
GPUS_HELD = Metric(
    "tachoscope_gpus_held",
    "GPUs of the node that any workload has: each once, however many share it or its slices; absent where no workload is known.",
)
GPU_DEVICES_UNMAPPED = Metric(
    "tachoscope_gpu_devices_unmapped",
    "Devices that the kubelet assigned to pods and that the driver does not know as GPUs, by assignment: device, claim.",
    ("kind",),
)
POD_RESOURCES_UP = Metric(
    "tachoscope_gpu_pod_resources_up", "1 if the kubelet's pod-resources API answered when it was last asked, else 0."
)
GPU_RECOVERY_ACTION = Metric(
    "tachoscope_gpu_recovery_action",
    "The driver's own advice: 0 none, 1 reset the GPU, 2 reboot, 3 drain peer-to-peer, 4 drain and reset, 5 recover IMEX, "
    "6 reset the bus, 7 reboot the system.",
    _GPU,
)
GPU_HEALTH = Metric(
    "tachoscope_gpu_health", "1 for the state that the GPU is in, 0 for the others.", ("gpu", "uuid", "state"), GPU_HEALTH_STATES
)
GPU_HEALTH_REASON = Metric(
    "tachoscope_gpu_health_reason_info",
    "1 for each reason why a GPU is not healthy, and what to do about it; values are at /v1/health. The node's have no gpu.",
    ("gpu", "uuid", "reason", "action"),
)
NODE_HEALTH = Metric(
    "tachoscope_node_health",
    "1 for the state that the node's GPUs together are in, 0 for the others.",
    ("state",),
    GPU_HEALTH_STATES,
)

GPU_VALUES: tuple[Metric, ...] = (
    GPU_UTILIZATION,
    GPU_COPY_UTILIZATION,
    GPU_ACTIVE,
    GPU_MEMORY_BYTES,
    GPU_POWER,
    GPU_ENERGY,
    GPU_CLOCK,
    GPU_TEMPERATURE,
    GPU_TEMPERATURE_MARGIN,
    GPU_THROTTLED,
    GPU_THROTTLED_SECONDS,
    GPU_ECC_ERRORS,
    GPU_REMAPPED_ROWS,
    GPU_ROW_REMAP,
    GPU_RETIRED_PAGES,
    GPU_PCIE_BYTES,
    GPU_PCIE_REPLAYS,
    GPU_PCIE_LINK,
    GPU_NVLINK_BYTES,
    GPU_NVLINK_ERRORS,
    GPU_NVLINKS,
    GPU_LINK_RATE,
    GPU_RECOVERY_ACTION,
    GPU_PROCESSES,
)
"""What one GPU says about itself, in the order of its page."""

GPU_METRICS: tuple[Metric, ...] = (
    GPU_INFO,
    GPU_UP,
    GPUS,
    *GPU_VALUES,
    GPU_XID_ERRORS,
    GPU_XID_LAST_SEEN,
    GPU_WORKLOAD_MEMORY,
    GPU_WORKLOAD,
    GPUS_HELD,
    GPU_DEVICES_UNMAPPED,
    POD_RESOURCES_UP,
    GPU_HEALTH,
    GPU_HEALTH_REASON,
    NODE_HEALTH,
)
