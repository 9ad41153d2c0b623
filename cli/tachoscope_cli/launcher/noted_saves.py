"""Notes the newest saves of a supervised attempt in the store at once: a node that is lost takes its spool with it.

Without them the next attempt would continue from what an agent had shipped, or, without an agent, from before the lost attempt.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from tachoscope import guard
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.submitted_jobs import NotedSaves, TrainingJobs
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

ATTEMPT_VARIABLE = "TACHOSCOPE_TRAINING_ATTEMPT"
"""Environment variable with the number of the supervised attempt; unset: the job is not supervised."""
MOST_RANKS, MOST_LINES, MOST_BYTES = 256, 64, 512 << 10
"""Of a node: ranks whose start is noted, and records of saves, the newest."""


def from_environment(store: Store, job: str, host: str, environ: Mapping[str, str]) -> SavesNoter | None:
    """Return what notes the saves of a supervised attempt; None: it is not supervised."""
    number = environ.get(ATTEMPT_VARIABLE, "")
    if not number.isdecimal():
        return None
    return SavesNoter(lambda noted: TrainingJobs(store).note_saves(job, int(number), host, noted))


class SavesNoter:
    """Takes records, and writes the newest of saves in a thread of its own: the loop of the run does not wait for a slow store.

    Args:
        write: into the store.
    """

    def __init__(self, write: Callable[[NotedSaves], None]) -> None:
        self._write = write
        self._starts: dict[int, bytes] = {}
        self._saves: deque[bytes] = deque(maxlen=MOST_LINES)
        self._lock = threading.Lock()
        self._changed = self._writes = False
        self._said = False

    def add_record(self, record: records.AnyRecord) -> None:
        """Take a record of any kind."""
        if isinstance(record, records.JobStarted) and record.rank >= 0 and len(self._starts) < MOST_RANKS:
            plain = msgspec.structs.replace(record, lineage={}, parents=[], layout={})
            self._starts[record.rank] = records.encode(plain)
        elif isinstance(record, records.CheckpointSaved | records.CheckpointManifest) and record.reference:
            self._take(records.encode(record))

    def _take(self, line: bytes) -> None:
        with self._lock:
            self._saves.append(line)
            while self._saves and sum(map(len, self._saves)) > MOST_BYTES:
                self._saves.popleft()
            self._changed = True
            if self._writes:
                return
            self._writes = True
        threading.Thread(target=self._run, name="tachoscope-saves", daemon=True).start()

    def _run(self) -> None:
        while (noted := self._next()) is not None:
            try:
                self._write(noted)
            except (TachoscopeError, OSError) as error:
                if not self._said:
                    guard.print_line(f"saves are not noted, so a lost node may cost more than one interval: {error}")
                self._said = True

    def _next(self) -> NotedSaves | None:
        with self._lock:
            if not self._changed:
                self._writes = False
                return None
            self._changed = False
            return NotedSaves(lines=tuple(line.decode() for line in (*self._starts.values(), *self._saves)))
