"""dcgm-exporter's names: a foreign catalogue, of which none is ours, for those who read it and for those who need its names.

Names and types: https://github.com/NVIDIA/dcgm-exporter/blob/d5e5f51/etc/default-counters.csv, those commented out there too; of
fields that it does not list, https://github.com/NVIDIA/DCGM/blob/72fa3fe/dcgmlib/dcgm_fields.h. Units are DCGM's, not base units.
Labels: https://github.com/NVIDIA/dcgm-exporter/blob/d5e5f51/internal/pkg/rendermetrics/render_metrics.go
"""

from __future__ import annotations

from typing import Literal

from tachoscope_core.metrics.metric import Metric

DcgmUnit = Literal["MHz", "celsius", "W", "mJ", "percent", "ratio", "MiB", "bytes", "1000 KiB", "ns", "count", "number", "bits"]

DCGM_LABELS = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "Hostname",
    "hostname",
    "DCGM_FI_DRIVER_VERSION",
    "pod",
    "namespace",
    "container",
)
"""`Hostname` until May 2026, `hostname` since. UUID is that of the whole GPU also on the series of its MIG instances."""

_ROWS: tuple[tuple[str, Literal["gauge", "counter"], DcgmUnit, str], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "MHz", "Clock of the SMs, in MHz."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "MHz", "Clock of the memory, in MHz."),
    ("DCGM_FI_DEV_MAX_SM_CLOCK", "gauge", "MHz", "Highest clock of the SMs, in MHz."),
    ("DCGM_FI_DEV_MAX_MEM_CLOCK", "gauge", "MHz", "Highest clock of the memory, in MHz."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "celsius", "Temperature of the GPU, in degrees C."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "celsius", "Temperature of the memory, in degrees C."),
    ("DCGM_FI_DEV_GPU_TEMP_LIMIT", "gauge", "celsius", "Degrees C left to the nearest slowdown threshold."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "W", "Power draw, in W."),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "W", "Power limit that the driver enforces, in W."),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "W", "Power limit that was asked for, in W."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "mJ", "Energy since the driver was loaded, in mJ."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "percent", "Share of time in which a kernel ran, in percent."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "percent", "Share of time in which memory was read or written, in percent."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "ratio", "Share of time in which the graphics engine was active."),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "ratio", "Share of cycles in which an SM had at least one warp."),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "ratio", "Warps on an SM over the most there could be."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "ratio", "Share of cycles in which the tensor pipe was active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "ratio", "Share of cycles in which the memory interface moved data."),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gauge", "ratio", "Share of cycles in which the FP64 pipe was active."),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", "ratio", "Share of cycles in which the FP32 pipe was active."),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", "ratio", "Share of cycles in which the FP16 pipe was active."),
    ("DCGM_FI_PROF_PIPE_INT_ACTIVE", "gauge", "ratio", "Share of cycles in which the integer pipe was active."),
    ("DCGM_FI_DEV_FB_TOTAL", "gauge", "MiB", "Memory of the GPU, in MiB."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "MiB", "Memory that is used, in MiB."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "MiB", "Memory that is free, in MiB."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "MiB", "Memory that the driver keeps for itself, in MiB."),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "bits", "Reasons why clocks are held down, one bit each."),
    ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "ns", "Time held down by the power cap, in ns."),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "ns", "Time held down by heat, in ns."),
    ("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "counter", "ns", "Time held down by sync boost, in ns."),
    ("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "counter", "ns", "Time held down by a limit of the board, in ns."),
    ("DCGM_FI_DEV_LOW_UTIL_VIOLATION", "counter", "ns", "Time held down for want of work, in ns."),
    ("DCGM_FI_DEV_RELIABILITY_VIOLATION", "counter", "ns", "Time held down for reliability, in ns."),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "count", "Corrected memory errors since the driver was loaded."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "count", "Uncorrected memory errors since the driver was loaded."),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "count", "Corrected memory errors of the GPU's life."),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "count", "Uncorrected memory errors of the GPU's life."),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "count", "Rows remapped for corrected errors."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "count", "Rows remapped for uncorrected errors."),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "number", "1 if a remapping waits for a reset."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "number", "1 if a remapping has failed."),
    ("DCGM_FI_DEV_RETIRED_SBE", "counter", "count", "Pages retired for corrected errors."),
    ("DCGM_FI_DEV_RETIRED_DBE", "counter", "count", "Pages retired for uncorrected errors."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "count", "Packets that were sent again over PCIe."),
    ("DCGM_FI_DEV_PCIE_LINK_GEN", "gauge", "number", "Generation of the PCIe link."),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", "gauge", "number", "Highest generation of the PCIe link."),
    ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "gauge", "number", "Lanes of the PCIe link."),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "gauge", "number", "Most lanes of the PCIe link."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "bytes", "Bytes a second from the GPU over PCIe."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "bytes", "Bytes a second to the GPU over PCIe."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", "counter", "bytes", "Bytes from the GPU over PCIe."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", "counter", "bytes", "Bytes to the GPU over PCIe."),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", "bytes", "Bytes a second from the GPU over all NVLinks."),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", "bytes", "Bytes a second to the GPU over all NVLinks."),
    # The exporter says counter, but it is the rate of both directions, in KiB over 1000:
    # https://github.com/NVIDIA/DCGM/blob/72fa3fe/dcgmlib/src/DcgmCacheManager.cpp (ReadAndCacheNvLinkBandwidth)
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "1000 KiB", "Rate over all NVLinks both ways, in 1000 KiB a second."),
    ("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", "counter", "bytes", "Bytes from the GPU over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES", "counter", "bytes", "Bytes to the GPU over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "count", "Checksum errors of flow control over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "count", "Checksum errors of data over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "count", "Packets sent again over all NVLinks."),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "count", "Recoveries of all NVLinks."),
)

DCGM_XID = Metric("DCGM_FI_DEV_XID_ERRORS", "Code of the last Xid error, 0 for none.", (*DCGM_LABELS, "err_code", "err_msg"))
DCGM_METRICS: tuple[Metric, ...] = (
    *(Metric(name, text, DCGM_LABELS, foreign_type=kind) for name, kind, _, text in _ROWS),
    DCGM_XID,
)
"""All that the agent reads from a dcgm-exporter or gives under its names; the unit of each is in `DCGM_UNITS`."""

DCGM_UNITS: dict[str, DcgmUnit] = {name: unit for name, _, unit, _ in _ROWS} | {DCGM_XID.name: "number"}
DCGM_BY_NAME = {metric.name: metric for metric in DCGM_METRICS}
