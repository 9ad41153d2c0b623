"""The health of the node's GPUs as a collector: metrics, and the page /v1/health."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tachoscope_core.gpu_metrics import (
    GPU_HEALTH,
    GPU_HEALTH_REASON,
    GPU_HEALTH_STATES,
    GPU_XID_ERRORS,
    GPU_XID_LAST_SEEN,
    NODE_HEALTH,
)
from tachoscope_core.metric import Metric
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.families import Family
from tachoscope_node.gpu.health import Reason, Verdict
from tachoscope_node.gpu.health_board import Board, GpuHealth
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.xids import Seen, XidCounter
from tachoscope_node.logs import Log

LAST_XIDS = 32
"""Xid errors that the page shows, the last ones."""


def health_families(gpus: Sequence[GpuHealth], node: Verdict) -> list[Family]:
    """Return the verdicts as metrics."""
    return [
        Family(
            GPU_HEALTH,
            [
                ((str(each.gpu.index), each.gpu.uuid, state), float(each.verdict.state == state))
                for each in gpus
                for state in GPU_HEALTH_STATES
            ],
        ),
        Family(
            GPU_HEALTH_REASON,
            [
                ((str(each.gpu.index), each.gpu.uuid, reason.what, reason.action), 1.0)
                for each in gpus
                for reason in each.verdict.reasons
            ],
        ),
        Family(NODE_HEALTH, [((state,), float(node.state == state)) for state in GPU_HEALTH_STATES]),
    ]


def health_page(node_name: str, gpus: Sequence[GpuHealth], node: Verdict, xids: Sequence[Seen]) -> dict[str, Any]:
    """Return what /v1/health says, for people and programs: times in Unix seconds."""
    return {
        "node": node_name,
        "state": node.state,
        "reasons": [_reason(reason, None) for reason in node.reasons],
        "gpus": [
            {
                "gpu": each.gpu.index,
                "uuid": each.gpu.uuid,
                "model": each.gpu.model,
                "pci_bus_id": each.gpu.pci_bus_id,
                "state": each.verdict.state,
                "reasons": [_reason(reason, each.since.get(reason.what)) for reason in each.verdict.reasons],
                "not_measured": list(each.verdict.not_measured),
            }
            for each in gpus
        ],
        "xids": [
            {
                "gpu": seen.index,
                "uuid": seen.uuid,
                "xid": seen.xid.label,
                "name": seen.xid.name,
                "means": seen.xid.means,
                "severity": seen.xid.severity,
                "action": seen.xid.action,
                "source": seen.xid.source,
                "count": seen.count,
                "last_seen": seen.last_seen,
                "mended": seen.mended,
                "detail": seen.detail,
            }
            for seen in xids[:LAST_XIDS]
        ],
    }


def _reason(reason: Reason, since: float | None) -> dict[str, Any]:
    return {
        "reason": reason.what,
        "text": reason.text,
        "value": reason.value,
        "comparison": reason.comparison,
        "threshold": reason.threshold,
        "severity": reason.severity,
        "action": reason.action,
        "since": since,
    }


class GpuHealthCollector:
    """Judges the last readings.

    Args:
        readings: what was read of all GPUs last. expected: GPUs that the node should have, 0 where nobody knows.
    """

    name = "gpu_health"
    metrics: Final[tuple[Metric, ...]] = (GPU_XID_ERRORS, GPU_XID_LAST_SEEN, GPU_HEALTH, GPU_HEALTH_REASON, NODE_HEALTH)

    def __init__(
        self,
        readings: Callable[[], tuple[Reading, ...]],
        counter: XidCounter,
        expected: Callable[[], int],
        log: Log,
        *,
        interval_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._readings = readings
        self._counter = counter
        self._expected = expected
        self._clock = clock
        self._unix_clock = unix_clock
        self._board = Board(counter, log)

    def collect(self) -> list[Family]:
        readings, expected = self._readings(), self._expected()
        self._board.look(readings, expected, self._clock(), self._unix_clock())
        xids = self._counter.families()
        if not readings and not expected and not any(family.points for family in xids):
            raise NoDataError("no GPU was read")
        return [*xids, *health_families(self._board.gpus, self._board.node)]

    def page(self, node_name: str) -> dict[str, Any]:
        """Return what /v1/health says; may be called from any thread."""
        return health_page(node_name, self._board.gpus, self._board.node, self._counter.all())
