"""Puts shards of the data set on the quarantine list of their job, from what its processes record of reading them.

A shard goes on the list when it failed on two ranks, or in two attempts of the job: the same rank failing again in the same attempt
says nothing new. Two things speak for the shard and against what it is read from: an error of a connection, and many shards that
fail while fewer are read. A process that dies while it reads records no failure, so a healthy shard is not blamed for that.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.store import Store

NEEDED = 2
"""Ranks or attempts that a shard fails on before it goes on the list."""
MANY = 4
"""So many shards that fail, while fewer are read, say something about their storage, or about the code that reads them."""
MAX_FAILED_SHARDS = 10_000
MAX_BYTES = 1 << 20
"""What is known of the failures of a job's shards: names, errors, and what each failure takes besides."""
_BYTES_OF_FAILURE = 128
SAVE_SECONDS = 2.0
SYNC_SECONDS = 30.0
SYNC_IDLE_SECONDS = 300.0
"""So often the store is asked about a job of which nothing failed on this node: each look is a request, on each node."""
STORAGE_ERRORS = frozenset(
    {
        # Python's own
        "ConnectionError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "TimeoutError",
        "SSLError",
        "gaierror",
        # urllib, requests, urllib3, botocore, aiohttp: https://docs.python-requests.org/en/latest/api/#exceptions,
        # https://urllib3.readthedocs.io/en/stable/reference/urllib3.exceptions.html,
        # https://docs.aiohttp.org/en/stable/client_reference.html#hierarchy-of-exceptions
        "URLError",
        "Timeout",
        "ConnectTimeout",
        "ReadTimeout",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "NewConnectionError",
        "MaxRetryError",
        "EndpointConnectionError",
        "ConnectionClosedError",
        "NoCredentialsError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ClientOSError",
        "ServerDisconnectedError",
        "ServerTimeoutError",
    }
)
"""Types of exceptions that say that the storage could not be reached. Such failures are counted, but put no shard on the list."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A shard that went on the list just now: of which job, in which attempt, and the fields of its `ShardQuarantined`."""

    job: str
    attempt: int
    fields: dict[str, Any]

    @property
    def text(self) -> str:
        """One line for log or stderr; names from the job are escaped."""
        ranks, attempts = self.fields["ranks"], self.fields["attempts"]
        where = f"ranks {_list(ranks)}" if len(ranks) > 1 else f"rank {ranks[0]} in attempts {_list(attempts)}"
        shard = ascii(self.fields["shard"])
        return f"job {self.job}: data shard {shard} failed on {where} ({self.fields['error'][:64]!a}) and is quarantined"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")


@dataclass
class _Job:
    path: Path
    shards: shard_quarantine.Shards
    reads: deque[float] = field(default_factory=lambda: deque(maxlen=1024))
    undecided: set[str] = field(default_factory=set)
    is_saved: bool = True
    saved_at: float = float("-inf")
    is_synced: bool = True
    synced_at: float = float("-inf")
    bytes: int = 0

    def take_room(self, name: str, failure: shard_quarantine.Failure) -> bool:
        """Take the room for a failure; False: there is none left. A repeated one, or of a shard that often fails, needs none."""
        known = self.shards.get(name, shard_quarantine.Shard()).failures
        same = any((one.rank, one.attempt) == (failure.rank, failure.attempt) for one in known)
        if same or len(known) >= shard_quarantine.MAX_FAILURES:
            return True
        needed = len(name) + len(failure.error) + _BYTES_OF_FAILURE
        if self.bytes + needed > MAX_BYTES:
            return False
        self.bytes += needed
        return True

    def sync_due(self, now: float) -> bool:
        return now - self.synced_at >= (SYNC_SECONDS if self.shards else SYNC_IDLE_SECONDS)


class ShardWatch:
    """The quarantine lists of the jobs on this node, kept below the spool's root. No method raises; any thread may call them.

    Args:
        root: of the spool. say: told, in a line, what could not be read or written.
    """

    def __init__(self, root: Path, say: Callable[[str], None]) -> None:
        self._root = root
        self._say = say
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}

    def add_record(self, record: records.AnyRecord) -> None:
        """Take a record of any kind; those about shards count."""
        if not isinstance(record, records.ShardRead | records.ShardFailed):
            return
        with self._lock:
            job = self._job(record.job)
            if job is None:
                return
            if isinstance(record, records.ShardRead):
                job.reads.append(record.time)
                return
            name = record.shard[: shard_quarantine.MAX_NAME]
            if not name or record.error in STORAGE_ERRORS or (name not in job.shards and len(job.shards) >= MAX_FAILED_SHARDS):
                return
            failure = shard_quarantine.Failure(rank=record.rank, attempt=record.attempt, time=record.time, error=record.error[:128])
            if not job.take_room(name, failure):
                return
            shard_quarantine.add_failure(job.shards, name, failure)
            job.undecided.add(name)
            job.is_saved = job.is_synced = False

    def decide(self, now: float) -> list[Quarantined]:
        """Put failing shards on the lists, write changed lists, and return the new entries.

        Args:
            now: monotonic seconds; a list without new entries is written every few seconds only.
        """
        with self._lock:
            new: list[Quarantined] = []
            for name, job in self._jobs.items():
                found = _decide(name, job)
                new += found
                if not job.is_saved and (found or now - job.saved_at >= SAVE_SECONDS):
                    self._save(name, job, now)
        return new

    def flush(self) -> None:
        """Write the lists that changed since they were saved."""
        with self._lock:
            for name, job in self._jobs.items():
                if not job.is_saved:
                    self._save(name, job, job.saved_at)

    def listed_count(self, job: str) -> int | None:
        """Return the number of listed shards of a job, or None if its shards are unknown."""
        with self._lock:
            found = self._jobs.get(job)
            return len(shard_quarantine.listed_names(found.shards)) if found is not None else None

    def sync(self, store: Store, host: str, now: float, *, anyway: bool = False) -> None:
        """Write the lists that changed into the store, and take from it what other nodes and people know.

        Args:
            now: seconds of a monotonic clock. anyway: now, whenever it was done last.
        """
        with self._lock:
            due = [(name, job) for name, job in self._jobs.items() if anyway or job.sync_due(now)]
        for name, job in due:
            job.synced_at = now
            try:
                with self._lock:
                    mine = None if job.is_synced else shard_quarantine.encode(name, job.shards)
                    job.is_synced = True
                if mine is not None:
                    store.write_quarantine(name, host, mine)
                self.add_known(name, shard_quarantine.from_store(store, name), is_stored=True)
            except TachoscopeError as error:
                job.is_synced = False
                self._say(str(error))

    def add_known(self, job: str, shards: shard_quarantine.Shards, *, is_stored: bool) -> None:
        """Add what is known elsewhere about a job's shards; unless the store has it, it goes there too."""
        if not shards and job not in self._jobs:
            return
        with self._lock:
            found = self._job(job)
            if found is not None and shard_quarantine.merge(found.shards, shards):
                found.undecided |= shards.keys()
                found.is_saved = False
                found.is_synced = found.is_synced and is_stored

    def keep_only(self, jobs: Collection[str]) -> None:
        """Let go of all jobs but these; their lists stay on the disk."""
        with self._lock:
            for name in self._jobs.keys() - set(jobs):
                job = self._jobs.pop(name)
                if not job.is_saved:
                    self._save(name, job, job.saved_at)

    def _job(self, name: str) -> _Job | None:
        if name not in self._jobs:
            try:
                path = shard_quarantine.path_of(self._root, name)
            except TachoscopeError:  # a name that cannot be
                return None
            shards: shard_quarantine.Shards = {}
            try:
                shards = shard_quarantine.load(path)
            except TachoscopeError as error:
                self._say(str(error))
            self._jobs[name] = _Job(path, shards, undecided=set(shards))
        return self._jobs[name]

    def _save(self, name: str, job: _Job, now: float) -> None:
        job.saved_at = now
        try:
            shard_quarantine.save(job.path, name, job.shards)
            job.is_saved = True
        except TachoscopeError as error:
            self._say(str(error))


def _decide(name: str, job: _Job) -> list[Quarantined]:
    new: list[Quarantined] = []
    last_failed: list[float] = []
    for shard in sorted(job.undecided):
        known = job.shards[shard]
        failures = known.counting()
        if known.is_listed or len(failures) < NEEDED:
            job.undecided.discard(shard)
            continue
        last_failed = last_failed or sorted(other.failures[-1].time for other in job.shards.values() if other.failures)
        if _storage_is_to_blame(last_failed, job.reads, since=failures[0].time):
            continue  # asked again as others can be read
        job.undecided.discard(shard)
        last = failures[-1]
        shard_quarantine.merge(job.shards, {shard: shard_quarantine.Shard(quarantined=last.time)})
        job.is_saved = job.is_synced = False
        job.synced_at = float("-inf")  # people are told of it: it must be in the store when they look
        fields = {
            "shard": shard,
            "failures": len(failures),
            "ranks": sorted({failure.rank for failure in failures}),
            "attempts": sorted({failure.attempt for failure in failures}),
            "error": last.error,
        }
        new.append(Quarantined(name, last.attempt, fields))
    return new


def _storage_is_to_blame(last_failed: list[float], reads: Collection[float], *, since: float) -> bool:
    """Return whether many shards failed since one first did, and fewer were read."""
    failed = len(last_failed) - bisect_left(last_failed, since)
    return failed >= MANY and failed > sum(time >= since for time in reads)
