"""The line at which a loader worker ends itself by `os._exit`: torch tells the rank that it ended, and not where."""

from __future__ import annotations

import re
from types import FrameType

from tachoscope.failures.describe import CodePlace, place_of_line
from tachoscope.failures.fault_file import leave_worker_exit, take_worker_exit
from tachoscope.sampling.stacks import chain_of, user_line

_WORKER_LOOP = "_worker_loop"
_EXITED = re.compile(r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]{1,400})\) exited unexpectedly")


def leave(directory: str, frame: FrameType) -> None:
    """Write the user's line on a stack, if it is one of a loader worker; what multiprocessing ends has no such line."""
    chain = chain_of(frame)
    loop = next((place for place, (code, _) in enumerate(chain) if code.co_name == _WORKER_LOOP), 0)
    line = user_line(chain[:loop])  # below it is the stack of the rank that forked the worker
    if line:
        leave_worker_exit(directory, line)


def take(directory: str, message: str) -> CodePlace:
    """Return the line that the workers left of which a message says that they exited; empty: none."""
    found = _EXITED.search(message)
    pids = found["pids"].replace(",", " ").split() if found else []
    return place_of_line(next((text for pid in pids if (text := take_worker_exit(directory, int(pid)))), ""))
