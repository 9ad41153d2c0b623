"""Tells of an exception with which the training thread is busy for long: on its way out, in a `finally` that waits for something.

Other ranks may give up before such a rank is gone, and torchrun then ends it without its exception ever being printed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from tachoscope.failures import own_report

LONG_SECONDS = 1.0


class HandledErrors:
    """Follows the exception that one thread handles."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] = (0, 0)
        self._since = 0.0
        self._told = False

    def look(self, thread_ident: int, steps: int) -> None:
        """Report the exception that a thread handles if it has done so for long, once.

        Args:
            steps: that the thread finished so far: one that trains within an `except` is not on its way out.
        """
        error = _handled_by(thread_ident)
        seen = (id(error), steps)
        if error is None or seen != self._seen:
            self._seen, self._since, self._told = seen, time.monotonic(), False
        elif not self._told and time.monotonic() - self._since >= LONG_SECONDS:
            self._told = True
            own_report.write(own_report.of_exception(error, "handled"), [])


def _handled_by(thread_ident: int) -> BaseException | None:
    found: Any = sys._current_exceptions().get(thread_ident)
    error = found[1] if isinstance(found, tuple) else found  # a tuple up to Python 3.11
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else None
