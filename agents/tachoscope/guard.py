"""What separates a fault of the probe from an exception of the job: the first is swallowed and said, the second never is."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

_OWN_FILES = os.path.dirname(__file__) + os.sep
_USED = frozenset({"builtins", "tachoscope", "tachoscope_core", "msgspec", "torch", "numpy", *sys.stdlib_module_names})
"""Packages whose exceptions the probe's own code can cause."""
_MOST_HANDLER_ARGUMENTS = 4


def print_line(text: str) -> None:
    """Write one line on stderr, which a job may have closed."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"tachoscope: {text}\n")


def is_of_the_job(error: BaseException) -> bool:
    """Return whether an exception that came out of the probe's code was raised by the job, which must get it.

    That is what a signal handler raised that ran at this moment, such as the one by which a `DataLoader` reports a dead worker, and
    an exception of a class that nothing here raises, which another thread raised in this one (`PyThreadState_SetAsyncExc`).
    """
    if not isinstance(error, Exception):
        return True
    innermost: FrameType | None = None
    handlers = _handlers()
    trace = error.__traceback__
    while trace is not None:
        innermost = trace.tb_frame
        if not innermost.f_code.co_filename.startswith(_OWN_FILES) and (innermost.f_code in handlers or _is_handler(innermost)):
            return True
        trace = trace.tb_next
    own = innermost is not None and innermost.f_code.co_filename.startswith(_OWN_FILES)
    return own and type(error).__module__.partition(".")[0] not in _USED


def _handlers() -> set[CodeType]:
    found = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    return {code for code in found if code is not None}


def _is_handler(frame: FrameType) -> bool:
    """Return whether a frame is that of a signal handler: it was given the frame that it interrupted, which stands below it."""
    names = frame.f_code.co_varnames[:_MOST_HANDLER_ARGUMENTS]
    given: list[Any] = [frame.f_locals.get(name) for name in names]
    given += [one for value in given if isinstance(value, tuple) for one in value]
    return frame.f_back is not None and any(value is frame.f_back for value in given)


class _Quietly:
    """A context for a public call: what is raised in it is one line on stderr, unless it is the job's."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or is_of_the_job(error):
            return False
        print_line(f"not recorded, a fault of the probe: {type(error).__name__}: {error}")
        return True


QUIETLY = _Quietly()
