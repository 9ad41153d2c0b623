"""Writes records of who watches a job from outside, which is not a rank of it: the launcher or the node agent."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from tachoscope.spool.writer import SpoolWriter
from tachoscope_core.records import records


class OutsideRecords:
    """One writer's records about one job. No method raises for a spool that cannot be written."""

    def __init__(self, directory: Path, job: str, attempt: int, *, host: str = "") -> None:
        self.writer = str(uuid.uuid4())
        self._spool = SpoolWriter(directory, self.writer)
        self._identity = {"job": job, "attempt": attempt, "host": host or os.uname().nodename}
        self._seq = 0

    def write(self, kind: type[records.Record], **fields: Any) -> records.Record:
        """Write a record of `kind` and return it; the envelope is added, but `time` and `monotonic_ns` where it was not now."""
        envelope: dict[str, Any] = {
            **self._identity,
            "writer": self.writer,
            "seq": self._seq,
            "rank": records.LAUNCHER_RANK,
            "local_rank": records.LAUNCHER_RANK,
            "time": time.time(),
            "monotonic_ns": time.monotonic_ns(),
        }
        self._seq += 1
        record = kind(**envelope | fields)
        self._spool.append(records.encode(record))
        return record

    def close(self) -> None:
        """Release the segment; it may be shipped now."""
        self._spool.close()
