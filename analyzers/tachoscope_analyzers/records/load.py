"""Reads the records of a job from a store, a spool directory or single segment files."""

from __future__ import annotations

import contextlib
import functools
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tachoscope_analyzers.records import gpu_samples
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.compacted_part import CompactedPart
from tachoscope_analyzers.records.plausible_steps import plausible_steps
from tachoscope_analyzers.records.step_table import StepTable, StepTableBuilder
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.shared_ranks import SharedRank, claims, shared_ranks
from tachoscope_core.records import records
from tachoscope_core.redaction import redact
from tachoscope_core.report.report import JudgedInterval, QualityNote, Source
from tachoscope_core.storage import job_counters, shard_quarantine, spool
from tachoscope_core.storage.compacted import compacted_sets, segments_left
from tachoscope_core.storage.job_counters import NodeCounters
from tachoscope_core.storage.recent_segments import RecentSegments
from tachoscope_core.storage.store import BrokenObjectError, GoneObjectError, Store, StoredSegment

_Piece = TypeVar("_Piece")


@dataclass(frozen=True, slots=True)
class JobRecords:
    """All records of one job, each once, in the order of (writer, seq); `source` counts what could not be read.

    Steps and heartbeats are columns, because a job has millions of them.

    `released`: when a person last took a data shard off the quarantine list, in Unix seconds by shard; only a store knows that.
    `gpus`: what the store holds of the GPUs that it ran on. `partial`: only the first and last records were read.
    `broken`: objects that could not be read, with the reason.
    `left_out`: the part of a long job that was not read; `earlier`: intervals of it, as they were judged at compaction.
    `shared`: ranks that several processes claimed at the same time; in the records each has one of its own.
    `counted`: what the agents of its nodes counted of its whole life; empty for a part of a job.
    """

    job: str
    source: Source
    starts: list[records.JobStarted] = field(default_factory=list)
    steps: StepTable = field(default_factory=StepTable)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    collectives: list[records.CollectiveDone] = field(default_factory=list)
    checkpoints: list[records.CheckpointSaved] = field(default_factory=list)
    manifests: list[records.CheckpointManifest] = field(default_factory=list)
    verified: list[records.CheckpointVerified] = field(default_factory=list)
    restores: list[records.CheckpointRestored] = field(default_factory=list)
    failures: list[records.WorkerFailed] = field(default_factory=list)
    process_failures: list[records.ProcessFailed] = field(default_factory=list)
    process_exits: list[records.ProcessExited] = field(default_factory=list)
    hangs: list[records.WorkerHung] = field(default_factory=list)
    restarts: list[records.WorkerRestarted] = field(default_factory=list)
    notices: list[records.PreemptionNotice] = field(default_factory=list)
    memory: list[records.MemorySampled] = field(default_factory=list)
    out_of_memory: list[records.OutOfMemory] = field(default_factory=list)
    integrity: list[records.IntegrityEvent] = field(default_factory=list)
    updates: list[records.UpdatesApplied] = field(default_factory=list)
    compilations: list[records.CompilationDone] = field(default_factory=list)
    shard_reads: list[records.ShardRead] = field(default_factory=list)
    shard_failures: list[records.ShardFailed] = field(default_factory=list)
    quarantined: list[records.ShardQuarantined] = field(default_factory=list)
    services: list[records.ServiceStarted] = field(default_factory=list)
    requests: list[records.RequestDone] = field(default_factory=list)
    engine_windows: list[records.EngineWindow] = field(default_factory=list)
    service_ends: list[records.ServiceEnded] = field(default_factory=list)
    traces: list[records.TraceCaptured] = field(default_factory=list)
    ends: list[records.JobEnded] = field(default_factory=list)
    released: dict[str, float] = field(default_factory=dict)
    gpus: gpu_samples.Gpus = field(default_factory=gpu_samples.Gpus)
    partial: bool = False
    broken: list[str] = field(default_factory=list)
    left_out: QualityNote | None = None
    earlier: list[JudgedInterval] = field(default_factory=list)
    shared: list[SharedRank] = field(default_factory=list)
    counted: list[NodeCounters] = field(default_factory=list)

    def beats_of(self, writers: Sequence[str]) -> list[Heartbeats]:
        """Return the heartbeats of each of some processes, in their order."""
        found = self.heartbeats.by_writer()
        return [found.get(writer, Heartbeats()) for writer in writers]


MOST_LISTINGS = 5
_LAST_OBJECTS = 3


def from_store(
    store: Store, job: str, *, ends_only: bool = False, start: float | None = None, end: float | None = None
) -> JobRecords:
    """Read a job from a store.

    Args:
        ends_only: read only the first and last objects of each writer, enough for the status of the job.
        start, end: Unix seconds; objects without measurements in this window are skipped.

    Raises:
        TachoscopeError: the store has no such job, or cannot be read.
    """
    for _ in range(MOST_LISTINGS):
        with contextlib.suppress(GoneObjectError):  # it was compacted after it was listed: list again
            return _from_store(store, job, ends_only=ends_only, start=start, end=end)
    return _from_store(store, job, ends_only=ends_only, start=start, end=end, missing=BrokenObjectError)


def _from_store(
    store: Store,
    job: str,
    *,
    ends_only: bool,
    start: float | None,
    end: float | None,
    missing: type[TachoscopeError] = GoneObjectError,
) -> JobRecords:
    """List and read a job once; `missing` is the error for an object of a compacted set that does not exist."""
    segments, _, sets = segments_left(store, job)
    if not segments and not sets:
        raise TachoscopeError(f"store {store.url} has no records of job {job!r}", fix="tachoscope store ls")
    every = len(segments)
    firsts: list[StoredSegment] = []
    if ends_only:
        segments = _ends(segments)
    elif start is not None:
        firsts, segments = _written_since(segments, start)
    last = CLOCKS_AGREE_SECONDS if ends_only else None
    parts = [CompactedPart(store, one, start, end, last_seconds=last, missing=missing) for one in sets]
    found = _of_objects(store, segments, job, firsts, parts)
    if ends_only:
        return replace(found, partial=len(segments) < every or bool(sets))
    hosts = {segment.writer: segment.host for segment in (*firsts, *segments)}
    hosts |= {writer.writer: writer.host for one in sets for writer in one.holds.writers}
    if start is None and end is None:
        found = with_counters(store, found, hosts.values())
    return replace(
        found,
        released=released_shards(store, job) if found.quarantined else {},
        gpus=gpu_samples.of_job(store, found.starts, found.steps, hosts),
    )


def with_counters(store: Store, found: JobRecords, nodes: Iterable[str]) -> JobRecords:
    """Return all records of a job with what the agents of its nodes counted; unreadable ones are reported as broken objects.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    try:
        return replace(found, counted=job_counters.of_job(store, found.job, set(nodes)))
    except BrokenObjectError as error:
        return replace(found, broken=[*found.broken, str(error)])


def starts_of(store: Store, job: str) -> list[records.JobStarted]:
    """Return the processes of a job from their first objects, without decoding measurements.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    segments, _, sets = segments_left(store, job)
    firsts = {segment.writer: segment for segment in sorted(segments, key=lambda segment: -segment.offset)}
    parts = [CompactedPart(store, one, start=float("inf")) for one in sets]
    return _of_objects(store, [], job, [*firsts.values()], parts).starts


def _ends(segments: Sequence[StoredSegment]) -> list[StoredSegment]:
    """Return the first object of each writer and its last three: the very last often holds no step."""
    by_writer: dict[str, list[StoredSegment]] = defaultdict(list)
    for segment in sorted(segments, key=lambda segment: segment.offset):
        by_writer[segment.writer].append(segment)
    return [one for all_ in by_writer.values() for one in dict.fromkeys((all_[0], *all_[-_LAST_OBJECTS:]))]


def _written_since(segments: Sequence[StoredSegment], start: float) -> tuple[list[StoredSegment], list[StoredSegment]]:
    """Return the first and last segments of each writer that are older than `start`, Unix seconds, and all newer segments."""
    day = datetime.fromtimestamp(max(start - 86400.0, 0.0), UTC).date().isoformat()  # its folder is of the day of its first record
    since = [segment for segment in segments if segment.day >= day and segment.written >= start]
    recent = set(since)
    return [segment for segment in _ends(segments) if segment not in recent], since


def of_segments(store: Store, job: str, segments: RecentSegments, *, since: float) -> JobRecords:
    """Read what objects of a job hold from `since` on, Unix seconds, and who its processes are.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    known = {one.writer for one in segments.firsts} | {one.writer for one in segments.recent if one.offset == 0}
    strangers = {one.writer for one in segments.recent} - known
    sets = compacted_sets(store, job) if strangers else []
    parts = [CompactedPart(store, one, start=since) for one in sets if any(who.writer in strangers for who in one.holds.writers)]
    found = _of_objects(store, segments.recent, job, segments.firsts, parts)
    lists: dict[str, Any] = {name: getattr(found, name) for name in _LISTS.values() if name not in ("starts", "services")}
    recent: dict[str, Any] = {name: [row for row in rows if row.time >= since] for name, rows in lists.items()}
    steps = found.steps.take(found.steps.column("time") >= since)
    beats = found.heartbeats.take(found.heartbeats.column("time") >= since)
    found = replace(found, **recent, steps=steps, heartbeats=beats)
    hosts = {segment.writer: segment.host for segment in segments.recent}
    return replace(found, gpus=gpu_samples.of_job(store, found.starts, found.steps, hosts))


MEASURED = tuple(
    f'{{"kind":"{kind}"'.encode()
    for kind in ("StepDone", "Heartbeat", "CollectiveDone", "MemorySampled", "RequestDone", "EngineWindow")
)
"""Beginnings of the lines that hold measurements and do not describe their writer: nearly all lines."""


@functools.lru_cache(maxsize=16_384)
def _describing(store: Store, segment: StoredSegment) -> bytes:
    """Return the lines of an object that describe its writer: a watch asks for those of the same processes again and again."""
    return b"".join(line for line in io.BytesIO(store.read(segment)) if not line.startswith(MEASURED))


def _of_objects(
    store: Store,
    segments: Sequence[StoredSegment],
    job: str,
    firsts: Sequence[StoredSegment] = (),
    parts: Sequence[CompactedPart] = (),
) -> JobRecords:
    """Return the records of a job's objects, without those that cannot be read: one of them must not cost the others.

    Args:
        firsts: objects of which only the records are read that describe their writer. parts: of compacted sets.
    """
    broken: list[str] = []
    wanted = [*((segment, False) for segment in firsts), *((segment, True) for segment in segments)]

    def read(one: tuple[StoredSegment, bool]) -> bytes | BrokenObjectError:
        segment, whole = one
        try:
            return store.read(segment) if whole else _describing(store, segment)
        except BrokenObjectError as error:
            return error

    def chunks() -> Iterator[bytes]:  # a few at once: all together may be more than memory holds
        for chunk in store.each(read, wanted):
            if isinstance(chunk, BrokenObjectError):
                broken.append(str(chunk))
            else:
                yield chunk
        yield from _readable((part.lines_of_writers() for part in parts), broken)
        yield from _readable((part.lines_of_measurements() for part in parts), broken)
        if wanted and not parts and len(broken) == len(wanted):
            raise TachoscopeError(f"no records of job {job!r} can be read: {broken[-1]}")

    steps = _readable((part.steps() for part in parts), broken)
    heartbeats = _readable((part.heartbeats() for part in parts), broken)
    found = _of_job(chunks(), f"{redact(store.url)}: jobs/{job}", job, steps, heartbeats)
    return replace(found, source=msgspec.structs.replace(found.source, broken_objects=len(broken)), broken=broken)


def _readable(sources: Iterable[Iterator[_Piece]], broken: list[str]) -> Iterator[_Piece]:
    """Yield what the sources yield, each until it cannot be read."""
    for source in sources:
        try:
            yield from source
        except BrokenObjectError as error:
            broken.append(str(error))


def released_shards(store: Store, job: str) -> dict[str, float]:
    """Return when a person last took each data shard off the quarantine list, in Unix seconds."""
    with contextlib.suppress(TachoscopeError):  # a list that is broken must not cost the report: the shards stay under review
        return {name: shard.released for name, shard in shard_quarantine.from_store(store, job).items() if shard.released}
    return {}


def from_spool(paths: Iterable[Path], *, job: str | None = None) -> JobRecords:
    """Read a job from spool directories and segment files; without a name, the job that was written last.

    Raises:
        TachoscopeError: there are no records, or a file cannot be read.
    """
    files = [segment for path in paths for segment in (spool.segments(path) if path.is_dir() else [path])]
    where = ", ".join(sorted({str(file.parent) for file in files})) or "the given paths"
    try:
        chunks = [file.read_bytes() for file in files]
    except OSError as error:
        raise TachoscopeError(f"could not read {error.filename}: {error.strerror}") from None
    return _of_job(chunks, where, job)


class _Read:
    """Records of one job while they are read: steps and heartbeats as columns, other records once by (writer, seq)."""

    def __init__(self) -> None:
        self.steps = StepTableBuilder()
        self.beats: list[Heartbeats] = []
        self.others: dict[tuple[str, int], records.AnyRecord] = {}
        self.duplicates = 0
        self.last_time = 0.0

    def add(self, rows: Sequence[records.AnyRecord]) -> None:
        steps, beats, others = _sorted_out(rows)
        self.last_time = max(self.last_time, max([row.time for row in rows]))
        self.steps.add(steps)
        self.beats.append(Heartbeats.of(beats))
        before = len(self.others)
        self.others.update(((row.writer, row.seq), row) for row in others)
        self.duplicates += before + len(others) - len(self.others)

    def add_steps(self, steps: StepTable) -> None:
        self.last_time = max(self.last_time, steps.last_time())
        self.steps.add_table(steps)

    def add_beats(self, beats: Heartbeats) -> None:
        self.last_time = max(self.last_time, beats.last_time())
        self.beats.append(beats)


def _sorted_out(
    rows: Iterable[records.AnyRecord],
) -> tuple[list[records.StepDone], list[records.Heartbeat], list[records.AnyRecord]]:
    """Return the steps and the heartbeats among records, and the others."""
    steps: list[records.StepDone] = []
    beats: list[records.Heartbeat] = []
    others: list[records.AnyRecord] = []
    for row in rows:
        if isinstance(row, records.StepDone):
            steps.append(row)
        elif isinstance(row, records.Heartbeat):
            beats.append(row)
        else:
            others.append(row)
    return steps, beats, others


def _add(by_job: dict[str, _Read], rows: Sequence[records.AnyRecord]) -> None:
    names = {row.job for row in rows}
    for name in names:
        by_job[name].add(rows if len(names) == 1 else [row for row in rows if row.job == name])


def _of_job(
    chunks: Iterable[bytes],
    path: str,
    job: str | None,
    tables: Iterable[StepTable] = (),
    heartbeats: Iterable[Heartbeats] = (),
) -> JobRecords:
    counts: Counter[str] = Counter()
    by_job: dict[str, _Read] = defaultdict(_Read)
    for batch in decoded(chunks, counts):
        _add(by_job, batch)
    for beats in heartbeats:
        by_job[beats.job].add_beats(beats)
    for table in tables:
        by_job[table.job].add_steps(table)
    if not by_job or (job is not None and job not in by_job):
        looked_for = f"no records of job {job!r}" if job else "no records"
        others = f"; it holds {', '.join(sorted(by_job)[:5])}" if by_job else ""
        unread = counts["garbage"] + counts["cut"]
        raise TachoscopeError(
            f"{looked_for} in {path}{others}"
            + (f"; {unread} lines there are not records" if unread > 1 else "")
            + ("; its one line is not a record" if unread == 1 else ""),
            fix="run something first: tachoscope run -- python train.py",
        )
    chosen = job or max(by_job, key=lambda name: by_job[name].last_time)
    read = by_job.pop(chosen)
    rows = [row for _, row in sorted(read.others.items())]
    every, repeated = read.steps.table().in_order()
    steps = plausible_steps(every)
    beats, beats_repeated = Heartbeats.joined(read.beats).once()
    duplicates = repeated + beats_repeated + sum(one.duplicates for one in (read, *by_job.values()))
    source = source_of(path, counts, duplicates=duplicates, implausible=len(every) - len(steps))
    return assembled(chosen, source, rows, beats, steps)


def source_of(path: str, counts: Counter[str], *, duplicates: int, implausible: int) -> Source:
    """Return a source without its number of records.

    Args:
        counts: of lines that are not records, see `decoded`. duplicates, implausible: of records that were left out.
    """
    return Source(
        path=path,
        records=0,
        duplicates=duplicates,
        cut_lines=counts["cut"],
        garbage_lines=counts["garbage"],
        unknown_kinds=counts["unknown_kind"],
        implausible=implausible,
    )


def assembled(job: str, source: Source, rows: list[records.AnyRecord], beats: Heartbeats, steps: StepTable) -> JobRecords:
    """Return records, each once, as a job in which no two processes are the same rank at once; counts them in `source`.

    Args:
        rows: all but heartbeats and steps.
    """
    shared = shared_ranks(claims([*rows, *beats.last_of_writers(), *steps.last_of_writers()]))
    if shared:
        rows, beats, steps = _each_its_rank(rows, shared), _of_own_rank(beats, shared), _of_own_rank(steps, shared)
    dropped = beats.last_of_each_writer("dropped_total")
    for row in rows:
        if isinstance(row, records.JobEnded | records.ServiceEnded):
            dropped[row.writer] = max(row.dropped_total, dropped.get(row.writer, 0))
    count = len(rows) + len(beats) + len(steps)
    source = msgspec.structs.replace(source, records=count, dropped=int(sum(dropped.values())))
    return JobRecords(job, source, **_by_kind(rows), heartbeats=beats, steps=steps, shared=shared)


def of_rows(job: str, rows: Iterable[records.AnyRecord], beats: Heartbeats, steps: StepTable) -> JobRecords:
    """Return records that were read already as a job: heartbeats, of which `rows` may hold more, steps, and all others."""
    _, more, others = _sorted_out(row for _, row in sorted({(row.writer, row.seq): row for row in rows}.items()))
    beats, _ = Heartbeats.joined([beats, Heartbeats.of(more)]).once()
    steps = plausible_steps(steps.in_order()[0])
    source = Source(path="", records=len(others) + len(beats) + len(steps))
    return JobRecords(job, source, **_by_kind(others), heartbeats=beats, steps=steps)


_Table = TypeVar("_Table", StepTable, Heartbeats)


def _of_own_rank(table: _Table, shared: Iterable[SharedRank]) -> _Table:
    ranks = table.column("rank").copy()
    for one in shared:
        for writer, rank in one.writers.items():
            ranks[table.is_of([writer])] = rank
    return table.with_column("rank", ranks)


def _each_its_rank(rows: list[records.AnyRecord], shared: Iterable[SharedRank]) -> list[records.AnyRecord]:
    """Return the records with the ranks that processes are analyzed as, where several claim one."""
    given = {writer: rank for one in shared for writer, rank in one.writers.items()}
    found = []
    for row in rows:
        if row.writer in given:
            row = msgspec.structs.replace(row, rank=given[row.writer])
        elif isinstance(row, records.WorkerFailed | records.WorkerHung | records.OutOfMemory) and row.failed_writer in given:
            row = msgspec.structs.replace(row, failed_rank=given[row.failed_writer])
        found.append(row)
    return found


_LISTS: dict[type[records.Record], str] = {
    records.JobStarted: "starts",
    records.CollectiveDone: "collectives",
    records.CheckpointSaved: "checkpoints",
    records.CheckpointManifest: "manifests",
    records.CheckpointVerified: "verified",
    records.CheckpointRestored: "restores",
    records.WorkerFailed: "failures",
    records.ProcessFailed: "process_failures",
    records.ProcessExited: "process_exits",
    records.WorkerHung: "hangs",
    records.WorkerRestarted: "restarts",
    records.PreemptionNotice: "notices",
    records.MemorySampled: "memory",
    records.OutOfMemory: "out_of_memory",
    records.IntegrityEvent: "integrity",
    records.UpdatesApplied: "updates",
    records.CompilationDone: "compilations",
    records.ShardRead: "shard_reads",
    records.ShardFailed: "shard_failures",
    records.ShardQuarantined: "quarantined",
    records.ServiceStarted: "services",
    records.RequestDone: "requests",
    records.EngineWindow: "engine_windows",
    records.ServiceEnded: "service_ends",
    records.TraceCaptured: "traces",
    records.JobEnded: "ends",
}
"""The kinds that analyzers read beside steps and heartbeats, with the list of `JobRecords` that each goes to."""


def _by_kind(rows: list[records.AnyRecord]) -> dict[str, Any]:
    lists: dict[str, list[records.AnyRecord]] = {name: [] for name in _LISTS.values()}
    for row in rows:
        name = _LISTS.get(type(row))
        if name is not None:
            lists[name].append(row)
    return lists


_BATCH_RECORDS = 10_000
"""Number of records that are decoded before their steps are converted to columns."""


def decoded(chunks: Iterable[bytes], counts: Counter[str]) -> Iterator[list[records.AnyRecord]]:
    """Yield the records of the chunks, some at a time.

    Args:
        counts: `unknown_kind`, `garbage` and `cut` are incremented for lines that are not records.
    """
    batch: list[records.AnyRecord] = []
    for chunk in chunks:
        at_once = records.decode_lines(chunk)
        if at_once is not None:
            batch += at_once
        else:
            for row in _line_by_line(chunk, counts):
                batch.append(row)
                if len(batch) >= _BATCH_RECORDS:
                    yield batch
                    batch = []
        if len(batch) >= _BATCH_RECORDS:
            yield batch
            batch = []
    if batch:
        yield batch


def _line_by_line(chunk: bytes, counts: Counter[str]) -> Iterator[records.AnyRecord]:
    for line in io.BytesIO(chunk):  # not all at once: of a line of two bytes that would take forty
        if line == b"\n":
            continue
        try:
            yield records.decode(line)
        except records.UnknownKindError:
            counts["unknown_kind"] += 1
        except records.MalformedRecordError:
            # Only the last line of a chunk can lack its newline: the writer was killed in it, or is in it now.
            counts["garbage" if line.endswith(b"\n") else "cut"] += 1


def serving_job(job: JobRecords) -> bool:
    """Return whether the records are those of a service, not of a training."""
    return not job.steps and bool(job.services or job.requests or job.engine_windows)


RUNNING_SECONDS = 60.0
"""A process that wrote nothing for longer is not called running: a live one sends a heartbeat every few seconds."""
CLOCKS_AGREE_SECONDS = 5.0
"""By so much the clocks of two hosts may differ."""


def status(job: JobRecords, *, now: float) -> str:
    """Return how the job's last attempt stands: completed, failed, running or unknown.

    The job is running as long as an earlier attempt that ran at once with the last one goes on. Else the launcher's word counts,
    since it alone sees a process that was killed; without it, a process that reported a failure.

    Args:
        now: Unix seconds.
    """
    attempt = max((row.attempt for row in (*job.starts, *job.ends)), default=0)
    ends = [row for row in job.ends if row.attempt >= attempt]
    if ends and _earlier_goes_on(job, attempt, since=max(row.time for row in ends), now=now):
        return "running"
    launcher = [row for row in ends if row.rank == records.LAUNCHER_RANK]
    if launcher:
        return launcher[-1].status
    if any(row.status == "failed" for row in ends):
        return "failed"
    started = {row.writer for row in job.starts if row.attempt >= attempt and row.rank != records.LAUNCHER_RANK}
    started |= {max(job.services, key=lambda row: row.time).writer} if job.services else set()
    if started and started <= {row.writer for row in (*ends, *job.service_ends)}:
        return "completed"
    others = (job.starts, job.requests, job.engine_windows)
    last = max([job.steps.last_time(), job.heartbeats.last_time(), *(row.time for rows in others for row in rows)])
    return "running" if now - last < RUNNING_SECONDS else "unknown"


def _earlier_goes_on(job: JobRecords, attempt: int, *, since: float, now: float) -> bool:
    """Return whether a process of an attempt before this one lately wrote something after `since`, when this one had ended."""
    gone = {row.writer for row in job.ends} | {row.failed_writer for row in job.failures}
    after = max(since + CLOCKS_AGREE_SECONDS, now - RUNNING_SECONDS)
    tables = (job.steps, job.heartbeats)
    late = (table.take((table.column("time") > after) & (table.column("attempt") < attempt)) for table in tables)
    return any(row.writer not in gone for rows in late for row in rows)
