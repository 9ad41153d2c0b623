"""Panels about what GPUs do: work, clocks, power, heat, memory and links. Each takes the matchers of the GPUs that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.metrics.gpu import THROTTLE_TIMES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import RATE, WHOLE, numbered
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Link, PanelText, PlacedPanel, Query, bars, timeline, timeseries
from tachoscope_dashboards.parts.slo_objectives import colors_below
from tachoscope_node.gpu.health.rules import thresholds

NO_GPU = "no GPU on these nodes"
NO_GPM = "no GPU on these nodes that tells it (GPM: from Hopper on)"
GPU = "{{instance}} GPU {{gpu}} {{mig}}"
"""Legend of a GPU or MIG instance."""
BY = "instance, gpu, mig"

HELD_DOWN = {
    1: ("idle", "idle", palette.STATE_COLORS["idle"]),
    2: ("application_clocks|sync_boost", "as configured", palette.SERIES[4]),
    3: ("power_cap", "power cap", palette.SERIES[1]),
    4: ("thermal", "heat, by the driver", palette.SERIES[5]),
    5: ("hardware_slowdown|hardware_thermal|power_brake", "heat or power, by the hardware: half the clock or less", palette.BAD),
}
"""Reasons for lower clocks from the mildest to the gravest: values of the label, what people read, and the colour."""


def work(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how much of the chip is at work."""
    underused = [runbook(policy, "GpuUnderused"), runbook(policy, "GpuEfficiencyBurn")]
    return [
        _active(
            "Multiprocessors at work",
            "multiprocessors had a warp to run",
            ("above the dashed line while a job trains", "something makes them wait: see the job's ledger"),
            _unit(where, "sm"),
            colors_below("gpu-efficiency"),
            underused,
        ),
        _active(
            "Tensor cores at work",
            "tensor cores did something",
            ("a third and more in training of large models", "low with busy multiprocessors: precision, shapes or unfused kernels"),
            _unit(where, "tensor"),
            (),
            [runbook(policy, "compute_inefficient")],
        ),
        _active(
            "Device memory at work",
            "device memory was read or written",
            ("below 0.8 in training; decoding may be near that", "near its most: the kernels are bound by memory; fuse them"),
            _unit(where, "dram"),
            (),
            [runbook(policy, "compute_inefficient"), runbook(policy, "decode_bandwidth")],
        ),
    ]


def _unit(where: str, unit: str) -> str:
    return f'max by ({BY}) (tachoscope_gpu_active_ratio{{{where}, unit="{unit}"}})'


def _active(
    title: str, what: str, words: tuple[str, str], expr: str, steps: tuple[ColorStep, ...], leads: list[Link]
) -> PlacedPanel:
    about = PanelText(f"Share of the cycles in which {what}, by GPU.", *words, NO_GPM)
    return timeseries(title, about, [Query(expr, GPU)], unit="percentunit", width=8, maximum=1.0, steps=steps, links=leads)


def kernels(policy: Policy, where: str) -> PlacedPanel:
    """Return the share of time with any kernel, which all GPUs tell."""
    return timeseries(
        "Any kernel at work",
        PanelText(
            "Share of the time in which at least one kernel ran, however small: near 1 does not mean that it is used well.",
            "near 1 while a job trains",
            "the host does not launch fast enough, or waits; 1 with little power drawn can be a hang in a collective",
            NO_GPU,
        ),
        [Query(f"max by ({BY}) (tachoscope_gpu_utilization_ratio{{{where}}})", GPU)],
        unit="percentunit",
        width=8,
        maximum=1.0,
        links=[runbook(policy, "launch_bound"), runbook(policy, "hang")],
    )


def memory(policy: Policy, where: str) -> PlacedPanel:
    """Return how full device memory is."""
    used, total = (f'max by ({BY}) (tachoscope_gpu_memory_bytes{{{where}, kind="{kind}"}})' for kind in ("used", "total"))
    return timeseries(
        "Device memory used",
        PanelText(
            "Share of the device memory that is used, by GPU.",
            "level while a job trains",
            "it grows from step to step: a leak; it nears 1: the allocator frees and asks again, then fails",
            NO_GPU,
        ),
        [Query(f"{used} / {total}", GPU)],
        unit="percentunit",
        width=8,
        maximum=1.0,
        links=[runbook(policy, "memory_thrash")],
    )


def clock(policy: Policy, where: str) -> PlacedPanel:
    """Return clocks against their most."""
    current, most = (
        f'max by ({BY}) (tachoscope_gpu_clock_hertz{{{where}, clock="sm", kind="{kind}"}})' for kind in ("current", "max")
    )
    return timeseries(
        "Clock of the multiprocessors, of its most",
        PanelText(
            "The clock at which multiprocessors run, over the highest that this GPU has.",
            "alike on all GPUs of a job; 0.7 and more under full load, where the power cap decides",
            "one GPU below the others slows all ranks of its job: see below what holds it down",
            NO_GPU,
        ),
        [Query(f"{current} / {most}", GPU)],
        unit="percentunit",
        width=8,
        maximum=1.0,
        links=[runbook(policy, "GpuThrottled"), runbook(policy, "gpu_throttle")],
    )


def held_down(policy: Policy, where: str) -> PlacedPanel:
    """Return what holds clocks down."""
    patterns = {number: values for number, (values, _, _) in HELD_DOWN.items()}
    return timeline(
        "What holds clocks down",
        PanelText(
            "The gravest reason of the moment why a GPU's clocks are lower than they could be.",
            "none or the power cap under load, idle without",
            "heat or the hardware: cooling, power supply or a broken fan; it is at half its clock or less",
            NO_GPU,
        ),
        [Query(numbered("tachoscope_gpu_throttled", where, "reason", patterns, BY), GPU)],
        {"0": ("nothing", palette.OK), **{str(number): (text, color) for number, (_, text, color) in HELD_DOWN.items()}},
        width=16,
        links=[runbook(policy, "GpuThrottled"), runbook(policy, "gpu_throttle")],
    )


def held_down_by_reason(policy: Policy, where: str) -> PlacedPanel:
    """Return the time with lower clocks, of the driver's counters, which miss nothing between two looks."""
    return timeseries(
        "GPUs held down, by reason",
        PanelText(
            "How many GPUs' worth of time is spent with lower clocks, by reason. Reasons overlap, so they do not add up. Of "
            f"{', '.join(THROTTLE_TIMES)}, low_utilization is what an idle GPU does.",
            "only power_cap and low_utilization",
            "heat: the room, the fans, the neighbours; reliability and board_limit: the power supply of the board",
            NO_GPU,
        ),
        [Query(f"sum by (reason) (rate(tachoscope_gpu_throttled_seconds_total{{{where}}}{RATE}))", "{{reason}}")],
        unit="short",
        width=8,
        links=[runbook(policy, "GpuThrottled")],
    )


def power_of_limit(policy: Policy, where: str) -> PlacedPanel:
    """Return power against its limit."""
    usage, limit = (f'max by ({BY}) (tachoscope_gpu_power_watts{{{where}, kind="{kind}"}})' for kind in ("usage", "limit"))
    return timeseries(
        "Power, of its limit",
        PanelText(
            "Power that a GPU draws, mean of a second, over the limit that is set.",
            "near 1 under full load, and alike on the GPUs of a job",
            "far below 1 with busy kernels: they wait; a limit lower than on the neighbours was set by hand",
            NO_GPU,
        ),
        [Query(f"{usage} / {limit}", GPU)],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "gpu_throttle")],
    )


def power(where: str) -> PlacedPanel:
    """Return the power of nodes."""
    return timeseries(
        "Power of the GPUs of a node",
        PanelText(
            "Power of the GPUs of a node together, from their energy counters.",
            "as the racks are built for",
            "it swings with each step: a job that waits a lot; nodes far below the others: their GPUs idle",
            NO_GPU,
        ),
        [Query(f"sum by (instance) (rate(tachoscope_gpu_energy_joules_total{{{where}}}{RATE}))", "{{instance}}")],
        unit="watt",
        width=8,
    )


def energy(where: str) -> PlacedPanel:
    """Return the energy of nodes, in watt-hours."""
    return bars(
        "Energy in this time",
        PanelText(
            "Energy that the GPUs of a node used in the selected time range.",
            "alike on nodes that do the same",
            "a node with less than its neighbours has worked less: see its clocks and who has its GPUs",
            NO_GPU,
        ),
        Query(f"sum by (instance) (increase(tachoscope_gpu_energy_joules_total{{{where}}}{WHOLE})) / 3600", "{{instance}}"),
        unit="watth",
    )


def margin(policy: Policy, where: str) -> PlacedPanel:
    """Return degrees left; the threshold is that of the agent's own verdict."""
    least = thresholds().rules["temperature_gpu"].threshold
    assert least is not None
    return timeseries(
        "Degrees left until it slows down",
        PanelText(
            "Temperature left to the one at which the hardware slows down, by sensor: gpu, memory.",
            "well above the dashed line, below which the agent calls the GPU degraded",
            "cooling: the room, fans, dust, a loose heat sink; drain the node before it is damaged",
            "no GPU on these nodes tells it",
        ),
        [Query(f"min by ({BY}, sensor) (tachoscope_gpu_temperature_margin_celsius{{{where}}})", f"{GPU} {{{{sensor}}}}")],
        unit="celsius",
        steps=(ColorStep(float("-inf"), palette.WARN), ColorStep(least, palette.OK)),
        links=[runbook(policy, "GpuThrottled")],
    )


def temperature(policy: Policy, where: str) -> PlacedPanel:
    """Return the temperature of each sensor of each GPU."""
    return timeseries(
        "Temperature",
        PanelText(
            "Temperature by sensor: gpu, memory.",
            "alike on the GPUs of a node; what is too hot says the panel beside it",
            "one GPU hotter than its neighbours under the same load: its own cooling; all: the room",
            NO_GPU,
        ),
        [Query(f"max by ({BY}, sensor) (tachoscope_gpu_temperature_celsius{{{where}}})", f"{GPU} {{{{sensor}}}}")],
        unit="celsius",
        minimum=None,
        links=[runbook(policy, "gpu_throttle")],
    )


def pcie_bytes(policy: Policy, where: str) -> PlacedPanel:
    """Return bytes over PCIe, by the driver's counters or, where it has none, by GPM."""
    return _bytes(
        "PCIe: bytes",
        PanelText(
            "Bytes over PCIe, by GPU and direction: receive is to the GPU.",
            "alike on the ranks of a job, and far below the link (a few tens of GB/s)",
            "near the link all the time: batches are copied that could stay, or overlap with the computation",
            "no GPU on these nodes tells it",
        ),
        where,
        "pcie",
        [runbook(policy, "h2d_copy")],
    )


def nvlink_bytes(policy: Policy, where: str) -> PlacedPanel:
    """Return bytes over NVLink, by the driver's counters or, where it has none, by GPM."""
    return _bytes(
        "NVLink: bytes",
        PanelText(
            "Data over all NVLinks of a GPU, by direction.",
            "alike on the ranks of a job",
            "one GPU that moves less than the others: see its links and their errors; nothing at all: collectives go another way",
            "no NVLink on these nodes, or no GPU that tells it",
        ),
        where,
        "nvlink",
        [runbook(policy, "comm_exposed")],
    )


def _bytes(title: str, about: PanelText, where: str, link: str, leads: list[Link]) -> PlacedPanel:
    by = "instance, gpu, direction"
    expr = (
        f"sum by ({by}) (rate(tachoscope_gpu_{link}_bytes_total{{{where}}}{RATE})) "
        f'or sum by ({by}) (tachoscope_gpu_link_bytes_per_second{{{where}, link="{link}"}})'
    )
    return timeseries(title, about, [Query(expr, "{{instance}} GPU {{gpu}} {{direction}}")], unit="Bps", links=leads)
