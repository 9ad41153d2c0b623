"""Stacks of the main thread while it runs, by signals: for where `unlocked_stacks` cannot be used.

A thread that looks at another one through `sys._current_frames` needs the lock, and gets it where the other gives it away: in calls
of native code, hardly ever in pure Python. So a timer of the kernel counts the CPU time of the main thread and sends SIGURG to it,
and Python calls the handler at the next instruction, which is after the native call that the signal fell into. SIGURG does
nothing in a process without a handler, and Go's runtime uses it in the same way. A thread that waits in a system call uses no CPU
time, so that no such call is interrupted; where a signal comes nevertheless, the call is restarted (SA_RESTART).
"""

from __future__ import annotations

import ctypes
import random
import signal
import sys
import threading
from collections import deque
from types import CodeType, FrameType
from typing import Any

from tachoscope import guard
from tachoscope.sampling.stacks import MOST_FRAMES, PhaseSource, Places, StackSample

SIGNAL = signal.SIGURG
_MOST_TAKEN = 64
_SIGEV_THREAD_ID = 4
_CLOCK_THREAD_CPUTIME_ID = 3
_NANOSECONDS = 1_000_000_000


class _SignalEvent(ctypes.Structure):
    """`struct sigevent` of Linux: 64 bytes, see timer_create(2)."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread_id", ctypes.c_int),
        ("padding", ctypes.c_char * (64 - ctypes.sizeof(ctypes.c_void_p) - 12)),
    ]


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`: interval and first time, each in seconds and nanoseconds."""

    _fields_ = [(name, ctypes.c_long) for name in ("interval", "interval_ns", "first", "first_ns")]


class SignalledStacks:
    """Takes a stack each `every_seconds` of the main thread's CPU time, from `start` to `stop`.

    Each is up to half of that earlier or later, so that none keeps pace with a step.
    """

    def __init__(self, watched: PhaseSource, every_seconds: float) -> None:
        self.on = False
        self._every_seconds = every_seconds
        self._taken: deque[tuple[int, bool, Places]] = deque(maxlen=_MOST_TAKEN)
        self._timer = ctypes.c_void_p()
        self._libc: Any = None
        self._random = random.Random()  # noqa: S311  # not the job's: its generator stays as it is
        self._skipped = False
        self._handler = _handler(watched, self._taken)

    def start(self) -> bool:
        """Start if the calling thread is the main one and nothing prevents it; return whether it started."""
        if threading.current_thread() is not threading.main_thread() or not sys.platform.startswith("linux"):
            return False
        try:
            if signal.getsignal(SIGNAL) != signal.SIG_DFL and not self._is_ours():  # ours may be that of the process that forked
                return False
            signal.signal(SIGNAL, self._handler)
            signal.siginterrupt(SIGNAL, False)
            self.on = self._create()
            if not self.on:
                signal.signal(SIGNAL, signal.SIG_DFL)
        except (OSError, ValueError, AttributeError):
            return False
        return self.on

    def drain(self) -> list[StackSample]:
        """Return the stacks taken since the last call. Thread-safe."""
        if not self.on:
            return []
        self._skip_dynamo()
        if not self._is_ours():  # the job has a use of its own for the signal
            self.stop()
            return []
        found = [StackSample(*self._taken.popleft()) for _ in range(len(self._taken))]
        if found:
            self._set(self._left() + self._random.uniform(-self._every_seconds, self._every_seconds) / 2)
        return found

    def stop(self) -> None:
        """Stop. The handler stays installed, since only the main thread may remove it."""
        if self.on:
            self.on = False
            self._libc.timer_delete(self._timer)

    def _is_ours(self) -> bool:
        return getattr(signal.getsignal(SIGNAL), "__code__", None) is self._handler.__code__

    def _create(self) -> bool:
        self._libc = _library()
        event = _SignalEvent(None, SIGNAL, _SIGEV_THREAD_ID, threading.get_native_id(), b"")
        created = self._libc.timer_create(_CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(self._timer)) == 0
        return created and self._set(self._random.uniform(0, self._every_seconds))

    def _set(self, first_seconds: float) -> bool:
        first = max(round(first_seconds * _NANOSECONDS), 1)
        every = round(self._every_seconds * _NANOSECONDS)
        spec = _TimerSpec(*divmod(every, _NANOSECONDS), *divmod(first, _NANOSECONDS))
        return bool(self._libc.timer_settime(self._timer, 0, ctypes.byref(spec), None) == 0)

    def _left(self) -> float:
        spec = _TimerSpec()
        self._libc.timer_gettime(self._timer, ctypes.byref(spec))
        return float(spec.first + spec.first_ns / _NANOSECONDS)

    def _skip_dynamo(self) -> None:
        """Exclude the handler from torch.compile: Python may call it within a compiled function."""
        frames = sys.modules.get("torch._dynamo.eval_frame")
        if frames is not None and not self._skipped:
            self._skipped = True
            skip = getattr(frames, "skip_code", None)
            if skip is not None:
                skip(self._handler.__code__)


def _handler(watched: PhaseSource, taken: deque[tuple[int, bool, Places]]) -> Any:
    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  # the signature of handlers
        # Calls no Python function: each costs, and torch.compile would look at it.
        try:
            places: list[tuple[CodeType, int]] = []
            while frame is not None and len(places) < MOST_FRAMES:
                places.append((frame.f_code, frame.f_lasti))
                frame = frame.f_back
            taken.append((watched.timeline.phase, watched.without_gradients, places))
        except Exception as error:  # never into the job
            if guard.is_of_the_job(error):
                raise

    return on_signal


def _library() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
