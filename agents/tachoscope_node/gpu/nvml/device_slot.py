"""A place in the driver's list of GPUs: finds out which GPU is there, reads it, and says what is wrong with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from tachoscope_node.gpu.nvml.device_reader import Reader
from tachoscope_node.gpu.nvml.driver import LOST, Driver, address, code_of
from tachoscope_node.gpu.nvml.xid_events import Events
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_node.gpu.watchdog_task import Task

IDENTIFY_SECONDS = 15.0
NO_RETURN = "a call to the driver does not return"


class DeviceSlot:
    """One place. `task` is for the thread that talks to the driver, all else for the one that waits for it.

    Args:
        named: gives a GPU the index that its series have. clock: monotonic seconds.
    """

    def __init__(
        self, position: int, driver: Driver, events: Events | None, named: Callable[[Gpu], Gpu], clock: Callable[[], float]
    ) -> None:
        self.position = position
        self.task = Task(self._read)
        self.gpu: Gpu | None = None
        self.instances: tuple[Gpu, ...] = ()
        self._driver = driver
        self._events = events
        self._named = named
        self._clock = clock
        self._reader: Reader | None = None
        self._identify_due = float("-inf")

    def look_again(self) -> None:
        """Identify the GPU again at the next reading, since the driver's list changed."""
        self._identify_due = float("-inf")

    def fault(self) -> tuple[str, str] | None:
        """Return the fault, one of FAULTS, and the driver's message; None if the last reading succeeded."""
        if self.task.running:
            return "no_answer", NO_RETURN
        error = self.task.error
        if error is None:
            return None
        return ("lost" if code_of(error) == LOST else "driver_error"), f"{error}" or type(error).__name__

    def close(self) -> None:
        """Free what the driver keeps for it; not while the task runs."""
        reader, self._reader = self._reader, None
        if reader is not None:
            with contextlib.suppress(Exception):
                reader.close()

    def _read(self) -> list[Reading]:
        now = self._clock()
        try:
            if self._reader is None or now >= self._identify_due:
                self._identify(now)
            assert self._reader is not None
            readings = self._reader.read(now)
        except BaseException:
            self.close()  # whatever is here next is met with fresh eyes
            raise
        self.instances = self._reader.instances
        return readings

    def _identify(self, now: float) -> None:
        handle, gpu = self._driver.identify(self.position)
        gpu = self._named(gpu)
        if self._reader is None or not _same(self._reader, handle, gpu):
            self.close()
            self._reader = Reader(self._driver.nvml, handle, gpu)
            self.instances = ()
        self.gpu = gpu
        if self._events is not None:
            self._events.register(handle, gpu)
        self._identify_due = now + IDENTIFY_SECONDS


def _same(reader: Reader, handle: Any, gpu: Gpu) -> bool:
    return reader.gpu == gpu and address(reader.handle) == address(handle)
