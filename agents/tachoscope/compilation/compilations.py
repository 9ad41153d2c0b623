"""Follows the compilations of one process: their time goes to the phase `compile`, and each gets a record.

The time is measured where torch compiles, on the training thread. A backward that is compiled when it first runs is compiled on the
thread of autograd where there is an accelerator, while the training thread waits in backward: that time is moved to the phase. What
was compiled, and why, is read from what torch keeps, on the sampler's thread. While nothing is compiled the training thread does
nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from tachoscope import guard
from tachoscope.compilation.dynamo_metrics import MOST_BREAKS_A_RECORD, Compilation, DynamoMetrics
from tachoscope.spool.outbox import Outbox
from tachoscope.timing.phases import BACKWARD
from tachoscope_core.records import records

MOST_AT_ONCE, RECORDS_PER_SECOND = 2_000, 0.1
"""Burst and rate of records: a process that compiles without end must not fill its spool."""
_UTILS = "torch._dynamo.utils"


@dataclass(frozen=True, slots=True)
class OpenCompilation:
    """A compilation in progress. `thread`: the training thread, if it compiles, else 0. `segment`: what the device was doing."""

    thread: int
    segment: str = ""


class Compilations:
    """The compilations of one process since it is watched.

    Args:
        machine: the step machine, which gets their time. timed: torch tells when it compiles.

    Attributes:
        has_news: something was compiled since `write_new`.
    """

    def __init__(self, outbox: Outbox, machine: Any, *, timed: bool) -> None:
        self.timed = timed
        self._outbox = outbox
        self._machine = machine
        self._metrics: DynamoMetrics | None = None
        self._count = 0
        self._allowance, self._allowed_at = float(MOST_AT_ONCE), time.monotonic()
        self._unreadable = False
        self.has_news = False
        self._elsewhere = 0
        self._elsewhere_since = 0
        self._elsewhere_segment = ""
        self._counting = threading.Lock()
        self._writing = threading.Lock()
        self._breaks: dict[str, str] = {}
        self._read()  # earlier compilations do not count: in a forked child they are the parent's

    # --- where torch compiles ----------------------------------------------------------------------------------------------

    def begin(self, *, watched: bool) -> OpenCompilation | None:
        """The calling thread begins to compile; return what `end` needs, None where its time is nobody's.

        Args:
            watched: it is the training thread.
        """
        if watched:
            return OpenCompilation(threading.get_ident(), self._machine.compile_begin())
        if self._machine.timeline.phase != BACKWARD:
            return None
        with self._counting:  # there is a thread of autograd for each device
            if not self._elsewhere:
                self._elsewhere_segment = self._machine.compile_begin(elsewhere=True)
                self._elsewhere_since = time.monotonic_ns()
            self._elsewhere += 1
        return OpenCompilation(0)

    def end(self, opened: OpenCompilation) -> None:
        """The compilation is over."""
        self.has_news = True
        if opened.thread:
            if opened.thread == self._machine.thread_ident:  # else another thread is watched by now, and this one's phases are gone
                self._machine.compile_end(opened.segment)
            return
        with self._counting:
            self._elsewhere -= 1
            if self._elsewhere:
                return
            timeline = self._machine.timeline
            # What the training thread did itself meanwhile is accounted already.
            waited = time.monotonic_ns() - max(self._elsewhere_since, timeline.last)
            if waited > 0 and timeline.phase == BACKWARD:
                self._machine.compile_end(self._elsewhere_segment, waited)

    # --- the sampler's thread ----------------------------------------------------------------------------------------------

    @property
    def elsewhere(self) -> bool:
        """Whether the training thread waits for another one that compiles."""
        return self._elsewhere > 0 and self._machine.timeline.phase == BACKWARD

    @property
    def count(self) -> int | None:
        """Compilations so far; None: torch is not there, this version of it cannot be watched, or some were missed."""
        if "torch" not in sys.modules:
            return None
        used = _UTILS in sys.modules
        known = self.timed and self._kept is not None and not self._kept.missed
        return self._count if not used or known else None

    def write_new(self) -> None:
        """Write a record of each compilation that ended since the last call. What the allowance does not cover is only counted."""
        if not self._writing.acquire(blocking=False):  # at the end, beside a sampler that did not stop in time
            return
        try:
            self.has_news = False
            self._write(self._read())
        finally:
            self._writing.release()

    def _write(self, found: list[Compilation]) -> None:
        if not found:
            return
        self._count += len(found)
        now = time.monotonic()
        self._allowance = min(self._allowance + (now - self._allowed_at) * RECORDS_PER_SECOND, MOST_AT_ONCE)
        self._allowed_at = now
        rows = [_fields(one) for one in found[: int(self._allowance)]]
        if rows:
            self._allowance -= len(rows)
            rows[-1][1]["graph_breaks"], self._breaks = self._breaks, {}
            offset = time.time_ns() - time.monotonic_ns()
            self._outbox.write_all([(records.CompilationDone, max(end - offset, 0), fields) for end, fields in rows])

    def _read(self) -> list[Compilation]:
        """Return the compilations since the last call, and keep the graph breaks for the next record."""
        metrics = self._kept
        if metrics is None:
            return []
        try:
            found = metrics.new_compilations()
            if len(self._breaks) < MOST_BREAKS_A_RECORD:  # others wait for the next record
                self._breaks |= metrics.new_graph_breaks()
        except Exception as error:  # a version of torch that keeps something else under these names
            self._unreadable = True
            guard.print_line(f"why code is compiled again is not recorded: {type(error).__name__}: {error}")
            return []
        return found

    @property
    def _kept(self) -> DynamoMetrics | None:
        """What torch keeps of its compilations; None: nothing, or not where it is looked for."""
        if self._metrics is None:
            utils = sys.modules.get(_UTILS)
            if utils is None:
                return None
            self._metrics = DynamoMetrics(utils)
        return self._metrics if self._metrics.is_kept and not self._unreadable else None


def _fields(one: Compilation) -> tuple[int, dict[str, Any]]:
    """Return the end of a compilation, Unix nanoseconds, and the fields of its record."""
    fields = {name: getattr(one, name) for name in Compilation.__slots__ if name != "end_seconds"}
    return int(one.end_seconds * 1e9), fields
