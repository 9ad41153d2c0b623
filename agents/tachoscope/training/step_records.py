"""Follows the steps and queues a record of each; where there is a device, when that has done the step and its seconds are known."""

from __future__ import annotations

import sys

from tachoscope.spool.outbox import Outbox
from tachoscope.timing.device_clock import DeviceClock
from tachoscope.timing.finished_step import FinishedStep

FIRST_STEPS = 100
SLOW_STEP_NS = 100_000_000
"""The first steps, and any step this long, are written at once; others within a tenth of a second, by the sampler's thread."""


class StepRecords:
    """Queues the steps of one process.

    Attributes:
        device: gives the seconds of the device; None: there is none.
        written_elsewhere: another thread writes what is queued.
    """

    __slots__ = ("_outbox", "device", "written_elsewhere")

    def __init__(self, outbox: Outbox) -> None:
        self.device: DeviceClock[FinishedStep] | None = None
        self.written_elsewhere = False
        self._outbox = outbox

    def time_device(self) -> None:
        """Time what the steps do on a device, if the process uses one."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            cuda = torch.cuda
            self.device = DeviceClock(lambda: cuda.Event(enable_timing=True), cuda.current_stream, cuda.is_current_stream_capturing)

    def step_ended(self, step: FinishedStep) -> None:
        """Queue a step, and write it at once if the sampler's thread would write it too late."""
        if self.device is None:
            self._outbox.put(step, {})
        else:
            self.device.finish(step)
            self.queue_ready()
        if step.number <= FIRST_STEPS or step.wall_total >= SLOW_STEP_NS or not self.written_elsewhere:
            self._outbox.flush(wait=False)

    def queue_ready(self, *, everything: bool = False) -> None:
        """Queue the steps that the device has done, or all."""
        if self.device is not None:
            for step, seconds in self.device.ready(everything=everything):
                self._outbox.put(step, seconds)
