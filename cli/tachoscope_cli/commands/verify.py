"""`tachoscope verify`: reads checkpoints back now and holds them against their manifests in the store."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.filesize import decimal
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from tachoscope_cli.common.options import print_notice, store_url
from tachoscope_cli.common.output import console, progress
from tachoscope_core.checkpoints.saves import Checkpoint, add_record, parse
from tachoscope_core.checkpoints.torch_zip import begins_as_zip, verify_zip
from tachoscope_core.checkpoints.verification import DCP_SUFFIX, ReadBack, verify
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.owner import Owner, of_this_process
from tachoscope_core.records import records
from tachoscope_core.storage.compacted import all_segments, segments_left
from tachoscope_core.storage.store import BrokenObjectError, Store
from tachoscope_show.text.safe_text import safe

_PIPE_WIDTH = 10_000
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


def verify_checkpoints(
    checkpoints: Sequence[str], *, job: str | None, store: str | None, last: bool, owner: int | None
) -> ExitCode:
    """Verify checkpoints, or those of a job, and print what came of it; `last`: only the path of the newest that is sound.

    Raises:
        TachoscopeError: there is nothing to verify.
    """
    opened = Store(store_url(store))
    if job is not None and not all_segments(opened, job):
        raise TachoscopeError(f"store {opened.url} has no records of job {job!r}", fix="tachoscope store ls")
    if checkpoints:
        paths = list(dict.fromkeys(map(os.path.realpath, checkpoints)))
        candidates = _of_paths(opened, paths, job)
    else:
        candidates = _of_job(opened, job or _newest_job(opened, owner))
    if last:
        for candidate in candidates:
            if candidate.owner is not None and not _is_trusted(candidate.owner, owner):
                whose = f"{candidate.path} was saved by a job of {candidate.owner}, not by yours"
                raise TachoscopeError(
                    whose, fix=f"--owner {candidate.owner.uid}, if that user may run code as you", exit_code=ExitCode.NOT_WELL
                )
    return _print_last(candidates, owner) if last else _print_all(candidates)


def _newest_job(store: Store, trusted: int | None) -> str:
    """Return this user's job that was written last."""
    times = store.job_times()
    if not times:
        raise TachoscopeError(f"store {store.url} is empty", fix="name a checkpoint, or the store with --store")
    for job in sorted(times, key=times.__getitem__, reverse=True):
        if _is_trusted(store.owner(job), trusted):
            return job
    raise TachoscopeError(f"none of the {len(times)} jobs in store {store.url} belongs to this user", fix="name one with --job")


def _is_trusted(owner: Owner | None, trusted: int | None) -> bool:
    """Return whether a job belongs to this user, to the trusted one, or to no known user."""
    return owner is None or owner == of_this_process() or owner.uid == trusted


def _of_paths(store: Store, paths: list[str], job: str | None) -> list[Candidate]:
    """Return the paths with the store's knowledge of them, searched in the newest jobs first."""
    times = {job: 0.0} if job else store.job_times()
    found: dict[str, Candidate] = {}
    for name in sorted(times, key=times.__getitem__, reverse=True):
        if len(found) == len(paths):
            break
        known = {candidate.path: candidate for candidate in _known(store, name)}
        found |= {path: known[path] for path in paths if path in known and path not in found}
    return [found.get(path, Candidate(path)) for path in paths]


def _of_job(store: Store, job: str) -> list[Candidate]:
    """Return the existing checkpoints of a job, newest first; raise if there are none."""
    known = sorted(_known(store, job), key=lambda one: one.checkpoint.saved_at if one.checkpoint else 0.0, reverse=True)
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


def _known(store: Store, job: str) -> list[Candidate]:
    checkpoints: dict[str, Checkpoint] = {}
    world_sizes: dict[int, int] = {}
    for record in sorted(parse(_lines(store, job)), key=lambda record: (record.time, record.seq)):
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


def _verdict(candidate: Candidate, trusted: int | None, on_bytes: OnBytes) -> ReadBack:
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


def _verified(
    candidates: Iterable[Candidate], total_bytes: int, trusted: int | None = None
) -> Iterator[tuple[Candidate, ReadBack]]:
    """Verify candidates in turn, with a progress bar on a terminal."""
    with progress(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("reading back", total=total_bytes or None)
        for candidate in candidates:
            yield candidate, _verdict(candidate, trusted, lambda size: bar.advance(task, size))


def _print_last(candidates: list[Candidate], trusted: int | None) -> ExitCode:
    """Print the newest valid checkpoint. The rejected newer ones are named on stderr."""
    for candidate, verdict in _verified(candidates, candidates[0].bytes, trusted):
        if verdict.result == "sound":
            _print_path(candidate.path)
            return ExitCode.OK
        print_notice(f"{candidate.path} is {verdict.result}: {verdict.fault}")
    sys.stderr.write("tachoscope: none is sound\n")
    return ExitCode.NOT_WELL


def _print_path(path: str) -> None:
    """Print a path verbatim to a program, and without control characters to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(f"{safe(path)}\n")
    else:
        sys.stdout.buffer.write(os.fsencode(path) + b"\n")
    sys.stdout.flush()


def _print_all(candidates: list[Candidate]) -> ExitCode:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in ("step of attempt", "attempt", "saved", "size", "verdict"):
        table.add_column(header, no_wrap=header != "verdict", overflow="fold")
    table.add_column("checkpoint", overflow="fold")
    results = set()
    for candidate, verdict in _verified(candidates, sum(candidate.bytes for candidate in candidates)):
        results.add(verdict.result)
        table.add_row(*_row(candidate, verdict))
    out = console()
    if not out.is_terminal:  # a path that is broken into lines is none
        out.width = _PIPE_WIDTH
    out.print(table)
    if "corrupt" in results:
        return ExitCode.FOUND
    return ExitCode.from_success(results == {"sound"})


def _row(candidate: Candidate, verdict: ReadBack) -> list[str | Text]:
    checkpoint = candidate.checkpoint
    when = ["", "", ""]
    if checkpoint is not None:
        saved = datetime.fromtimestamp(checkpoint.saved_at).astimezone()
        when = [str(checkpoint.step), str(checkpoint.attempt), f"{saved:%Y-%m-%d %H:%M:%S}"]
    by = "" if candidate.has_manifest else " (by its CRC-32; no manifest)"
    words = {
        "sound": Text(f"sound{by}", style="green"),
        "corrupt": Text(f"CORRUPT: {_short(candidate, verdict)}", style="bold red"),
        "unreachable": Text(f"not read: {_short(candidate, verdict)}", style="yellow"),
        "unverifiable": Text(_short(candidate, verdict), style="yellow"),
    }
    size = decimal(candidate.bytes) if candidate.bytes else ""
    return [*when, size, words[verdict.result], candidate.path]


def _short(candidate: Candidate, verdict: ReadBack) -> str:
    """Return the fault without the path of the checkpoint, which is printed beside it."""
    return verdict.fault.removeprefix(f"{candidate.path}: ").removeprefix(f"{candidate.path}/")
