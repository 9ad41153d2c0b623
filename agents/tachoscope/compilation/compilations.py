"""Follows the compilations of one process: their time goes to the phase `compile`, and each gets a record.

The time is measured where torch compiles, on the training thread. A backward that is compiled when it first runs is compiled on the
thread of autograd where there is an accelerator, while the training thread waits in backward: that time is moved to the phase. What
was compiled, and why, is read from what torch keeps, on the sampler's thread. While nothing is compiled the training thread does
nothing.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from tachoscope import guard
from tachoscope.compilation.dynamo_metrics import MOST_BREAKS_A_RECORD, Compilation, DynamoMetrics
from tachoscope.spool.outbox import Outbox
from tachoscope.timing.phases import BACKWARD
from tachoscope_core.records import records

MOST_RECORDS = 2_000
"""Of a process: one that compiles without end must not fill its spool."""
_UTILS = "torch._dynamo.utils"


@dataclass(frozen=True, slots=True)
class OpenCompilation:
    """A compilation that goes on; `segment`: what the device was at. `began`: monotonic nanoseconds, 0 on the training thread."""

    segment: str
    began: int


class Compilations:
    """The compilations of one process.

    Args:
        machine: the step machine, which gets their time. timed: torch tells when it compiles.
    """

    def __init__(self, outbox: Outbox, machine: Any, *, timed: bool) -> None:
        self.timed = timed
        self._outbox = outbox
        self._machine = machine
        self._metrics: DynamoMetrics | None = None
        self._count = self._written = 0
        self._unreadable = False
        self._elsewhere = 0
        self._breaks: dict[str, str] = {}

    # --- where torch compiles ----------------------------------------------------------------------------------------------

    def begin(self, *, watched: bool) -> OpenCompilation | None:
        """The calling thread begins to compile; return what `end` needs, None where its time is nobody's.

        Args:
            watched: it is the training thread.
        """
        if watched:
            return OpenCompilation(self._machine.compile_begin(), 0)
        if self._machine.timeline.phase != BACKWARD:
            return None
        self._elsewhere += 1
        return OpenCompilation(self._machine.compile_begin(elsewhere=True), time.monotonic_ns())

    def end(self, opened: OpenCompilation) -> None:
        """The compilation is over."""
        if opened.began:
            self._elsewhere -= 1
            self._machine.compile_end(opened.segment, time.monotonic_ns() - opened.began)
        else:
            self._machine.compile_end(opened.segment)

    # --- the sampler's thread ----------------------------------------------------------------------------------------------

    @property
    def elsewhere(self) -> bool:
        """Whether the training thread waits for another one that compiles."""
        return self._elsewhere > 0

    @property
    def count(self) -> int | None:
        """Compilations so far; None: torch is not there, or this version of it cannot be watched."""
        if "torch" not in sys.modules:
            return None
        used = _UTILS in sys.modules
        return self._count if not used or (self.timed and self._kept is not None) else None

    def write_new(self) -> None:
        """Write a record of each compilation that ended since the last call. More than `MOST_RECORDS` are only counted."""
        metrics = self._kept
        if metrics is None:
            return
        try:
            found = metrics.new_compilations()
            if len(self._breaks) < MOST_BREAKS_A_RECORD:  # others wait for the next record
                self._breaks |= metrics.new_graph_breaks()
        except Exception as error:  # a version of torch that keeps something else under these names
            self._unreadable = True
            guard.print_line(f"why code is compiled again is not recorded: {type(error).__name__}: {error}")
            return
        self._count += len(found)
        rows = [_fields(one) for one in found[: max(MOST_RECORDS - self._written, 0)]]
        if rows:
            self._written += len(rows)
            rows[-1][1]["graph_breaks"], self._breaks = self._breaks, {}
            offset = time.time_ns() - time.monotonic_ns()
            self._outbox.write_all([(records.CompilationDone, max(end - offset, 0), fields) for end, fields in rows])

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
