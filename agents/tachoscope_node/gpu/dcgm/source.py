"""The source of GPU readings of a node: NVML, a dcgm-exporter, or both as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tachoscope_node.config.settings import Gpu
    from tachoscope_node.gpu.dcgm.combined_collector import GpuSource
    from tachoscope_node.gpu.dcgm.xids import OnXid as OnDcgmXid
    from tachoscope_node.gpu.nvml.collector import GpuCollector, OnXid


def gpu_collector(
    settings: Gpu, *, state: Path, on_xid: OnXid, on_dcgm_xid: OnDcgmXid, log: Callable[[str], None]
) -> GpuSource | None:
    """Return the GPU collector, or None if it is disabled. Disabled collectors are not imported.

    Args:
        state: the agent's state directory. log: gets a sentence when a GPU's condition changes.
        on_xid: gets UUID, PCI bus id, code and Unix time of an Xid error. on_dcgm_xid: gets an Xid error of the exporter.
    """
    own: GpuCollector | None = None
    required, expected = settings.nvml == "on", settings.expected
    if settings.nvml != "off":
        from tachoscope_node.gpu.nvml.collector import GpuCollector

        file, seconds = state / "gpus.json", settings.interval_seconds
        own = GpuCollector(state=file, expected=expected, interval_seconds=seconds, required=required, on_xid=on_xid, log=log)
    if not settings.dcgm_url:
        return own
    from tachoscope_node.gpu.dcgm.collector import DcgmCollector
    from tachoscope_node.gpu.dcgm.combined_collector import JoinedCollector

    file = state / "dcgm_gpus.json"
    dcgm = DcgmCollector(settings.dcgm_url, alone=own is None, state=file, expected=expected, on_xid=on_dcgm_xid, log=log)
    return dcgm if own is None else JoinedCollector(own, dcgm, required=required, log=log)
