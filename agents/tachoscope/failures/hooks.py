"""Tells why this process ends, at the moment at which it is known: an exception that nobody catches, an exit with a code.

Nothing of the job changes: hooks that were there are called, `sys.exit` and `os._exit` do what they do, and what is raised in here
is swallowed. Of a raised `SystemExit` Python tells no hook; `sys.exit` is followed instead, which nearly all programs call.
"""

from __future__ import annotations

import atexit
import functools
import opcode
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tachoscope import guard
from tachoscope.failures import fault_file
from tachoscope.failures.last_lines import LastLines

_RANKS = ("RANK", "SLURM_PROCID")
"""The usual ones of `identity.place`, which takes longer to import than a short process may take."""
RANK_PROCESS = "_TACHOSCOPE_RANK_PROCESS"
"""Which process of a rank is the rank itself: what it starts inherits the rank's environment, but is not the rank."""
_MOST_THREAD_ERRORS = 32
"""Different ones: threads of a job may fail all the time without harm."""
_SPARE_DESCRIPTORS = 4
"""Kept for the report of a process that has opened all files that it may: importing and writing it open some."""
_LAUNCHER_ERRORS = "torch.distributed.elastic"
"""Exceptions of this package are what torchrun says of the ranks that it started: those say it themselves."""


class EndHooks:
    """Follows how this process ends.

    Args:
        directory: of the run; empty: there is none, and what a signal ends is not seen.
    """

    def __init__(self, directory: str) -> None:
        self._directory = os.path.abspath(directory) if directory else ""
        self._lines = LastLines()
        self._pid = os.getpid()
        self._end_is_told = False
        self._in_thread_hook: set[int] = set()
        self._thread_errors: set[tuple[str, str]] = set()
        self._spare: list[int] = []
        self._exit: dict[str, Any] = {}
        self._exit_frame: FrameType | None = None
        self._next_hook, self._next_thread_hook = sys.excepthook, threading.excepthook
        self._sys_exit, self._os_exit = sys.exit, os._exit

    def install(self) -> None:
        """Set the hooks, and open the file for what a signal ends; called once in a process."""
        sys.excepthook, threading.excepthook = self.on_exception, self.on_thread_exception
        sys.exit, os._exit = _in_place_of("sys", sys.exit, self.exit), _in_place_of("os", os._exit, self.exit_at_once)
        self._lines.follow(sys.stderr)
        atexit.register(self.at_end)
        if self._directory:
            fault_file.open_own(self._directory)
            self._spare = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(_SPARE_DESCRIPTORS)]

    def on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        """Report the exception that ends the main thread, and call the next hook, whatever happens in here."""
        try:
            with guard.QUIETLY:
                if threading.current_thread() is threading.main_thread():
                    if value is _uncaught():  # else the job prints an error with which it goes on
                        self._report_end(value)
                elif id(value) not in self._in_thread_hook:  # a hook for threads may call this one
                    self._report_thread(value)
        finally:
            self._next_hook(kind, value, trace)

    def on_thread_exception(self, args: threading.ExceptHookArgs) -> None:
        """Report the exception that ends another thread, and call the next hook."""
        value = id(args.exc_value)
        try:
            with guard.QUIETLY:
                self._in_thread_hook.add(value)
                if args.exc_value is not None:
                    self._report_thread(args.exc_value)
        finally:
            try:
                self._next_thread_hook(args)
            finally:
                self._in_thread_hook.discard(value)

    def exit(self, code: Any = None, /) -> Any:
        """`sys.exit`: note it until the process ends, since the exception that it raises may be caught."""
        with guard.QUIETLY:
            if os.getpid() == self._pid:
                if threading.current_thread() is threading.main_thread():
                    self._note_exit(code, sys._getframe(2))
                elif not _is_in_order(code):
                    from tachoscope.failures import own_report

                    self._write_thread(own_report.of_thread_exit(code, sys._getframe(2)))
        self._sys_exit(code)

    def _note_exit(self, code: Any, frame: FrameType) -> None:
        self._exit, self._exit_frame = {}, None
        if self._is_worth_telling(code):
            from tachoscope.failures import own_report

            self._exit = own_report.of_exit(code, frame, sys.exc_info()[1])
            self._exit |= {"time": time.time(), "monotonic_ns": time.monotonic_ns()}
            # One in order that is caught ends the process in order all the same: `@record` of torchelastic catches it.
            self._exit_frame = None if _is_in_order(code) else _outermost(frame)

    def exit_at_once(self, status: int) -> Any:
        """`os._exit`: report it now."""
        with guard.QUIETLY:
            if os.getpid() == self._pid:
                if self._is_worth_telling(status):
                    self._free_descriptors()
                    from tachoscope.failures import own_report

                    end = own_report.of_exit(status, sys._getframe(2), sys.exc_info()[1] or _uncaught())
                    self._write(end | own_report.of_main_thread())
                self._forget_file()
            elif self._directory and not _is_in_order(status):
                from tachoscope.failures import worker_exit

                worker_exit.leave(self._directory, sys._getframe(2))
        self._os_exit(status)

    def at_end(self) -> None:
        """Report what is left: an exit, or an exception that a hook of the job kept from this one."""
        with guard.QUIETLY:
            if os.getpid() != self._pid:
                return
            self._forget_file()
            uncaught = _uncaught()
            if uncaught is not None and not _is_interactive():
                self._report_end(uncaught)
            if self._exit and not self._end_is_told and not _returned(self._exit_frame):
                self._free_descriptors()
                self._write(self._exit)

    def _is_own(self, value: BaseException) -> bool:
        """Return whether an exception is a failure of this process."""
        of_launcher = str(type(value).__module__).startswith(_LAUNCHER_ERRORS)
        return os.getpid() == self._pid and not of_launcher and not isinstance(value, SystemExit)

    def _report_end(self, value: BaseException) -> None:
        if self._end_is_told or not self._is_own(value):
            return
        self._free_descriptors()
        from tachoscope.failures import own_report

        self._end_is_told = True
        self._write(own_report.of_exception(value, "exception"))

    def _report_thread(self, value: BaseException) -> None:
        if self._is_own(value):
            from tachoscope.failures import own_report

            self._write_thread(own_report.of_exception(value, "thread"))

    def _free_descriptors(self) -> None:
        """Close the spare ones: the process is about to end."""
        spare, self._spare = self._spare, []
        for descriptor in spare:
            os.close(descriptor)

    def _write_thread(self, fields: dict[str, Any]) -> None:
        """Write how a thread ended, once for each error."""
        error = fields["exception"], fields["location"]
        if error not in self._thread_errors and len(self._thread_errors) < _MOST_THREAD_ERRORS:
            self._thread_errors.add(error)
            self._write(fields)

    def _write(self, fields: dict[str, Any]) -> None:
        from tachoscope.failures import own_report

        own_report.write(fields, self._lines.last())

    @staticmethod
    def _is_worth_telling(code: Any) -> bool:
        """Return whether an exit says something: of a rank also one in order, which the others may not have expected."""
        return not _is_in_order(code) or any(os.environ.get(name) for name in _RANKS)

    def _forget_file(self) -> None:
        if self._directory:
            fault_file.remove_own(self._directory)


def _in_place_of(module: str, original: Callable[..., Any], method: Callable[..., Any]) -> Any:
    """Return a function that calls the method, and has the names of the original, by which it is pickled."""

    @functools.wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        return method(*arguments, **named)

    call.__module__ = module
    return call


def _is_in_order(code: Any) -> bool:
    """Return whether an exit code says that all is well; a code may be any object, and comparing it could run its code."""
    return code is None or (isinstance(code, int) and int(code) == 0)


def _uncaught() -> BaseException | None:
    """Return the exception that ends the program: Python keeps it before it calls a hook."""
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def _outermost(frame: FrameType) -> FrameType:
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def _returned(frame: FrameType | None) -> bool:
    """Return whether the frame of a program ended by itself: then an exit before was caught, and is not how it ended."""
    if frame is None or not 0 <= frame.f_lasti < len(frame.f_code.co_code):
        return False
    return opcode.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")


def _is_interactive() -> bool:
    """Return whether errors end a cell or a line that was typed, and not the process."""
    return hasattr(sys, "ps1") or "IPython" in sys.modules


def _is_helper() -> bool:
    """Return whether a process of the same rank started this one; if not, it is the rank, and marked as such."""
    name = next((name for name in _RANKS if os.environ.get(name)), "")
    rank = f"{name}={os.environ.get(name, '')}"
    marked, _, pid = os.environ.get(RANK_PROCESS, "").rpartition(":")
    if marked == rank and pid != str(os.getpid()):
        return True
    os.environ[RANK_PROCESS] = f"{rank}:{os.getpid()}"
    return False


_installed: list[EndHooks] = []


def install(directory: str) -> None:
    """Follow how this process ends, if it is a rank or the first Python process of the command. Never raises.

    Args:
        directory: of the run; empty: there is none.
    """
    with guard.QUIETLY:
        if not _installed and not _is_helper():
            _installed.append(EndHooks(directory))
            _installed[0].install()
