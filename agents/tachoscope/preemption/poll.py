"""Whether somebody said that this process will be ended: the launcher or the node agent leaves word in the run's spool directory.

No signal handler is installed: Python's would keep a rank that is blocked in a collective from dying of the signal, since the
handler runs only when the interpreter goes on.
"""

from __future__ import annotations

import contextlib
import os
import time

from tachoscope.process.identity import RUN_DIR
from tachoscope_core.storage.spool import ASKS, NOTICE

LOOK_SECONDS = 0.5


class NoticePoll:
    """Looks for the notice, at most twice a second for a job that asks at each step."""

    __slots__ = ("_ask_at", "_asked", "_directory", "_given")

    def __init__(self) -> None:
        self._directory = os.environ.get(RUN_DIR, "")
        self._ask_at = 0.0 if self._directory else float("inf")
        self._asked = False
        self._given = False

    def ask_for_job(self) -> bool:
        """Return whether there is a notice. The first call marks the job as one that acts on notices."""
        if time.monotonic() < self._ask_at:
            return self._given
        if not self._asked:
            self._asked = True
            with contextlib.suppress(OSError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(os.path.join(self._directory, ASKS), flags, 0o600))
        self._ask_at = time.monotonic() + LOOK_SECONDS
        return self.poll()

    def poll(self) -> bool:
        """Return whether there is or was a notice."""
        if self._directory and not self._given:
            self._given = os.path.exists(os.path.join(self._directory, NOTICE))
        return self._given


NOTICES = NoticePoll()
