"""Panels about errors of GPUs, their memory and their links. Each takes the matchers of the GPUs that it is about."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import RATE
from tachoscope_dashboards.boards.shared.gpus import NO_GPU
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import ColorStep, Column, PanelText, PlacedPanel, Query, happenings, table
from tachoscope_node.gpu.health.rules import thresholds

_BAD = (ColorStep(1.0, palette.BAD),)
_WARN = (ColorStep(1.0, palette.WARN),)
_BY = "instance, gpu, uuid"
_NO_ECC = "no GPU with ECC on these nodes"
_WHO = (Column("instance", "Node"), Column("gpu", "GPU"), Column("uuid", "UUID"))


def xids(policy: Policy, where: str) -> PlacedPanel:
    """Return the Xid errors that there were, and when."""
    return table(
        "Xid errors",
        PanelText(
            "Errors that the driver reported, by code: how many since the agent first started there, and when the last one was.",
            "empty, or only 13, 31, 43 and 45, which are the application's own",
            "the runbook has what each code asks for; the table at the top has it for those that still count",
            "no Xid error was ever seen on these nodes",
        ),
        [
            Query(f"max by ({_BY}, xid) (tachoscope_gpu_xid_errors_total{{{where}}})"),
            Query(f"max by ({_BY}, xid) (tachoscope_gpu_xid_last_seen_seconds{{{where}}}) * 1000"),
        ],
        [*_WHO, Column("xid", "Xid"), Column("A", "Errors", unit="short"), Column("B", "Last", unit="dateTimeFromNow")],
        sort="Last",
        width=12,
        links=[runbook(policy, "GpuXidError")],
    )


def new_memory_errors(policy: Policy, where: str) -> PlacedPanel:
    """Return errors of device memory as they come."""
    return happenings(
        "Memory errors, as they come",
        PanelText(
            "Errors of device memory, corrected or not.",
            "none that is not corrected, and few that are",
            "not corrected: what used the memory has failed; reset the GPU, so that the row is replaced",
            f"no error in this time, or {_NO_ECC}",
        ),
        [
            Query(
                f'sum by (instance, gpu, kind) (rate(tachoscope_gpu_ecc_errors_total{{{where}, since="volatile"}}{RATE})) > 0',
                "{{instance}} GPU {{gpu}} {{kind}}",
            )
        ],
        height=9,
        links=[runbook(policy, "GpuEccUncorrected")],
    )


def memory(policy: Policy, where: str) -> PlacedPanel:
    """Return errors of device memory and what was done about them, of all time so far."""
    pages = thresholds().rules["retired_pages"].threshold
    assert pages is not None
    ecc = f'max by ({_BY}) (tachoscope_gpu_ecc_errors_total{{{where}, kind="%s", since="%s"}})'
    remap = f'max by ({_BY}) (tachoscope_gpu_row_remap{{{where}, state="%s"}})'
    return table(
        "Memory errors and replaced rows, by GPU",
        PanelText(
            "ECC errors since the driver was loaded and over the GPU's life, rows of memory that were remapped, whether a "
            "remapping waits for a reset or has failed, and pages that were retired (GPUs before Ampere).",
            "no error that is not corrected since the driver was loaded, and nothing waits or failed",
            "reset the GPU when a remapping waits; have it replaced when one failed",
            _NO_ECC,
        ),
        [
            Query(ecc % ("uncorrected", "volatile")),
            Query(ecc % ("corrected", "volatile")),
            Query(ecc % ("uncorrected", "aggregate")),
            Query(f"sum by ({_BY}) (tachoscope_gpu_remapped_rows_total{{{where}}})"),
            Query(remap % "pending"),
            Query(remap % "failed"),
            Query(f"sum by ({_BY}) (tachoscope_gpu_retired_pages_total{{{where}}})"),
        ],
        [
            *_WHO,
            Column("A", "Not corrected, since driver", unit="short", steps=_BAD),
            Column("B", "Corrected, since driver", unit="short"),
            Column("C", "Not corrected, ever", unit="short", steps=_WARN),
            Column("D", "Rows remapped", unit="short"),
            Column("E", "Remapping waits", steps=_WARN, texts={"0": "no", "1": "yes"}),
            Column("F", "Remapping failed", steps=_BAD, texts={"0": "no", "1": "yes"}),
            Column("G", "Pages retired", unit="short", steps=(ColorStep(pages, palette.WARN),)),
        ],
        sort="Not corrected, since driver",
        links=[runbook(policy, "GpuEccUncorrected"), runbook(policy, "GpuRowRemapPending")],
    )


def nvlinks(policy: Policy, where: str) -> PlacedPanel:
    """Return errors of NVLink."""
    return happenings(
        "NVLink: errors",
        PanelText(
            "Errors of all NVLinks of a GPU, by kind.",
            "0; single check sum errors (crc) are repaired and cost nothing",
            "replays and recoveries slow each collective: reseat or replace; the other end of the link may be at fault",
            "no error in this time, or no NVLink on these nodes",
        ),
        [
            Query(
                f"sum by (instance, gpu, kind) (rate(tachoscope_gpu_nvlink_errors_total{{{where}}}{RATE})) > 0",
                "{{instance}} GPU {{gpu}} {{kind}}",
            )
        ],
        links=[runbook(policy, "GpuNvlinkErrors")],
    )


def pcie(policy: Policy, where: str) -> PlacedPanel:
    """Return packets that were sent again over PCIe."""
    return happenings(
        "PCIe: packets sent again",
        PanelText(
            "Packets that had to be sent again over PCIe, by GPU.",
            "0, or one now and then",
            "many: riser, slot or board; the GPU may be about to fall off the bus",
            NO_GPU,
        ),
        [Query(f"sum by (instance, gpu) (rate(tachoscope_gpu_pcie_replays_total{{{where}}}{RATE}))", "{{instance}} GPU {{gpu}}")],
        links=[runbook(policy, "GpuPcieReplays")],
    )


def links(policy: Policy, where: str) -> PlacedPanel:
    """Return the links of each GPU as they are now."""
    nvlink = f'max by ({_BY}) (tachoscope_gpu_nvlinks{{{where}, state="%s"}})'
    width, most, generation, newest = (
        f'max by ({_BY}) (tachoscope_gpu_pcie_link{{{where}, what="{what}", kind="{kind}"}})'
        for what in ("width", "generation")
        for kind in ("current", "max")
    )
    return table(
        "Links of each GPU, now",
        PanelText(
            "NVLinks that are up and down, and the PCIe link as it is against what GPU and slot can do.",
            "as many NVLinks up as on the neighbours, and no lane missing; the generation may drop while the GPU idles",
            "missing lanes: reseat the GPU; NVLinks down: reset it, then check bridge or switch",
            NO_GPU,
        ),
        [
            Query(nvlink % "active"),
            Query(nvlink % "inactive"),
            Query(width),
            Query(f"{most} - {width}"),
            Query(generation),
            Query(newest),
        ],
        [
            *_WHO,
            Column("A", "NVLinks up", unit="short"),
            Column("B", "NVLinks down", unit="short"),
            Column("C", "PCIe lanes", unit="short"),
            Column("D", "PCIe lanes missing", unit="short", steps=_WARN),
            Column("E", "PCIe generation", unit="short"),
            Column("F", "Newest generation", unit="short"),
        ],
        sort="PCIe lanes missing",
        links=[runbook(policy, "GpuNvlinkErrors"), runbook(policy, "GpuPcieReplays")],
    )
