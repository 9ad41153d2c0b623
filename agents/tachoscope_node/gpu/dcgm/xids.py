"""Xid errors that a dcgm-exporter reports. It reports them late: another source may have counted them already."""

from __future__ import annotations

from collections.abc import Callable

from tachoscope_node.gpu.xid.counter import XidCounter

LATE_SECONDS = 90.0
"""How late one is here at most: after the exporter's interval of 30 s and ours of 15 s, with room for a look that failed."""

OnXid = Callable[[str, int, float, str], object]
"""Gets UUID of the GPU, code, Unix seconds and `dcgm`."""


def not_counted_yet(counter: XidCounter) -> OnXid:
    """Return a callback that counts an exporter's Xid errors, unless NVML or the kernel log reported them before."""

    def seen(uuid: str, xid: int, unix_seconds: float, source: str) -> None:
        told = any(
            (each.uuid, each.xid.code) == (uuid, xid) and unix_seconds - each.last_seen <= LATE_SECONDS for each in counter.all()
        )
        if not told:
            counter.count_error(uuid, xid, unix_seconds, source)

    return seen
