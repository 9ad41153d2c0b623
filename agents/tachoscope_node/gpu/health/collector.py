"""The health of the node's GPUs as a collector: metrics, and the page /v1/health."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tachoscope_core.metrics.gpu import (
    GPU_HEALTH,
    GPU_HEALTH_REASON,
    GPU_HEALTH_STATES,
    GPU_XID_ERRORS,
    GPU_XID_LAST_SEEN,
    NODE_HEALTH,
)
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.gpu.health.rules import HealthVerdict, Reason
from tachoscope_node.gpu.health.verdicts import Board, GpuHealth
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.xid.counter import XidCounter, XidError
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family

LAST_XIDS = 32
"""Xid errors that the page shows, the last ones."""


def health_families(gpus: Sequence[GpuHealth], node: HealthVerdict) -> list[Family]:
    """Return the verdicts as metrics: 1 for the state that holds, 0 for all others."""
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
            ]
            + [(("", "", reason.what, reason.action), 1.0) for reason in node.reasons if reason.what == "gpus_missing"],
        ),
        Family(NODE_HEALTH, [((state,), float(node.state == state)) for state in GPU_HEALTH_STATES]),
    ]


def health_page(node_name: str, board: Board, xids: Sequence[XidError], at: float | None) -> dict[str, Any]:
    """Return what /v1/health says, for people and programs: times in Unix seconds. at: when it was looked."""
    gpus, node = board.gpus, board.node
    return {
        "node": node_name,
        "time": at,
        "state": node.state,
        "reasons": [_reason(reason, board.node_since.get(reason.what), held=False) for reason in node.reasons],
        "gpus": [
            {
                "gpu": each.gpu.index,
                "uuid": each.gpu.uuid,
                "model": each.gpu.model,
                "pci_bus_id": each.gpu.pci_bus_id,
                "state": each.verdict.state,
                "reasons": [
                    _reason(reason, each.since.get(reason.what), held=reason.what in each.held) for reason in each.verdict.reasons
                ],
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
                "reset_since": seen.reset_since,
                "detail": seen.detail,
            }
            for seen in xids[:LAST_XIDS]
        ],
    }


def _reason(reason: Reason, since: float | None, *, held: bool) -> dict[str, Any]:
    return {
        "reason": reason.what,
        "text": reason.text,
        "value": reason.value,
        "comparison": reason.comparison,
        "threshold": reason.threshold,
        "severity": reason.severity,
        "action": reason.action,
        "since": since,
        "held": held,
    }


class GpuHealthCollector:
    """Judges the last readings.

    Args:
        readings: what was read of all GPUs last. expected: GPUs that the node should have, 0 where nobody knows.
        driver: says how the driver is, one of DRIVERS. start_seconds: see `Board`.
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
        driver: Callable[[], str] = lambda: "works",
        start_seconds: float | None = None,
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
        self._driver = driver
        self._log = log
        self._board = Board(counter, log, start_seconds=start_seconds)
        self._looked_at: float | None = None
        self._found = ""

    def collect(self) -> list[Family]:
        readings, expected = self._readings(), self._expected()
        now = self._unix_clock()
        self._board.update(readings, expected, self._clock(), now, driver=self._driver())
        self._looked_at = now
        self._tell_of_find(readings)
        xids = self._counter.families()
        if not readings and not expected and not any(family.points for family in xids):
            raise NoDataError
        return [*xids, *health_families(self._board.gpus, self._board.node)]

    def _tell_of_find(self, readings: Sequence[Reading]) -> None:
        """Log the GPUs once, and again when the driver changes."""
        gpus = [reading.gpu for reading in readings if reading.up and not reading.gpu.mig]
        version = gpus[0].driver_version if gpus else ""
        if gpus and (not self._found or version not in ("", self._found)):
            models = ", ".join(dict.fromkeys(gpu.model for gpu in gpus))
            self._log.info(f"{len(gpus)} GPUs found ({models}), driver {version or 'version unknown'}")
            self._found = version or "?"

    def page(self, node_name: str) -> dict[str, Any]:
        """Return the content of /v1/health. Thread-safe."""
        return health_page(node_name, self._board, self._counter.all(), self._looked_at)
