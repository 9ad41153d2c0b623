"""Waiting for a command as a shell does, with the signals that reach us meanwhile."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tachoscope_core.exit_codes import ExitCode

_LOOK_SECONDS = 0.3
_STOP_SECONDS = 3.0
_SENT_BY_KERNEL = 128
"""`si_code` of a signal that a terminal sends to all of its foreground group: the command has it as well."""


def wait(
    process: subprocess.Popen[bytes],
    while_running: Callable[[], None] | None,
    *,
    on_term: Callable[[], float] = lambda: 0.0,
    on_interrupt: Callable[[], None] = lambda: None,
    ours: bool = False,
) -> int:
    """Wait for the command; return its exit code as a shell gives it.

    A TERM is passed on, after the time that `on_term` gives; a second one at once. So is an interrupt that was sent to this process
    alone; one from the terminal the command has itself.

    Args:
        while_running: called about three times a second.
        on_term: called at the first TERM; returns how many seconds the command has to end by itself.
        on_interrupt: called at each interrupt that is not `ours`.
        ours: the command has a session of its own: an interrupt is for us, and ends it at once.
    """
    interrupted = False
    pass_on_at: float | None = None
    with _signals() as next_signal:
        while process.poll() is None:
            left = _LOOK_SECONDS if pass_on_at is None else min(_LOOK_SECONDS, max(pass_on_at - time.monotonic(), 0.0))
            came = next_signal(left)
            if came is not None and came.number == signal.SIGTERM:
                # A second one comes when the first did not help.
                pass_on_at = time.monotonic() + on_term() if pass_on_at is None else 0.0
            elif came is not None and ours:
                interrupted = True
                end_family(process)
            elif came is not None:
                on_interrupt()
                if came.code != _SENT_BY_KERNEL:
                    process.send_signal(signal.SIGINT)
            if pass_on_at is not None and time.monotonic() >= pass_on_at:
                process.terminate()
                pass_on_at = math.inf
            if while_running is not None:
                while_running()
    if interrupted:
        return ExitCode.INTERRUPTED
    code = process.wait()
    return code if code >= 0 else 128 - code


class _SignalReceived(NamedTuple):
    number: int
    code: int


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[float], _SignalReceived | None]]:
    """Yield what waits so many seconds for an interrupt, a TERM or the command's end, and returns the signal, if one came for us.

    Python's handlers are not told who sent a signal, and run in the midst of something else; so signals are held back and fetched.
    """
    caught: list[_SignalReceived] = []  # by a thread that does not hold them back
    ours = (signal.SIGINT, signal.SIGTERM)
    previous = {
        number: signal.signal(number, lambda number, _: caught.append(_SignalReceived(number, _SENT_BY_KERNEL))) for number in ours
    }
    fetched = {*ours, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, fetched)

    def next_signal(seconds: float) -> _SignalReceived | None:
        if not caught:
            info = signal.sigtimedwait(fetched, seconds)
            return _SignalReceived(info.si_signo, info.si_code) if info is not None and info.si_signo in ours else None
        return caught.pop(0)

    try:
        yield next_signal
    finally:
        while signal.sigtimedwait(fetched, 0) is not None:
            pass  # what came with the command's end was about the command
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_family(process: subprocess.Popen[bytes]) -> None:
    """End a command with all its descendants, also in other sessions, and those that are stopped."""
    family = []  # held by descriptors: a number may be another process's by the time it is used
    for pid in _descendants(process.pid):
        with contextlib.suppress(OSError):
            family.append(os.pidfd_open(pid))
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    process.kill()
    for descriptor in family:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    deadline = time.monotonic() + _STOP_SECONDS
    for descriptor in family:  # until it is gone its records are not complete
        select.select([descriptor], [], [], max(deadline - time.monotonic(), 0.0))
        os.close(descriptor)
    process.wait()


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found
