"""Which attempt of its job a run is: the next one, or, on one node of several, the attempt that began elsewhere a moment ago.

Nodes of a job are started one after the other, each by a `tachoscope run` of its own, and what the first one records may be in the
store before the last one begins.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence

from tachoscope_core.records import records
from tachoscope_core.storage.compacted import last_attempt
from tachoscope_core.storage.store import BrokenObjectError, Store, StoredSegment, host_folder

JOIN_SECONDS = 600.0
"""So long torchrun's nodes wait for each other (`--rdzv-conf join_timeout`): a node that begins later begins another attempt."""
_MOST_READ = 64
"""Objects that are read to find launchers: of a job of a thousand nodes some are enough."""


def number(store: Store, job: str, *, host: str, joins: bool, now: float) -> int:
    """Return the attempt that a run on `host` is.

    It joins the newest attempt if that began less than `JOIN_SECONDS` ago, has had no run on this host, and no node's run of it has
    ended. Else it is the next.

    Args:
        joins: the run is that of one node of several. now: Unix seconds.

    Raises:
        TachoscopeError: the store cannot be read.
    """
    segments = list(store.segments(job))
    following = last_attempt(store, job) + 1
    launchers = _launchers(store, segments) if joins and segments else []
    if not launchers:
        return following
    newest = max(start.attempt for start, _ in launchers)
    of_newest = [(start, writer) for start, writer in launchers if start.attempt == newest]
    here = any(segment.attempt >= newest and segment.host == host_folder(host) for segment in segments)
    old = min(start.time for start, _ in of_newest) < now - JOIN_SECONDS
    if here or old or _any_ended(store, segments, {writer for _, writer in of_newest}):
        return following
    return newest


def _launchers(store: Store, segments: Sequence[StoredSegment]) -> list[tuple[records.JobStarted, str]]:
    """Return the start records of the newest attempts' launchers, with their writers."""
    firsts = sorted((segment for segment in segments if segment.offset == 0), key=lambda segment: -segment.attempt)
    found: list[tuple[records.JobStarted, str]] = []
    for segment in firsts[:_MOST_READ]:
        if found and segment.attempt < max(start.attempt for start, _ in found):
            break
        first = next(_decoded(store, [segment]), None)
        if isinstance(first, records.JobStarted) and first.rank == records.LAUNCHER_RANK:
            found.append((first, segment.writer))
    return found


def _any_ended(store: Store, segments: Sequence[StoredSegment], writers: set[str]) -> bool:
    theirs = [segment for segment in segments if segment.writer in writers]
    return any(isinstance(record, records.JobEnded) for record in _decoded(store, theirs))


def _decoded(store: Store, segments: Iterable[StoredSegment]) -> Iterator[records.AnyRecord]:
    for segment in segments:
        with contextlib.suppress(BrokenObjectError):
            for line in io.BytesIO(store.read(segment)):
                with contextlib.suppress(records.UnknownKindError, records.MalformedRecordError):
                    yield records.decode(line)
