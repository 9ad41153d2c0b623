"""Xid errors from the kernel log: NVML reports only some of them, and none while it cannot be initialised.

What the driver prints: krcReportXid in
https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/src/nvidia/src/kernel/gpu/rc/kernel_rc.c
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.kernel_log import KernelLog, Record
from tachoscope_node.gpu.pci_address import pci_address
from tachoscope_node.gpu.xid.counter import Boot, Position, XidCounter
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family

LOOK_BACK_SECONDS = 600.0
"""An agent that never ran here takes errors of this age: they came while the node was coming up."""
UUID_WAIT_SECONDS = 60.0
"""How long an error waits for NVML to say which GPU has that PCI address; then it counts under the address."""
_MAX_WAITING = 256

_PCI = r"(?:PCI:)?((?:[0-9a-f]{1,8}:)?[0-9a-f]{1,4}:[0-9a-f]{1,2})(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \((?:{_PCI}|(GPU-[0-9a-f-]{{36}}))(?: [^)]{{0,40}})?\): (\d{{1,9}})(?!\d)[, ]*(.*)", re.IGNORECASE)
_GPU_AT = re.compile(rf"NVRM: GPU at {_PCI}: (GPU-[0-9a-f-]{{36}})", re.IGNORECASE)


class XidLine(NamedTuple):
    """An Xid error as the driver printed it. gpu: normal PCI address, or UUID."""

    gpu: str
    xid: int
    detail: str


def parse_xid(text: str) -> XidLine | None:
    """Return the error that a record's text reports, if it does."""
    found = _XID.match(text)
    if found is None:
        return None
    pci, uuid, code, detail = found.groups()
    return XidLine(pci_address(pci) if pci else uuid, int(code), detail)


class _Waiting(NamedTuple):
    sequence: int
    until: float
    line: XidLine
    unix_seconds: float


class KernelLogCollector:
    """Tells the counter of each Xid error in the kernel log; gives no metrics of its own.

    Args:
        uuid_of: the UUID of the GPU with a PCI address (`domain:bus:device`), empty if none has it, None while
            nobody knows.
    """

    name = "kernel_log"
    metrics: Final[tuple[Metric, ...]] = ()

    def __init__(
        self,
        path: str,
        counter: XidCounter,
        uuid_of: Callable[[str], str | None],
        boot: Boot,
        log: Log,
        *,
        interval_seconds: float = 1.0,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._kernel_log = KernelLog(path)
        self._counter = counter
        self._uuid_of = uuid_of
        self._boot = boot
        self._log = log
        self._unix_clock = unix_clock
        self._uuids: dict[str, str] = {}
        self._waiting: list[_Waiting] = []
        self._live = False
        before = counter.position()
        self._oldest = 0.0 if before is not None else unix_clock() - LOOK_BACK_SECONDS
        self._sequence = before.sequence if before is not None and before.boot == boot.id else -1

    def collect(self) -> list[Family]:
        now, overruns, sequence = self._unix_clock(), self._kernel_log.overruns, self._sequence
        for record in self._kernel_log.records():
            if record.sequence <= self._sequence:
                continue
            if self._live and self._kernel_log.overruns > overruns and record.sequence > self._sequence + 1:
                self._tell_of_loss(record.sequence - self._sequence - 1)
                overruns = self._kernel_log.overruns
            self._sequence = record.sequence
            self._add_record(record, now)
        self._live = self._live or self._kernel_log.drained
        self._settle(now)
        if self._sequence != sequence or self._waiting or self._counter.position() is None:
            counted = min([self._sequence, *(error.sequence - 1 for error in self._waiting)])
            self._counter.read_to(Position(self._boot.id, counted))
        return []

    def close(self) -> None:
        self._kernel_log.close()

    def _add_record(self, record: Record, now: float) -> None:
        if not record.text.startswith("NVRM: "):
            return
        if at := _GPU_AT.match(record.text):
            self._uuids[pci_address(at[1])] = at[2]
        # The kernel's stamps drift from the true time, by minutes in a month: they serve only for what was there before.
        then = now if self._live else min(self._boot.seconds + record.microseconds / 1e6, now)
        if then >= self._oldest and (line := parse_xid(record.text)) and len(self._waiting) < _MAX_WAITING:
            self._waiting.append(_Waiting(record.sequence, now + UUID_WAIT_SECONDS, line, then))

    def _settle(self, now: float) -> None:
        """Count the errors whose GPU is known by now, and those that have waited long enough."""
        waiting, self._waiting = self._waiting, []
        for error in waiting:
            address = error.line.gpu
            uuid: str | None = address
            if not address.startswith("GPU-"):
                found = self._uuid_of(address)
                uuid = found or self._uuids.get(address, found)
            if uuid is None and now < error.until:
                self._waiting.append(error)
            else:
                self._counter.count_error(
                    uuid or f"PCI:{address}", error.line.xid, error.unix_seconds, "kernel_log", error.line.detail
                )

    def _tell_of_loss(self, records: int) -> None:
        self._log.warning(
            "kernel log",
            f"the kernel dropped {records} records of its log before they were read; Xid errors in them are not counted",
        )
