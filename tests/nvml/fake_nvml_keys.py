"""What the state of the fake driver can say: keys and their units, which are NVML's own. An absent key is `Not Supported`."""

from __future__ import annotations

import difflib
import re

TEXT = "text"
VALUES = {
    # Who the GPU is
    "name": TEXT,
    "uuid": TEXT,
    "serial": TEXT,
    "pci_bus_id": TEXT,
    "pci_device_id": "number",
    "pci_subsystem_id": "number",
    "architecture": "nvmlDeviceArchitecture_t",
    "cuda_capability": "major.minor",
    "minor": "number of the device file",
    "persistence_mode": "0 or 1",
    "performance_state": "P state",
    "compute_mode": "nvmlComputeMode_t",
    # MIG, of the whole GPU and of an instance
    "mig": "0 or 1",
    "mig_pending": "0 or 1, as mig unless set",
    "mig_max": "instances",
    "profile": TEXT,
    "compute_instance": "id, 0 unless set",
    "multiprocessors": "count",
    "gpu_slices": "count",
    "compute_slices": "count",
    # How busy it is
    "utilization_gpu": "percent",
    "utilization_memory": "percent",
    "encoder_utilization": "percent",
    "decoder_utilization": "percent",
    "memory_total": "bytes",
    "memory_used": "bytes, without what is reserved",
    "memory_reserved": "bytes",
    "memory_free": "bytes, the rest unless set",
    "bar1_total": "bytes",
    "bar1_used": "bytes",
    "gpm_supported": "0 or 1",
    "processes": "1 if the driver lists processes",
    # Power, clocks, heat
    "power_mw": "mW, mean of a second",
    "power_instant_mw": "mW",
    "power_limit_mw": "mW",
    "power_default_limit_mw": "mW",
    "power_min_limit_mw": "mW",
    "power_max_limit_mw": "mW",
    "energy_mj": "mJ",
    "clock_graphics_mhz": "MHz",
    "clock_sm_mhz": "MHz",
    "clock_memory_mhz": "MHz",
    "clock_video_mhz": "MHz",
    "clock_max_graphics_mhz": "MHz",
    "clock_max_sm_mhz": "MHz",
    "clock_max_memory_mhz": "MHz",
    "clock_max_video_mhz": "MHz",
    "fan_speed": "percent",
    "temperature": "degrees Celsius",
    "temperature_memory": "degrees Celsius",
    "temperature_threshold.shutdown": "degrees Celsius",
    "temperature_threshold.slowdown": "degrees Celsius",
    "temperature_threshold.memory_max": "degrees Celsius",
    "temperature_threshold.gpu_max": "degrees Celsius",
    "throttle_reasons": "bits of nvmlClocksEventReason*",
    "throttle_ns.power_cap": "ns",
    "throttle_ns.thermal": "ns",
    "throttle_ns.sync_boost": "ns",
    "throttle_ns.board_limit": "ns",
    "throttle_ns.low_utilization": "ns",
    "throttle_ns.reliability": "ns",
    "throttle_ns.application_clocks": "ns",
    "throttle_ns.base_clocks": "ns",
    "throttle_ns.software_thermal": "ns",
    "throttle_ns.hardware_thermal": "ns",
    "throttle_ns.power_brake": "ns",
    # Errors of memory
    "ecc_mode": "0 or 1",
    "ecc.corrected.volatile": "errors",
    "ecc.corrected.aggregate": "errors",
    "ecc.uncorrected.volatile": "errors",
    "ecc.uncorrected.aggregate": "errors",
    "remapped.correctable": "rows",
    "remapped.uncorrectable": "rows",
    "remapped.pending": "0 or 1",
    "remapped.failure": "0 or 1",
    "retired.corrected": "pages",
    "retired.uncorrected": "pages",
    "retired.pending": "0 or 1",
    # Links
    "pcie_tx_bytes": "bytes",
    "pcie_rx_bytes": "bytes",
    "pcie_tx_kib_per_second": "KiB/s",
    "pcie_rx_kib_per_second": "KiB/s",
    "pcie_replays": "replays",
    "pcie_gen": "generation",
    "pcie_gen_max": "generation",
    "pcie_width": "lanes",
    "pcie_width_max": "lanes",
    "nvlinks": "links",
    "nvlinks_down": TEXT,  # numbers of links that are not active, with spaces between
    "nvlink_tx_kib": "KiB over all links",
    "nvlink_rx_kib": "KiB over all links",
    "nvlink_raw_tx_kib": "KiB over all links",
    "nvlink_raw_rx_kib": "KiB over all links",
    "nvlink_error.crc_flit": "errors, all on link 0",
    "nvlink_error.crc_data": "errors, all on link 0",
    "nvlink_error.replay": "errors, all on link 0",
    "nvlink_error.recovery": "errors, all on link 0",
    # What is wrong
    "recovery_action": "nvmlDeviceGpuRecoveryAction_t",
    "event_types": "bits of nvmlEventType*",
    "lost": "1: every call says that the GPU is lost",
    "gone": "1: the driver no longer lists the GPU",
    "hang_seconds": "every call takes so long, or until this is taken back",
    "error": "code that every call returns",
}
"""Of a GPU `gpu.<index>.<key>`, of all without their own `gpu.*.<key>`, of an instance `gpu.<index>.mig.<id>.<key>`."""

PATTERNS = {
    r"error\.nvml\w+": "code that this function returns",
    r"field\.\d+": "value of a field; with a point it is a double",
    r"field\.\d+\.\d+": "value of a field in a scope",
    r"field\.\d+\.error": "code that the field has",
    r"gpm\.\d+": "value of a GPM metric",
    r"process\.\d+": TEXT,  # bytes, or unknown
    r"graphics_process\.\d+": TEXT,
    r"process_utilization\.\d+": TEXT,  # percent of SM, memory, encoder, decoder, with spaces between
}
DRIVER = {
    "driver.version": TEXT,
    "driver.nvml": TEXT,
    "driver.cuda": "1000 major + 10 minor",
    "driver.gpus": "GPUs of the machine",
    "driver.missing": TEXT,  # functions that the library has not
    "driver.init_error": "code that nvmlInit returns",
    "driver.hang_seconds": "every call takes so long, or until this is taken back",
    "driver.process_bytes": "length of an entry in the list of processes",
    "call.cost_us": "microseconds of CPU time that a call burns",
}
DRIVER_PATTERNS = {
    r"driver\.error\.nvml\w+": "code that this function returns",
    r"event\.\d+": TEXT,
}  # <type>:<data>@<gpu>[/<instance>]


def check(key: str, value: str) -> None:
    """Refuse a line that the library would take for nothing.

    Raises:
        ValueError: there is no such key, or the value is not a number where one is needed.
    """
    place = re.match(r"gpu\.(\d+|\*)\.(mig\.\d+\.)?", key)
    own = key[place.end() :] if place else key
    names, patterns = (VALUES, PATTERNS) if place else (DRIVER, DRIVER_PATTERNS)
    unit = names.get(own) or next((unit for pattern, unit in patterns.items() if re.fullmatch(pattern, own)), None)
    if unit is None:
        near = difflib.get_close_matches(own, names, 1)
        raise ValueError(
            f"the fake driver has no key {key!r}{f', did you mean {near[0]!r}' if near else ''}; all are in {__file__}"
        )
    if unit != TEXT and value != "none" and not re.fullmatch(r"-?\d+(\.\d*)?|0x[0-9a-fA-F]+", value):
        raise ValueError(f"{key} must be a number ({unit}), is {value!r}")
