"""How old parameters were when an update computed from them was applied: counted here, written every second or so, never per call.

Any process of the job may say it, also a parameter server that computes no gradients: these records have a writer of their own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from tachoscope import guard
from tachoscope.process.lifetime import on_end_and_fork
from tachoscope.spool.outbox import Outbox
from tachoscope.spool.process_outbox import open_outbox
from tachoscope_core.records import records

WRITE_SECONDS = 1.0
MAX_VALUES = 256
"""Different values of staleness that one record can hold; what is larger than all of them is counted with the largest."""


class Updates:
    """Counts the updates of one process by their staleness. No method raises, but for what is not a number; any thread may call."""

    def __init__(self, open_outbox: Callable[[], Outbox | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._open = open_outbox
        self._clock = clock
        self._hooked = False
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal handler of the job may use it as well
        self._read = threading.local()
        self._counts: Counter[int] = Counter()
        self._bound: int | None = None
        self._outbox: Outbox | None = None
        self._written_at = float("-inf")

    def read(self, version: int) -> None:
        """This thread read the parameters as they were after `version` updates."""
        self._read.version = int(version)

    def applied(self, version: int, *, read: int | None = None, bound: int | None = None) -> None:
        """An update was applied to the parameters as they were after `version` updates.

        Args:
            read: the version that it was computed from; None: the one that this thread read last; never read: it is not counted.
            bound: the largest staleness that the job allows.
        """
        began = getattr(self._read, "version", None) if read is None else int(read)
        if began is None:
            return
        with self._lock:
            self._bound = self._bound if bound is None else int(bound)
            staleness = max(int(version) - began, 0)
            if staleness not in self._counts and len(self._counts) >= MAX_VALUES:
                staleness = max(self._counts)
            self._counts[staleness] += 1
            now = self._clock()
            due = now - self._written_at >= WRITE_SECONDS
            if due:
                self._written_at = now
                self._write()

    def close(self) -> None:
        """Write the counts and release the spool. A later call opens another writer."""
        with self._lock:
            self._write()
            if self._outbox is not None:
                self._outbox.close()
                self._outbox = None

    def _write(self) -> None:
        if not self._counts:
            return
        try:
            self._outbox = self._outbox or self._open()
            if self._outbox is not None:
                self._hook()
                self._outbox.write(records.UpdatesApplied, staleness=dict(self._counts), bound=self._bound)
        except Exception as error:  # never into the job
            if guard.is_of_the_job(error):
                raise
            guard.print_line(f"a record about updates is lost: {type(error).__name__}: {error}")
        self._counts.clear()

    def _hook(self) -> None:
        if self._hooked:
            return
        self._hooked = True
        on_end_and_fork(self.close, self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        if self._outbox is not None:
            self._outbox.close()  # the parent's segment: it is locked for as long as anybody has it open
        self._forget()


UPDATES = Updates(open_outbox)
"""Those of this process."""
