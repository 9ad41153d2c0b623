"""Records that the agent itself writes about jobs: they go into the spool like those of a process, and are shipped like them.

Being written through the spool they are in the store exactly once, also when the agent is killed: what its predecessor left behind
is shipped like any other directory.
"""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any

from tachoscope.supervisor.records import OutsideRecords
from tachoscope_core.records import records

IDLE_SECONDS = 60.0
"""A writer that wrote nothing for so long is closed, so that its segment can be shipped to its end and removed."""
MAX_OPEN = 64
"""Writers that are open at a time; the one that wrote least recently gives way. Each has a file open."""


class OwnRecords:
    """Writes records with rank `LAUNCHER_RANK`, one writer for each attempt of a job. No method raises; any thread may call them.

    Attributes:
        directory: of the spool, this agent's alone.
    """

    def __init__(self, root: Path, host: str) -> None:
        self.directory = root / f"agent-{uuid.uuid4()}"
        self._host = host
        self._lock = threading.Lock()
        self._writers: dict[tuple[str, int], OutsideRecords] = {}
        self._used_at: dict[tuple[str, int], float] = {}

    def write(self, job: str, kind: type[records.Record], *, attempt: int = 0, **fields: Any) -> None:
        """Write a record about a job; the envelope is added.

        Args:
            attempt: of the job, that the record is about.
            fields: of the record; `time` and `monotonic_ns` say when, where it was not now.
        """
        key = (job, attempt)
        with self._lock:
            if key not in self._writers:
                if len(self._writers) >= MAX_OPEN:
                    self._close(min(self._used_at, key=self._used_at.__getitem__))
                self._writers[key] = OutsideRecords(self.directory, job, attempt, host=self._host)
            self._writers[key].write(kind, **fields)
            self._used_at[key] = time.monotonic()

    def close_idle(self, *, idle_seconds: float = IDLE_SECONDS) -> None:
        """Release the segments of writers that wrote nothing for long; a later record begins with a writer of its own."""
        before = time.monotonic() - idle_seconds
        with self._lock:
            for key in [key for key, used_at in self._used_at.items() if used_at <= before]:
                self._close(key)

    def close(self) -> None:
        self.close_idle(idle_seconds=0.0)

    def _close(self, key: tuple[str, int]) -> None:
        self._writers.pop(key).close()
        del self._used_at[key]
