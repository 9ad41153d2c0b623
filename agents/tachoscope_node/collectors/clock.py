"""How wrong the clock may be, as the kernel tells by adjtimex(2), which is only asked here and sets nothing."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tachoscope_core.metrics.host import CLOCK_ERROR, CLOCK_OFFSET, CLOCK_SYNCHRONISED
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import HOST_INTERVAL_SECONDS, NotSupportedError
from tachoscope_service.metrics.family import Family

_TIME_ERROR = 5
_STA_NANO = 0x2000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class KernelClock:
    """Raw answer of adjtimex(2).

    Attributes:
        state: what the call returned. offset: in microseconds, or nanoseconds where `status` has STA_NANO.
        max_error: in microseconds.
    """

    state: int
    status: int
    offset: int
    max_error: int


class _Timex(ctypes.Structure):
    """The kernel's struct timex up to what is read here; the rest is room. https://man7.org/linux/man-pages/man2/adjtimex.2.html."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def read_kernel_clock() -> KernelClock:
    """Ask the kernel; with modes = 0 it sets nothing and needs no privilege."""
    timex = _Timex()
    state = _libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"adjtimex: {os.strerror(code)}")
    return KernelClock(state, timex.status, timex.offset, timex.maxerror)


class ClockCollector:
    """Seconds of error and offset, and whether a time daemon holds the clock.

    Where none does, the error grows by 500 µs a second up to 16 s: it is what the kernel can vouch for, not what is.
    """

    name = "clock"
    metrics: Final[tuple[Metric, ...]] = (CLOCK_ERROR, CLOCK_OFFSET, CLOCK_SYNCHRONISED)

    def __init__(
        self, reader: Callable[[], KernelClock] = read_kernel_clock, *, interval_seconds: float = HOST_INTERVAL_SECONDS
    ) -> None:
        self.interval_seconds = interval_seconds
        self._reader = reader

    def collect(self) -> list[Family]:
        try:
            clock = self._reader()
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOSYS):
                raise
            raise NotSupportedError(f"not permitted in this container's sandbox: {error}") from error
        per_second = 1e9 if clock.status & _STA_NANO else 1e6
        return [
            Family(CLOCK_ERROR, [((), clock.max_error / 1e6)]),
            Family(CLOCK_OFFSET, [((), clock.offset / per_second)]),
            Family(CLOCK_SYNCHRONISED, [((), float(clock.state != _TIME_ERROR))]),
        ]
