"""Stacks of the Python threads of another process, read from its memory: it need not run, nor give away the interpreter's lock.

A process under the probe says in its `JobStarted` where its threads are (a locator). Who may trace it (root, its own user, with
Yama's `ptrace_scope` 1 only an ancestor such as `tachoscope run`) reads them with that. Nothing of the process is changed.
"""

from __future__ import annotations

from types import CodeType

from tachoscope.sampling.stacks import lines_of
from tachoscope.sampling.unlocked_stacks import MODULE, stand_in, why_not
from tachoscope_core.native import native

UNREADABLE = "?"
"""A frame whose names could not be read."""


def own_locator() -> str:
    """Return where another process finds the threads of this one, for `stacks_of`; empty where this interpreter cannot be read."""
    found = native(MODULE)
    if found.module is None or why_not():
        return ""
    located: bytes = found.module.locator(CodeType)
    return located.hex()


def stacks_of(pid: int, locator: str) -> list[tuple[int, list[str]]]:
    """Return each Python thread of a process: its id, and its frames as `path:line function`, the innermost first.

    The thread that wrote the locator stands first. A thread in no Python code has no frames.

    Args:
        locator: of the process, or of the one that forked it.

    Raises:
        OSError: the process may not be read, or is gone.
        ValueError: the locator is none of this version, or the native module is missing.
    """
    found = native(MODULE)
    if found.module is None:
        raise ValueError(found.reason)
    threads = found.module.stacks_of(pid, bytes.fromhex(locator))
    return [(tid, [_line_of(frame) for frame in frames]) for tid, frames in threads]


def _line_of(frame: tuple[tuple[int, str, str, int, bytes], int] | None) -> str:
    if frame is None:
        return UNREADABLE
    (_, name, path, first, table), byte = frame
    try:
        line = lines_of([(stand_in(name, path, first, table), byte)])[0][1]
    except (ValueError, IndexError, TypeError):  # foreign memory: a table that is none
        line = first
    return f"{path}:{line} {name}"
