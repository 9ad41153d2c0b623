"""The agent's log: lines on stderr, each subject at most once a minute with the number of those left out."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable

from tachoscope_core.redaction import redact

REPEAT_SECONDS = 60.0
_MAX_SUBJECTS = 1000


class Log:
    """Writes through a standard logger, secrets redacted; a line that a foreign spool or client causes cannot flood it."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._last: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()
        self._lock = threading.Lock()

    def info(self, text: str) -> None:
        """Write a line that is rare by nature."""
        self._logger.info(redact(text))

    def warning(self, subject: str | None, text: str) -> None:
        """Write a line, unless there was one of the same subject within the last minute; without a subject it is rare by nature."""
        if subject is None:
            self._logger.warning(redact(text))
            return
        now = self._clock()
        with self._lock:
            if now - self._last.get(subject, float("-inf")) < REPEAT_SECONDS:
                self._left_out[subject] += 1
                return
            if len(self._last) >= _MAX_SUBJECTS:
                self._last.clear()
                self._left_out.clear()
            self._last[subject] = now
            left_out = self._left_out.pop(subject, 0)
        self._logger.warning(redact(f"{text} ({left_out} more since the last such line)" if left_out else text))
