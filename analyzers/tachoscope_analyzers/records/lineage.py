"""What a job was made of, and why a person should look at it: shown with every report."""

from __future__ import annotations

from collections.abc import Mapping

from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records


def lineage(job: JobRecords) -> dict[str, str]:
    """Return what the newest attempt was made of, by name: what its launcher says, then what its ranks say, the lowest last."""
    newest = max((start.attempt for start in job.starts), default=0)
    found: dict[str, str] = {}
    for start in sorted(
        (row for row in job.starts if row.attempt == newest), key=lambda row: (row.rank < 0, row.rank), reverse=True
    ):
        found |= _plain(start) | start.lineage
        if start.parents:
            found["parents"] = ", ".join(start.parents)
    for end in job.ends:  # what became known later, such as the run of a tracker
        if end.attempt == newest:
            found |= end.lineage
    return found


def _plain(start: records.JobStarted) -> dict[str, str]:
    named = {
        "code_reference": start.code_reference,
        "data_snapshot": start.data_snapshot,
        "hyperparameters_hash": start.hyperparameters_hash,
        "torch_version": start.torch_version,
    }
    return {name: value for name, value in named.items() if value}


def review(job: JobRecords, faults: Mapping[str, str] | None = None) -> list[str]:
    """Return the reasons to look at a job before it is trusted: shards on the quarantine list, checkpoints that are not sound.

    Args:
        faults: of checkpoints, by reference; default: those of each reference's last verification.
    """
    reasons = [f"data shard {name} is in quarantine: {_shard(row)}" for name, row in sorted(in_quarantine(job).items())]
    if faults is None:
        last = {row.reference: row for row in sorted(job.verified, key=lambda row: row.time)}
        faults = {name: row.fault or "not sound" for name, row in last.items() if not row.sound}
    return reasons + [
        f"checkpoint {name} failed its verification: {fault.removeprefix(f'{name}: ')}" for name, fault in sorted(faults.items())
    ]


def in_quarantine(job: JobRecords) -> dict[str, records.ShardQuarantined]:
    """Return the data shards that were not released since they were last put on the quarantine list, with the record of that."""
    last = {row.shard: row for row in sorted(job.quarantined, key=lambda row: row.time)}
    return {name: row for name, row in last.items() if row.time > job.released.get(name, 0.0)}


def _shard(row: records.ShardQuarantined) -> str:
    where = [f"{what} {', '.join(map(str, values))}" for what, values in (("rank", row.ranks), ("attempt", row.attempts)) if values]
    return f"it failed {row.failures} times" + (f" ({'; '.join(where)})" if where else "") + (f", {row.error}" if row.error else "")
