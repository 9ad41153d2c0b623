"""Ships ranges of segments to the store: noted in the journal first, each under a key that its place gives, so exactly once."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.owner import Owner
from tachoscope_core.storage.spool import offset_of_writer
from tachoscope_core.storage.store import OtherContentError, OtherOwnerError, Store
from tachoscope_node.spool.journal import Entry, Journal
from tachoscope_node.spool.owners import AGENT_DIRECTORY
from tachoscope_node.spool.segment import Segment
from tachoscope_service.common.log import Log

MAX_RANGE_BYTES = 8 << 20
_FULL_SEGMENT_BYTES = 4 << 20
_MAX_WAIT_SECONDS = 60.0
_MAX_OWNERS = 10_000
"""Jobs of which is remembered that the store knows whose they are."""
_FAILURES_IN_A_ROUND = 2
"""After so many failed writes the store is taken to be away: each may have cost seconds of waiting for it."""


@dataclass(frozen=True, slots=True)
class Policy:
    """When records go: `seconds` after the first of them was read, or as soon as `bytes` wait."""

    seconds: float
    bytes: int


def due_segments(segments: Sequence[Segment], policy: Policy, now: float) -> list[Segment]:
    """Return the segments of which a range should go now: those that are old, full or finished, or all when much waits."""
    waiting = sum(segment.shippable() - segment.shipped for segment in segments)
    return [
        segment
        for segment in segments
        if waiting >= policy.bytes
        or segment.finished
        or segment.pending > segment.shipped
        or segment.shippable() - segment.shipped >= _FULL_SEGMENT_BYTES
        or (segment.unshipped_since is not None and now - segment.unshipped_since >= policy.seconds)
    ]


class Shipper:
    """Ships what is due; between failures of the store it waits twice as long each time, up to a minute."""

    def __init__(self, store: Store, journal: Journal, node: str, log: Log, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._journal = journal
        self._node = node
        self._log = log
        self._clock = clock
        self._wait_seconds = 0.0
        self._not_before = 0.0
        self.bytes = 0
        self.objects = 0
        self.errors: Counter[str] = Counter()
        self.failing = ""
        self._owners: dict[str, Owner] = {}

    def ship(self, segments: Sequence[Segment], lock: threading.Lock, *, anyway: bool = False) -> int:
        """Ship one range of each segment; return how many went.

        Args:
            lock: guards the segments' offsets; it is not held during a write.
            anyway: do not wait after a failure: the agent is stopping.
        """
        if not segments or (self._clock() < self._not_before and not anyway):
            return 0
        with lock:
            fresh = {segment: _end_of_range(segment) for segment in segments if segment.pending == segment.shipped}
        try:
            self._journal.write(self._entry(segment, segment.shipped, end) for segment, end in fresh.items())
        except TachoscopeError as error:
            self._failed("journal", error)
            return 0
        with lock:
            for segment, end in fresh.items():
                segment.pending = end
        done: list[Segment] = []
        errors: list[TachoscopeError] = []
        for segment in sorted(segments, key=lambda segment: segment.failures):  # one that never goes must not hold up the others
            try:
                self._ship_range(segment)
                done.append(segment)
            except (OtherOwnerError, OtherContentError) as error:
                self._refuse(segment, error)
            except TachoscopeError as error:
                segment.failures += 1
                errors.append(error)
                if len(errors) == _FAILURES_IN_A_ROUND:
                    break
        if errors:
            self._failed("store", errors[-1])
        else:
            self._worked()
        self._note(done, lock)
        return len(done)

    def _refuse(self, segment: Segment, error: TachoscopeError) -> None:
        """Set a segment aside that the store does not take, now or ever; its file stays."""
        segment.refused = True
        self.errors["refused"] += 1
        self._log.warning(f"refused {segment.directory}", f"{segment.path}: {error}")

    def _claim(self, job: str, segment: Segment) -> None:
        """Have the store know whose job it is; what the agent itself writes is of jobs that are others'."""
        of_agent = segment.uid == os.geteuid() and segment.directory.startswith(AGENT_DIRECTORY)
        if not of_agent and self._owners.get(job) != segment.owner:
            self._store.claim(job, segment.owner)
            if len(self._owners) >= _MAX_OWNERS:
                self._owners.clear()
            self._owners[job] = segment.owner

    def _ship_range(self, segment: Segment) -> None:
        assert segment.address is not None
        start, end = segment.shipped, segment.pending
        try:
            content = segment.content(start, end)
        except OSError as error:  # somebody cut the file: what is gone cannot be shipped
            self.errors["spool"] += 1
            self._log.warning("cut short", str(error))
            return
        self._claim(segment.address.job, segment)
        self._store.write(
            segment.address.job,
            host=self._node,
            writer=segment.writer,
            attempt=segment.address.attempt,
            offset=offset_of_writer(segment.number, start),
            time=segment.address.time,
            lines=content,
            continues=segment.continued,
        )
        segment.continued = True
        self.bytes += len(content)
        self.objects += 1

    def _note(self, done: list[Segment], lock: threading.Lock) -> None:
        try:
            self._journal.write(self._entry(segment, segment.pending, segment.pending) for segment in done)
        except TachoscopeError as error:  # the same ranges will go again, under the same keys
            self._failed("journal", error)
            return
        now = self._clock()
        with lock:
            for segment in done:
                segment.shipped = segment.pending
                segment.unshipped_since = now if segment.shippable() > segment.shipped else None

    def _entry(self, segment: Segment, shipped: int, pending: int) -> Entry:
        assert segment.address is not None
        address = segment.address
        return Entry(*segment.key, segment.inode, shipped, pending, address.job, address.attempt, address.time)

    def _failed(self, part: str, error: TachoscopeError) -> None:
        self.errors[part] += 1
        self.failing = str(error)
        self._wait_seconds = min(max(2 * self._wait_seconds, 1.0), _MAX_WAIT_SECONDS)
        self._not_before = self._clock() + self._wait_seconds
        self._log.warning(f"ship {part}", f"{error}; the records stay in the spool, next try in {self._wait_seconds:.0f} s")

    def _worked(self) -> None:
        if self.failing:
            self._log.info("shipping works again")
        self._wait_seconds, self._not_before, self.failing = 0.0, 0.0, ""


def _end_of_range(segment: Segment) -> int:
    """Return where the next range ends: at the end of a line, and not so far on that it would not fit into memory."""
    end = segment.shippable()
    if end - segment.shipped <= MAX_RANGE_BYTES:
        return end
    try:
        part = segment.content(segment.shipped, segment.shipped + MAX_RANGE_BYTES)
    except OSError:  # somebody cut the file; shipping it will say so
        return segment.shipped + MAX_RANGE_BYTES
    return segment.shipped + part.rfind(b"\n") + 1
