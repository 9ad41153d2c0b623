"""Checkpoints that a job saved, by the store's records, and whether each is still what was saved."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tachoscope_cli.common.options import print_notice
from tachoscope_core.checkpoints.saves import Checkpoint, add_record, parse
from tachoscope_core.checkpoints.torch_zip import begins_as_zip, verify_zip
from tachoscope_core.checkpoints.verification import DCP_SUFFIX, ReadBack, verify
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.jobs.submitted_jobs import TrainingJobs
from tachoscope_core.owner import Owner, of_this_process
from tachoscope_core.records import records
from tachoscope_core.storage.compacted import segments_left
from tachoscope_core.storage.store import BrokenObjectError, Store

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint to verify: what the store knows of it, if anything.

    Attributes:
        path: where it is. world_size: of the attempt that saved it; 0: not known.
        owner: of the job; None: it is of no job, or of one without.
    """

    path: str
    checkpoint: Checkpoint | None = None
    world_size: int = 0
    owner: Owner | None = None

    @property
    def has_manifest(self) -> bool:
        """Whether the store has something to compare it with."""
        return self.checkpoint is not None and bool(self.checkpoint.manifests)

    @property
    def bytes(self) -> int:
        """How large it is, as far as it is known; 0: not known."""
        if self.checkpoint is not None and self.has_manifest:
            return self.checkpoint.bytes
        if os.path.isfile(self.path):
            return os.path.getsize(self.path)
        return sum(self.checkpoint.wrote.values()) if self.checkpoint is not None else 0


def newest_job(store: Store, trusted: int | None) -> str:
    """Return this user's job that was written last."""
    times = store.job_times()
    if not times:
        raise TachoscopeError(f"store {store.url} is empty", fix="name a checkpoint, or the store with --store")
    for job in sorted(times, key=times.__getitem__, reverse=True):
        if is_trusted(store.owner(job), trusted):
            return job
    raise TachoscopeError(f"none of the {len(times)} jobs in store {store.url} belongs to this user", fix="name one with --job")


def is_trusted(owner: Owner | None, trusted: int | None) -> bool:
    """Return whether a job belongs to this user, to the trusted one, or to no known user."""
    return owner is None or owner == of_this_process() or owner.uid == trusted


def newest_sound(store: Store, job: str, log: Callable[[str], None]) -> str | None:
    """Return where the newest sound checkpoint of this user's job is; None: the job has saved none.

    Args:
        log: gets a line for each newer one that is not sound.

    Raises:
        TachoscopeError: none of those that it saved is sound, or on this machine: a new start from the first step would lose them.
    """
    if not known_checkpoints(store, job):
        return None
    candidates = of_job(store, job)
    if (owner := candidates[0].owner) is not None and not is_trusted(owner, None):
        raise TachoscopeError(f"the checkpoints of job {job!r} were saved by a job of {owner}, not by yours")
    for candidate in candidates:
        found = verdict(candidate, None, lambda _: None)
        if found.result == "sound":
            return candidate.path
        log(f"{candidate.path} is {found.result}: {found.fault}")
    raise TachoscopeError(f"none of the {len(candidates)} checkpoints of job {job!r} is sound", exit_code=ExitCode.NOT_WELL)


def of_paths(store: Store, paths: list[str], job: str | None) -> list[Candidate]:
    """Return the paths with the store's knowledge of them, searched in the newest jobs first."""
    times = {job: 0.0} if job else store.job_times()
    found: dict[str, Candidate] = {}
    for name in sorted(times, key=times.__getitem__, reverse=True):
        if len(found) == len(paths):
            break
        known = {candidate.path: candidate for candidate in known_checkpoints(store, name)}
        found |= {path: known[path] for path in paths if path in known and path not in found}
    return [found.get(path, Candidate(path)) for path in paths]


def of_job(store: Store, job: str) -> list[Candidate]:
    """Return the existing checkpoints of a job, newest first; raise if there are none."""
    known = sorted(known_checkpoints(store, job), key=lambda one: one.checkpoint.saved_at if one.checkpoint else 0.0, reverse=True)
    if not known:
        fix = "name its files; which saves are seen: docs/guides/checkpoints.md"
        raise TachoscopeError(f"job {job!r} in store {store.url} has not saved a checkpoint", fix=fix, exit_code=ExitCode.NOT_WELL)
    there = [candidate for candidate in known if "://" in candidate.path or os.path.lexists(candidate.path)]
    if not there:
        fix = "verify where they were saved; the newest was " + known[0].path
        raise TachoscopeError(
            f"none of the {len(known)} checkpoints of job {job!r} is on this machine", fix=fix, exit_code=ExitCode.NOT_WELL
        )
    if len(there) < len(known):
        print_notice(f"{len(known) - len(there)} more were saved and no longer exist")
    if silent := sum(not candidate.has_manifest for candidate in there):
        why = "they come some seconds after a save, $TACHOSCOPE_MANIFESTS=0 switches them off"
        print_notice(f"{silent} of {len(there)} checkpoints have no manifest: {why}")
    return there


def known_checkpoints(store: Store, job: str) -> list[Candidate]:
    """Return all checkpoints that a job saved, in the order of time; of a training job also those of nodes that were lost since."""
    checkpoints: dict[str, Checkpoint] = {}
    world_sizes: dict[int, int] = {}
    for record in sorted(
        parse([*_lines(store, job), *TrainingJobs(store).noted_saves(job)]), key=lambda record: (record.time, record.seq)
    ):
        if isinstance(record, records.JobStarted):
            if record.rank >= 0:
                world_sizes[record.attempt] = record.world_size
        else:
            add_record(checkpoints, record)
    owner = store.owner(job)
    return [Candidate(one.reference, one, world_sizes.get(one.attempt, 0), owner) for one in checkpoints.values()]


def _lines(store: Store, job: str) -> Iterator[bytes]:
    segments, _, sets = segments_left(store, job)
    for path in [*(segment.path for segment in segments), *(path for one in sets for path in one.line_paths)]:
        try:
            yield from io.BytesIO(store.read_lines(path))
        except BrokenObjectError as error:
            print_notice(str(error))


def _stranger(candidate: Candidate, trusted: int | None) -> str:
    """Return the fault of a checkpoint put there by another user than the job's owner, this user or root."""
    if candidate.checkpoint is None or "://" in candidate.path:
        return ""
    known = {0, os.geteuid(), trusted, *(() if candidate.owner is None else (candidate.owner.uid,))}
    names = [shard.path for rows in candidate.checkpoint.manifests.values() for shard in rows.shards]
    for path in dict.fromkeys([candidate.path, *(os.path.join(candidate.path, name) for name in names if name)]):
        with contextlib.suppress(OSError):
            if (owner := os.stat(path).st_uid) not in known:
                return f"{path} belongs to user {owner}, not to the job's"
    return ""


def verdict(candidate: Candidate, trusted: int | None, on_bytes: OnBytes) -> ReadBack:
    """Read a checkpoint back. trusted: a user whose files count as this user's own. on_bytes: gets the bytes of each part read."""
    if stranger := _stranger(candidate, trusted):
        return ReadBack("unverifiable", stranger)
    checkpoint = candidate.checkpoint
    if checkpoint is None or not (checkpoint.manifests or "://" in candidate.path):
        if not os.path.lexists(candidate.path):
            return ReadBack("unreachable", "not there")
        if os.path.isdir(candidate.path):
            return ReadBack("unverifiable", "not verified: no manifest" + _files_hint(candidate.path))
        return verify_zip(candidate.path, on_bytes=on_bytes)
    found = verify(
        candidate.path,
        checkpoint.manifests,
        expected_ranks=checkpoint.expected_ranks(candidate.world_size),
        drop_cache=True,
        on_bytes=on_bytes,
    )
    assert found is not None  # nobody stops it
    return found


def _files_hint(folder: str) -> str:
    """Return a hint for a folder without a manifest: its files of `torch.save` can be verified."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    can = any(not name.endswith(DCP_SUFFIX) and begins_as_zip(os.path.join(folder, name)) for name in names)
    return "; files of torch.save in it can be named one by one" if can else ""
