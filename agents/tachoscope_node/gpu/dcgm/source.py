"""Who reads the GPUs of a node: NVML, a dcgm-exporter, or both as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tachoscope_node.gpu.dcgm.combined_collector import GpuSource
    from tachoscope_node.gpu.dcgm.xids import OnXid as OnDcgmXid
    from tachoscope_node.gpu.nvml.collector import GpuCollector, OnXid


def gpu_collector(
    nvml: Literal["auto", "on", "off"],
    *,
    state: Path,
    expected: int,
    interval_seconds: float,
    on_xid: OnXid,
    log: Callable[[str], None],
    dcgm_url: str = "",
    on_dcgm_xid: OnDcgmXid = lambda *_: None,
) -> GpuSource | None:
    """Return who reads the GPUs, None where nobody does. What is off is not even imported.

    Args:
        nvml: auto: a node without the driver is not an error. on: it is a failure.
        state: the agent's state directory. expected: GPUs that the node should have, 0: the most that were ever seen.
        on_xid: gets UUID, PCI bus id, code and Unix time of an Xid error. log: gets a sentence when a GPU's condition changes.
        dcgm_url: of a dcgm-exporter's page; empty: none is read. on_dcgm_xid: gets an Xid error that the exporter reports.
    """
    own = _nvml_collector(nvml, state=state, expected=expected, interval_seconds=interval_seconds, on_xid=on_xid, log=log)
    if not dcgm_url:
        return own
    from tachoscope_node.gpu.dcgm.collector import DcgmCollector
    from tachoscope_node.gpu.dcgm.combined_collector import JoinedCollector

    dcgm = DcgmCollector(
        dcgm_url, alone=own is None, state=state / "dcgm_gpus.json", expected=expected, on_xid=on_dcgm_xid, log=log
    )
    return dcgm if own is None else JoinedCollector(own, dcgm, required=nvml == "on", log=log)


def _nvml_collector(
    nvml: Literal["auto", "on", "off"],
    *,
    state: Path,
    expected: int,
    interval_seconds: float,
    on_xid: OnXid,
    log: Callable[[str], None],
) -> GpuCollector | None:
    if nvml == "off":
        return None
    from tachoscope_node.gpu.nvml.collector import GpuCollector

    return GpuCollector(
        state=state / "gpus.json",
        expected=expected,
        interval_seconds=interval_seconds,
        required=nvml == "on",
        on_xid=on_xid,
        log=log,
    )
