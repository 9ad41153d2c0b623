"""Dumps the stacks of this process shortly before `faulthandler.dump_traceback_later(exit=True)` ends it, which calls no hook.

That timer writes to the job's stderr, which is not read here. The dump goes into the file for what a signal ends, and is removed
if the timer is cancelled or set again. If the interpreter's lock is held until the end, nothing is dumped.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import threading
import time
from typing import IO, Any

from tachoscope import guard

_MARGIN_SECONDS, _MARGIN_SHARE = 0.5, 0.1
"""Before the timer, the smaller one: what a loaded machine takes to run a thread and write the dump."""


class ExitTimer:
    """Follows the timer of `faulthandler`. file: for dumps."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pid = os.getpid()
        self._due = self._timeout = 0.0
        self._has_dumped = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._set, self._cancel = faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later

    def install(self) -> None:
        """Follow both functions; what they do stays the same."""

        @functools.wraps(self._set)
        def dump_traceback_later(*arguments: Any, **named: Any) -> None:
            self._set(*arguments, **named)
            with guard.QUIETLY:
                timeout = arguments[0] if arguments else named["timeout"]
                self._follow(float(timeout), exits=bool(arguments[3] if len(arguments) > 3 else named.get("exit")))

        @functools.wraps(self._cancel)
        def cancel_dump_traceback_later() -> None:
            self._cancel()
            with guard.QUIETLY:
                self._follow(0.0, exits=False)

        faulthandler.dump_traceback_later = dump_traceback_later
        faulthandler.cancel_dump_traceback_later = cancel_dump_traceback_later

    def _follow(self, timeout: float, *, exits: bool) -> None:
        if os.getpid() != self._pid or (not exits and not self._due):
            return
        with self._changed:
            earlier = self._due if not self._has_dumped else 0.0
            self._timeout = timeout
            self._due = time.monotonic() + timeout - min(_MARGIN_SECONDS, _MARGIN_SHARE * timeout) if exits else 0.0
            if self._has_dumped:
                self._has_dumped = False
                os.ftruncate(self._file.fileno(), 0)
            if exits and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tachoscope-exit-timer", daemon=True)
                self._thread.start()
            elif self._due < earlier or not earlier:  # else the thread wakes up early enough; jobs may set the timer in each step
                self._changed.notify()

    def _run(self) -> None:
        with guard.QUIETLY, self._changed:
            while True:
                left = self._due - time.monotonic()
                if self._has_dumped or not self._due:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    self._dump()

    def _dump(self) -> None:
        import datetime  # takes longer to import than a short process may take

        self._has_dumped = True
        words = f"Timeout ({datetime.timedelta(seconds=self._timeout)})!\n"
        self._file.write(words.encode())
        faulthandler.dump_traceback(self._file, all_threads=True)
