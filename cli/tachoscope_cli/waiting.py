"""Waiting for a command as a shell does, with the signals that reach us meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

INTERRUPTED = 128 + signal.SIGINT
_LOOK_SECONDS = 0.3
_STOP_SECONDS = 3.0
_SENT_BY_KERNEL = 128
"""`si_code` of a signal that a terminal sends to all of its foreground group: the command has it as well."""


def wait(process: subprocess.Popen[bytes], while_running: Callable[[], None] | None, *, ours: bool = False) -> int:
    """Wait for the command; return its exit code as a shell gives it.

    A TERM is passed on. So is an interrupt that was sent to this process alone; one from the terminal the command has itself.

    Args:
        while_running: called about three times a second.
        ours: the command has a session of its own: an interrupt is for us, and ends it at once.
    """
    interrupted = False
    with _signals(process) as next_interrupt:
        while process.poll() is None:
            sent_by = next_interrupt(_LOOK_SECONDS)
            if sent_by is not None and ours:
                interrupted = True
                _stop(process)
            elif sent_by is not None and sent_by != _SENT_BY_KERNEL:
                process.send_signal(signal.SIGINT)
            if while_running is not None:
                while_running()
    if interrupted:
        return INTERRUPTED
    code = process.wait()
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _signals(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], int | None]]:
    """Yield what waits so many seconds for an interrupt or the command's end, and returns who sent the interrupt, if one came.

    Python's handlers are not told who sent a signal, so interrupts are held back and fetched.
    """
    caught: list[int] = []  # by a thread that does not hold them back
    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: caught.append(_SENT_BY_KERNEL)),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    fetched = {signal.SIGINT, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, fetched)

    def next_interrupt(seconds: float) -> int | None:
        if not caught:
            info = signal.sigtimedwait(fetched, seconds)
            return info.si_code if info is not None and info.si_signo == signal.SIGINT else None
        return caught.pop()

    try:
        yield next_interrupt
    finally:
        while signal.sigtimedwait(fetched, 0) is not None:
            pass  # what came with the command's end was about the command
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started, which may have sessions of their own."""
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
        os.close(descriptor)
    process.wait()


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found
