"""Which checkpoints of the node's jobs are to be read back, and when: what the verifier works through, and the metrics of it.

A checkpoint is due once all ranks that saved it have said what they wrote, and the newest two again and again: storage loses what
it had. What the records say is foreign: a job belongs to the user whose process first spoke of it, and all of it is bounded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import msgspec

from tachoscope_core.checkpoints.saves import Checkpoint, Said, add_record
from tachoscope_core.checkpoints.verification import ReadBack, Result
from tachoscope_core.metrics import checkpoints as names
from tachoscope_core.records import records
from tachoscope_node.common.shares import has_room
from tachoscope_service.metrics.family import Family

RESULTS = get_args(Result)
SETTLE_SECONDS = 5.0
"""Ranks of the node say within this of each other that they saved."""
WAIT_SECONDS = 600.0
"""A manifest that has not come for so long, since the last news of its checkpoint, does not come."""
LOOK_AGAIN_SECONDS = 60.0
"""What looks broken because it is just being written or removed looks otherwise by then."""
VERIFIED_AGAIN = 2
MAX_CHECKPOINTS = 8
"""Of a job that are known at a time; the oldest gives way."""
MAX_BYTES = 2 << 20
"""What is known of the files of a job's checkpoints: their paths and checksums. It is saved whenever something changes."""
MAX_BYTES_OF_USER = 6 << 20
"""The same over all jobs of a user."""
_BYTES_OF_FILE = 64
"""Of a file in memory beside its path and checksum."""


class CheckpointState(msgspec.Struct):
    """A checkpoint and what came of reading it back. Times are Unix seconds.

    Attributes:
        news_at: when a rank last said something of it. due_at: when it is to be read, if it was before.
        result: of the last time; empty: never. second_look: the first one did not count.
    """

    checkpoint: Checkpoint
    news_at: float
    due_at: float = 0.0
    result: str = ""
    second_look: bool = False


class JobChecks(msgspec.Struct):
    """The checkpoints of one job on this node.

    Attributes:
        uid: of the user whose processes write its records. attempt, world_size: the newest. ranks: of that attempt on this node.
        known: by reference. counts: times that a checkpoint was read back, by result.
        bytes: of what is known of the files.
    """

    uid: int
    attempt: int = 0
    world_size: int = 0
    ranks: set[int] = set()
    known: dict[str, CheckpointState] = {}
    counts: dict[str, int] = {}
    served_at: float = 0.0
    bytes: int = 0

    def newest_first(self) -> list[CheckpointState]:
        """Return all that are known, by when they were saved."""
        return sorted(self.known.values(), key=lambda known: known.checkpoint.saved_at, reverse=True)


class Task(msgspec.Struct, frozen=True):
    """A checkpoint to read back now.

    Attributes:
        attempt: of the job, now. uid: of the user who may read it. whole: all ranks of the job are on this node.
    """

    job: str
    attempt: int
    uid: int
    checkpoint: Checkpoint
    expected_ranks: set[int]
    whole: bool
    news_at: float


class VerifyQueue:
    """The checkpoints of all jobs, kept in a file over restarts. Any thread may call the methods; none raises.

    Args:
        rejected: counts what is left alone, by reason.
    """

    def __init__(self, file: Path, rejected: Counter[str], *, most_jobs: int, again_seconds: float) -> None:
        self._file = file
        self._rejected = rejected
        self._lock = threading.Lock()
        self._changed = False
        self.most_jobs = most_jobs
        self.again_seconds = again_seconds
        self.jobs = _load(file)

    def add_record(self, job: str, uid: int, record: Said, now: float) -> None:
        """Take a record of a job that a process of the user `uid` wrote."""
        if record.rank < 0:  # the launcher's and the agent's own
            return
        with self._lock:
            checks = self._job(job, uid)
            if checks is None:
                return
            if isinstance(record, records.JobStarted):
                _started(checks, record)
                return
            checkpoints = {reference: known.checkpoint for reference, known in checks.known.items()}
            found = add_record(checkpoints, record)
            if found is None:
                return
            known = checks.known.get(record.reference)
            if known is None or known.checkpoint is not found:
                known = checks.known[record.reference] = CheckpointState(found, now)
            known.news_at, known.result, known.second_look = now, "", False
            self._bound(checks)
            self._changed = True

    def _job(self, name: str, uid: int) -> JobChecks | None:
        checks = self.jobs.get(name)
        if checks is None:
            if not has_room(Counter(checks.uid for checks in self.jobs.values()), uid, self.most_jobs):
                self._rejected["over_limit"] += 1
                return None
            checks = self.jobs[name] = JobChecks(uid)
        if checks.uid != uid:
            self._rejected["identity"] += 1
            return None
        return checks

    def _bound(self, checks: JobChecks) -> None:
        ranked = checks.newest_first()
        used = 0
        others = sum(other.bytes for other in self.jobs.values() if other.uid == checks.uid and other is not checks)
        checks.bytes = 0
        for place, known in enumerate(ranked):
            files = (shard for manifest in known.checkpoint.manifests.values() for shard in manifest.shards)
            used += sum(len(shard.path) + len(shard.checksum) + _BYTES_OF_FILE for shard in files)
            if place < MAX_CHECKPOINTS and used <= min(MAX_BYTES, MAX_BYTES_OF_USER - others):
                checks.bytes = used
            else:
                del checks.known[known.checkpoint.reference]
                if place < VERIFIED_AGAIN:
                    self._rejected["over_limit"] += 1

    def next(self, now: float) -> Task | None:
        """Return the next task: jobs in turn, unread checkpoints before due repeats, newest first."""
        with self._lock:
            for name, checks in sorted(self.jobs.items(), key=lambda item: item[1].served_at):
                known = _due(checks, now)
                if known is None:
                    continue
                checks.served_at = now
                whole = checks.world_size <= len(checks.ranks)
                expected = known.checkpoint.expected_ranks(checks.world_size if whole else 0)
                copy = msgspec.convert(msgspec.to_builtins(known.checkpoint), Checkpoint)  # its ranks may say more meanwhile
                return Task(name, checks.attempt, checks.uid, copy, expected, whole, known.news_at)
        return None

    def done(self, task: Task, verdict: ReadBack, now: float) -> bool:
        """Note a result; return whether it counts. It does not if the checkpoint was saved again, or must be read again."""
        with self._lock:
            checks = self.jobs.get(task.job)
            known = checks.known.get(task.checkpoint.reference) if checks is not None else None
            if checks is None or known is None or known.news_at != task.news_at:
                return False
            self._changed = True
            if verdict.unsettled and not known.second_look:
                known.second_look, known.due_at = True, now + LOOK_AGAIN_SECONDS
                return False
            known.second_look, known.due_at = False, now + self.again_seconds
            known.result = verdict.result
            checks.counts[verdict.result] = checks.counts.get(verdict.result, 0) + 1
            return True

    def drop_ended_jobs(self, live_jobs: Collection[str], now: float) -> None:
        """Drop the jobs that ended and have nothing left to read."""
        with self._lock:
            for name in [name for name, checks in self.jobs.items() if name not in live_jobs and not _waits(checks, now)]:
                del self.jobs[name]
                self._changed = True

    def families(self, live_jobs: Collection[str]) -> list[Family]:
        """Return the metrics of live jobs; each result is counted from a job's first checkpoint on, so that it is seen to grow."""
        with self._lock:
            jobs = [(name, checks) for name, checks in self.jobs.items() if name in live_jobs]
            newest = [(name, next((one for one in checks.newest_first() if one.result == "sound"), None)) for name, checks in jobs]
            return [
                Family(names.VERIFIED_TIMESTAMP, [((name,), one.checkpoint.saved_at) for name, one in newest if one is not None]),
                Family(
                    names.VERIFICATIONS,
                    [
                        ((name, result), float(checks.counts.get(result, 0)))
                        for name, checks in jobs
                        if checks.known
                        for result in RESULTS
                    ],
                ),
            ]

    def save(self) -> None:
        """Write the file if something changed.

        Raises:
            OSError: it cannot be written; the one before stays.
        """
        with self._lock:
            if not self._changed:
                return
            content = msgspec.json.encode(self.jobs)
            self._changed = False
        partial = self._file.with_name(f".{self._file.name}.partial")
        try:
            partial.write_bytes(content)
            partial.replace(self._file)
        except OSError:
            self._changed = True
            raise


def _load(file: Path) -> dict[str, JobChecks]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, JobChecks])
    except (OSError, msgspec.DecodeError):  # what was known is found again with the next save
        return {}


def _started(checks: JobChecks, record: records.JobStarted) -> None:
    if record.attempt < checks.attempt:
        return
    if record.attempt > checks.attempt:
        checks.ranks = set()
    checks.attempt, checks.world_size = record.attempt, record.world_size
    if len(checks.ranks) < record.world_size:
        checks.ranks.add(record.rank)


def _due(checks: JobChecks, now: float) -> CheckpointState | None:
    ranked = checks.newest_first()
    ready = (known for known in ranked if not known.result and not known.second_look and _is_ready(known, now))
    if (found := next(ready, None)) is not None:
        return found
    again = [known for known in ranked if known.result in {"sound", "unreachable"}][:VERIFIED_AGAIN]
    again += [known for known in ranked if known.second_look and known not in again]
    return next((known for known in again if now >= known.due_at), None)


def _is_ready(known: CheckpointState, now: float) -> bool:
    """Return whether all ranks have reported or will not. Without a manifest there is nothing to do."""
    if not known.checkpoint.manifests:
        return False
    complete = known.checkpoint.expected_ranks() <= known.checkpoint.manifests.keys()
    return now - known.news_at >= (SETTLE_SECONDS if complete else WAIT_SECONDS)


def _waits(checks: JobChecks, now: float) -> bool:
    return any(
        known.second_look or (not known.result and known.checkpoint.manifests and now - known.news_at < 2 * WAIT_SECONDS)
        for known in checks.known.values()
    )
