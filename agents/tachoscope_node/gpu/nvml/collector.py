"""The collector `nvml`: asks the driver for all GPUs, one after another, and does not wait for one that hangs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.workers import Workers
from tachoscope_node.gpu.inventory import Inventory
from tachoscope_node.gpu.metrics import METRICS, families
from tachoscope_node.gpu.nvml import driver as nvml
from tachoscope_node.gpu.nvml.device_slot import NO_RETURN, DeviceSlot
from tachoscope_node.gpu.nvml.xid_events import Events, Xid
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_node.gpu.watchdog_task import Task
from tachoscope_service.metrics.family import Family

ASK_SECONDS = 1.2
"""For which a tick waits for all GPUs; an eighth of it for one. With START_SECONDS within the 2 s of the collectors' frame."""
START_SECONDS = 0.5
STARTING_SECONDS = 30.0
"""For which a start may last: without persistence mode the driver wakes all GPUs first."""
RETRY_SECONDS = 15.0
"""Between two attempts to start a driver that does not work."""

OnXid = Callable[[str, str, int, float], None]
"""Gets UUID and PCI bus id of the GPU, the code and the Unix time."""


class GpuCollector:
    """Reads all GPUs of the node.

    Args:
        state: file that remembers the GPUs over a restart; None: nothing does. expected: GPUs that the node should have; 0: the
            most that were ever seen. required: a node without a driver is a failure, not just without GPUs.
        on_xid: called for each Xid error, from another thread. log: gets a sentence when a GPU's or the driver's condition changes.
        load: gives nvidia-ml-py's module. clock, unix_clock: monotonic and Unix seconds.
    """

    name = "nvml"
    metrics: tuple[Metric, ...] = METRICS

    def __init__(
        self,
        *,
        state: Path | None = None,
        expected: int = 0,
        interval_seconds: float = 1.0,
        required: bool = False,
        on_xid: OnXid = lambda *_: None,
        log: Callable[[str], None] = lambda _: None,
        load: Callable[[], Any] = nvml.load,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._known = Inventory(state, expected)
        self._required = required
        self._on_xid = on_xid
        self._log = log
        self._load = load
        self._clock = clock
        self._unix_clock = unix_clock
        self._workers = Workers()
        self._alone = threading.Lock()
        self._start = Task(self._start_driver)
        self._look = Task(self._look_at_driver)
        self._started = self._start_due = float("-inf")
        self._start_error: BaseException | None = None
        self._driver: nvml.Driver | None = None
        self._events: Events | None = None
        self._xids: deque[Xid] = deque()
        self._slots: list[DeviceSlot] = []
        self._readings: tuple[Reading, ...] = ()
        self._told: dict[str, str] = {}

    def readings(self) -> tuple[Reading, ...]:
        """Return the last readings of all GPUs, also of those that are down. Thread-safe."""
        return self._readings

    def expected(self) -> int:
        """Return the expected number of GPUs. Thread-safe."""
        return max(self._known.expected, int(self._required))

    def driver(self) -> str:
        """Return the state of the driver, one of DRIVERS. Thread-safe."""
        if self._driver is not None:
            return "works"
        error = self._start_error
        if error is None or isinstance(error, NoDataError):
            return "starting"
        return "absent" if isinstance(error, NotSupportedError) else "error"

    def collect(self) -> list[Family]:
        """Ask all GPUs. Returns within 1.7 seconds, whatever the driver does.

        Raises:
            NoDataError: the driver is starting. PartialError: it does not work, though GPUs are known or expected. Both report
                those as down.
            NotSupportedError: there is no driver. Whatever else: it does not work.
        """
        if not self._alone.acquire(blocking=False):
            raise RuntimeError("the previous reading has not finished")
        try:
            driver = self._open()
            self._readings = tuple(self._read() if driver is not None else self._without_driver())
            self._log_changes()
            if driver is None:
                self._raise()
            return families(self._readings, self.expected())
        finally:
            self._alone.release()

    def close(self) -> None:
        """Release the driver, unless one of its calls hangs."""
        if not self._hanging():
            self._workers.run([self._stop_driver], ASK_SECONDS)
        self._workers.close()

    # --- the driver -------------------------------------------------------------------------------------------------------

    def _open(self) -> nvml.Driver | None:
        """Return the driver, started; None if it does not work, for the reason in `_start_error`."""
        now = self._clock()
        if self._driver is None and not self._start.running and now >= self._start_due:
            self._started, self._start_due = now, now + RETRY_SECONDS
            self._start.begin()
            self._workers.run([self._start], START_SECONDS)
        if not self._start.running:
            self._start_error = self._start.error
        elif now - self._started < STARTING_SECONDS:
            self._start_error = NoDataError("the driver is starting: nvmlInit has not returned yet")
        else:
            self._start_error = TimeoutError("nvmlInit does not return; it is not called again until it does")
        return self._driver

    def _start_driver(self) -> None:
        self._stop_driver()
        module = self._load()
        driver = nvml.start(module)
        try:
            self._events = Events(module)
        except module.NVMLError:  # an old driver: Xid errors then come from the kernel log alone
            self._events = None
        self._slots = [self._slot(position, driver) for position in range(driver.count())]
        self._driver = driver

    def _stop_driver(self) -> None:
        driver, events = self._driver, self._events
        self._driver = self._events = None
        for slot in self._slots:
            slot.close()
        self._slots = []
        for stop in (events.close if events else None, driver.stop if driver else None):
            with contextlib.suppress(Exception):  # a driver that was taken away may refuse even this
                if stop is not None:
                    stop()

    def _slot(self, position: int, driver: nvml.Driver) -> DeviceSlot:
        return DeviceSlot(position, driver, self._events, self._known.with_known_index, self._clock)

    def _look_at_driver(self) -> int:
        """Collect new Xid errors, and return the number of GPUs that the driver lists."""
        assert self._driver is not None
        if self._events is not None:
            self._xids.extend(self._events.drain())
        return self._driver.count()

    def _hanging(self) -> bool:
        return self._start.running or self._look.running or any(slot.task.running for slot in self._slots)

    # --- one reading ------------------------------------------------------------------------------------------------------

    def _read(self) -> list[Reading]:
        every: list[Task[Any]] = [*(slot.task for slot in self._slots), self._look]
        tasks = [task for task in every if not task.running]
        for task in tasks:
            task.begin()
        not_begun = self._workers.run(tasks, ASK_SECONDS)
        for task in tasks:
            if task in not_begun:  # and never will be
                task.running, task.error = False, TimeoutError("not read: the driver takes too long for the other GPUs")
        readings = self._of_slots(set(tasks))
        self._remember(reading.gpu for reading in readings if reading.up and not reading.gpu.mig)
        missing = self._known.missing(reading.gpu for reading in readings)
        readings += [Reading(gpu, up=False, fault="lost", detail="the driver no longer lists it") for gpu in missing]
        self._take_look()
        self._pass_on_xids()
        return sorted(readings, key=lambda reading: reading.gpu.index)

    def _without_driver(self) -> list[Reading]:
        """Return the known GPUs as down."""
        fault = "no_answer" if self._start.running else "driver_error"
        return [Reading(gpu, up=False, fault=fault, detail=str(self._start_error)) for gpu in self._known.missing(())]

    def _raise(self) -> NoReturn:
        """Raise the error of the driver; without known or expected GPUs there may be none."""
        error = self._start_error or RuntimeError("the driver has not been started yet")
        if not self._readings and not self.expected():
            raise error
        found = families(self._readings, self.expected())
        if isinstance(error, NoDataError):
            raise NoDataError(str(error), found)
        absent = isinstance(error, NotSupportedError)
        wanted = "gpu.enabled is on, but " if self._required else f"{self.expected()} GPUs are expected, but "
        raise PartialError(f"{wanted if absent else ''}{error}", found) from error

    def _of_slots(self, asked: set[Task[Any]]) -> list[Reading]:
        """Return the readings made now; the time of late answers is unknown."""
        readings: list[Reading] = []
        present: set[str] = set()
        for slot in self._slots:
            fault = slot.fault() if slot.task in asked else ("no_answer", NO_RETURN)
            answered = slot.task.answer if fault is None else None
            gpu = answered[0].gpu if answered else slot.gpu or self._known.at(slot.position)
            if gpu is None or gpu.uuid in present:
                if answered:  # twice in the list while it changes
                    continue
                gpu = Gpu(index=slot.position, uuid="")
            present.add(gpu.uuid)
            if answered:
                readings += answered
            else:
                kind, detail = fault or ("no_answer", NO_RETURN)
                readings += [Reading(down, up=False, fault=kind, detail=detail) for down in (gpu, *slot.instances)]
        return readings

    def _take_look(self) -> None:
        """Update the list of GPUs, and restart the driver if it stopped."""
        tasks: list[Task[Any]] = [self._look, *(slot.task for slot in self._slots)]
        errors = [task.error for task in tasks if not task.running and task.error]
        if any(nvml.code_of(error) in nvml.STOPPED for error in errors) and not self._hanging():
            self._workers.run([self._stop_driver], START_SECONDS)
            self._start_due = float("-inf")
            return
        if self._look.answer is None or self._driver is None:
            return
        if self._look.answer != len(self._slots):
            self._resize(self._look.answer, self._driver)

    def _pass_on_xids(self) -> None:
        now = self._unix_clock()
        while self._xids:
            event = self._xids.popleft()
            self._on_xid(event.gpu.uuid, event.gpu.pci_bus_id, event.xid, now)

    def _resize(self, count: int, driver: nvml.Driver) -> None:
        for slot in self._slots:
            slot.look_again()
        while len(self._slots) > count and not self._slots[-1].task.running:
            self._workers.run([self._slots.pop().close], START_SECONDS)
        self._slots += [self._slot(position, driver) for position in range(len(self._slots), count)]

    def _remember(self, gpus: Iterable[Gpu]) -> None:
        try:
            self._known.add_seen(gpus)
        except TachoscopeError as error:
            self._log(str(error))

    def _log_changes(self) -> None:
        """Log GPUs whose condition changed, one line per kind of fault."""
        down = {
            f"GPU {reading.gpu.index} ({reading.gpu.uuid or 'not identified'})": (reading.fault, reading.detail)
            for reading in self._readings
            if not reading.gpu.mig and not reading.up
        }
        if self._driver is None and down:  # one line for all of them
            (fault, _), *_ = down.values()
            down = {"the NVIDIA driver": (fault, f"{self._start_error}; {len(down)} GPUs are down")}
        for subject, (fault, detail) in down.items():
            if self._told.get(subject) != fault:
                self._log(f"{subject}: {fault}: {detail}")
        for subject in self._told.keys() - down.keys():
            self._log(f"{subject}: answers again")
        self._told = {subject: fault for subject, (fault, _) in down.items()}
