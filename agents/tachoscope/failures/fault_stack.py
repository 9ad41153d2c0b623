"""Reads what `faulthandler` left of a process that a signal ended: the fault, and where its main thread was."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tachoscope.failures.describe import CodePlace, frames_wait_for_ranks, places_in, users_place
from tachoscope.failures.texts import short, short_lines
from tachoscope_core.storage import spool

_MOST_BYTES = 64 << 10
_LAST_LINES = 64
_FATAL = "Fatal Python error"
_TIMEOUT = re.compile(r"^Timeout \(\d[\d:. days,]{0,40}\)!$")
"""Of `faulthandler.dump_traceback_later`."""
_STACK = re.compile(
    r"^(?:(?P<current>Current thread)|Thread) 0x[^\n]*\n(?P<stack>(?:(?!Current thread 0x|Thread 0x)[^\n]*(?:\n|\Z))*)",
    re.MULTILINE,
)
"""The most recent call stands first in one. Not possessive (`*+`): Python 3.11.2 then captures nothing."""


class Fault(NamedTuple):
    """What the file of a process says: the line that names the fault, empty without one, and where the main thread was.

    Attributes:
        waits: there it was in a call of torch that waits for other ranks.
    """

    message: str = ""
    place: CodePlace = CodePlace()
    waits: bool = False

    @property
    def fields(self) -> dict[str, str | bool]:
        """Return it as fields of `ProcessExited`."""
        return {"message": self.message, "location": self.place.location, "function": self.place.function, "waits": self.waits}


def take(directory: Path, pid: int) -> Fault:
    """Read and remove the file of a process that is gone; empty: it has none, or nothing is in it."""
    path = directory / f"{spool.FAULT_PREFIX}{pid}"
    text = _tail(path)
    with contextlib.suppress(OSError):
        path.unlink()
    return parse(text)


def in_log(path: Path) -> Fault:
    """Return the fault that stands in a log of stderr (`torchrun --redirects`, `--tee`), else its last line as the message."""
    text = _tail(path)
    fault = parse(text)
    if fault.message or fault.place.location:
        return fault
    return Fault(next((line for line in reversed(short_lines(text.splitlines()[-_LAST_LINES:])) if line.strip()), ""))


def _tail(path: Path) -> str:
    """Return the end of a file; empty where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.pread(descriptor, _MOST_BYTES, max(os.fstat(descriptor).st_size - _MOST_BYTES, 0)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def take_all(directory: Path) -> Iterator[tuple[int, Fault]]:
    """Yield what is left of processes that are all gone, by process id."""
    for path in sorted(directory.glob(f"{spool.FAULT_PREFIX}*")):
        pid = path.name.removeprefix(spool.FAULT_PREFIX)
        if pid.isdigit():
            yield int(pid), take(directory, int(pid))


def parse(text: str) -> Fault:
    """Return what `faulthandler` wrote; of several dumps the last one counts.

    The place is that of the thread in which a fault struck, if it ran code of the user, else that of the main thread: what torch
    runs in threads of its own fails for what that one asked.
    """
    first = next((line for line in text.splitlines() if line.startswith(_FATAL) or _TIMEOUT.match(line)), "")
    stacks = [(found["current"] is not None, list(reversed(places_in(found["stack"])))) for found in _STACK.finditer(f"{text}\n")]
    struck = [users_place(stack) for is_current, stack in stacks if is_current and first.startswith(_FATAL)]
    main = [stack for _, stack in stacks if stack and stack[0][2] == "<module>"]
    of_main = main[-1] if main else stacks[-1][1] if stacks else []
    if struck and struck[-1].location:
        return Fault(short(first), struck[-1])
    return Fault(short(first), users_place(of_main), frames_wait_for_ranks(of_main))
