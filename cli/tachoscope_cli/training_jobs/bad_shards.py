"""A data shard that ended an attempt: found in the records, and put on the job's quarantine list before the next attempt begins.

Without this a shard goes on the list when it failed on two ranks or attempts, and a job that fails twice at the same is given up.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.jobs.submitted_jobs import Action, TrainingJobStatus
from tachoscope_core.report.failures import Failure
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.store import Store
from tachoscope_node.jobs.shard_quarantine import MANY, STORAGE_ERRORS

BEFORE_SECONDS = 60.0
"""An exception that ends a rank was raised by the shard at most so long before: a loader worker hands it on with the next batch."""
WRITTEN_BY = "supervisor"
"""In the store, the name beside those of hosts under which lies what a supervisor put on the list."""


@dataclass(frozen=True, slots=True)
class BadShard:
    """A shard that raised what its rank then failed with. listed: it was to be skipped already."""

    name: str
    rank: int
    attempt: int
    time: float
    error: str
    listed: bool


def bad_shard(job: JobRecords, failure: Failure | None, listed: Collection[str]) -> BadShard | None:
    """Return the shard behind the first failure of an attempt; None: there is none, or its storage is at fault.

    Args:
        listed: shards on the quarantine list.
    """
    if failure is None or failure.cause != "exception" or failure.rank is None:
        return None
    error = failure.exception.rpartition(".")[2]
    if not error or error in STORAGE_ERRORS:
        return None
    of_attempt = [one for one in job.shard_failures if one.attempt == failure.attempt and one.error not in STORAGE_ERRORS]
    if len({one.shard for one in of_attempt}) >= MANY:
        return None
    found = [
        one
        for one in of_attempt
        if one.rank == failure.rank and one.error == error and 0 <= failure.time - one.time + 1.0 <= BEFORE_SECONDS + 1.0
    ]
    if not found:
        return None
    last = max(found, key=lambda one: one.time)
    return BadShard(last.shard, last.rank, last.attempt, last.time, last.error, last.shard in listed)


def action_of(status: TrainingJobStatus, attempt: int, shard: BadShard, now: float) -> Action | None:
    """Return what is done about a shard that ended an attempt; None: nothing.

    One that ended it although it was listed is not skipped by the job's loader: listing it again would not help.
    """
    mode = status.submitted.job.actions.quarantine_shards
    key = f"{attempt:03}-quarantine_shards"
    again = any(one.key == key and one.applied for one in status.actions)  # decided before, by a supervisor that was killed
    if mode == "off" or (shard.listed and not again):
        return None
    applied = mode == "apply" and (again or status.actions_left > 0)
    not_done = "" if applied else " (dry run)" if mode == "dry_run" else " (not done: the budget is used up)"
    return Action(
        key=key,
        time=now,
        attempt=attempt,
        what="quarantine_shards",
        applied=applied,
        text=f"quarantine {shard.name}{not_done}: rank {shard.rank} failed with {shard.error}; review what was not trained on",
        undo=f"tachoscope store quarantine {status.submitted.job.name} --release {shlex.quote(shard.name)}" if applied else "",
    )


def listed_shards(store: Store, job: str) -> frozenset[str]:
    """Return the shards on a job's list. Raises TachoscopeError if the store cannot be read."""
    return shard_quarantine.listed_names(shard_quarantine.from_store(store, job))


def quarantine(store: Store, job: str, shard: BadShard, now: float) -> None:
    """Put a shard on the list of the job. Raises TachoscopeError if the store cannot be written."""
    known = shard_quarantine.from_store(store, job)
    failure = shard_quarantine.Failure(rank=shard.rank, attempt=shard.attempt, time=shard.time, error=shard.error[:128])
    own = {name: one for name, one in known.items() if one.is_listed}
    shard_quarantine.merge(own, {shard.name: shard_quarantine.Shard(failures=(failure,), quarantined=now)})
    store.write_quarantine(job, WRITTEN_BY, shard_quarantine.encode(job, own))
