"""Follows the allocations of a process that fills its memory for some seconds, to find the lines of the job that keep them.

Used by the sampler's thread of a rank, and by that of each loader worker. While allocations are followed, a training
that is bound by Python runs at a third of its speed. So it is done only where memory grows and half of it is full, three times at
most in the life of a process, for two seconds, or ten where steps are long.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping

from tachoscope.memory.allocation_trace import TRACE
from tachoscope.memory.kept_objects import MOST_FRAMES, HeldBlocks, grown_lines, held_blocks, kept_objects
from tachoscope.timing import procfs
from tachoscope_core.jobs.memory_growth import LeastLevels, growth

SWITCH = "TACHOSCOPE_MEMORY_LINES"
"""Environment variable; `0`: never follow allocations."""
LOOK_SECONDS = 0.25
LOOK_AGAIN_SECONDS = 0.5
"""Where memory grows, but enough is left."""
SUSPECT_SECONDS = 2.0
SUSPECT_BYTES = 16 << 20
SETTLE_SECONDS, SETTLE_STEPS = 0.5, 2
"""What is allocated in this time is not looked at: what replaces something else, such as an entry of a queue, has come by then."""
FOLLOW_SECONDS, FOLLOW_STEPS = 1.5, 8
MOST_FOLLOW_SECONDS = 10.0
MOST_TRACE_BYTES = 8 << 20
"""Of what `tracemalloc` itself holds: with more it is stopped."""
MOST_TIMES = 3
_PAUSE_FACTOR = 20.0
"""Before it is done again, as a multiple of how long it took."""
_MOST_LINES = 8
_LEAST_SHARE = 0.01


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether allocations may be followed."""
    return environ.get(SWITCH, "").strip() != "0"


class GrowthLines:
    """Follows the allocations of its process when this grows; `poll` is called again and again by one thread.

    Args:
        is_half_full: whether at least as much memory is taken as is left.
        steps: the steps that ended so far; of a process without steps always 0.
        held: bytes that the process holds; None: not known. forked: it shares pages with the process that forked it.
    """

    def __init__(
        self,
        is_half_full: Callable[[], bool],
        steps: Callable[[], int] | None = None,
        held: Callable[[], int | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        forked: bool = False,
    ) -> None:
        self._is_half_full = is_half_full
        self._steps = steps
        self._held = held or _held_bytes
        self._clock = clock
        self._forked = forked
        self._levels = LeastLevels(LOOK_SECONDS)
        self._look_at = 0.0
        self._times = 0
        self._began: float | None = None
        self._steps_at_begin = 0
        self._before: tuple[HeldBlocks, int] | None = None
        self._found: tuple[dict[str, float], float] = ({}, 0.0)

    def poll(self) -> None:
        """Look how much the process holds, a few times a second, and begin or end to follow its allocations."""
        now = self._clock()
        full = self._began is not None and tracemalloc.get_tracemalloc_memory() > MOST_TRACE_BYTES
        if now < self._look_at and not full:
            return
        self._look_at = now + LOOK_SECONDS
        held = self._held()
        if held is None:
            if self._began is not None:
                self._end(now)
            return
        if self._began is not None:
            try:
                self._follow(now, held, full=full)
            except Exception:
                self._times = MOST_TIMES
                self.stop()
                raise
        elif self._times < MOST_TIMES:
            self._levels.add(now, held)
            if growth(self._levels.points(), least_seconds=SUSPECT_SECONDS, least_bytes=SUSPECT_BYTES) is not None:
                if self._is_half_full():
                    self._begin(now)
                else:
                    self._look_at = now + LOOK_AGAIN_SECONDS

    def taken(self) -> tuple[dict[str, float], float]:
        """Return, once, bytes by line that came and stayed, and in how many seconds; none where nothing new is known."""
        found, self._found = self._found, ({}, 0.0)
        return found

    def stop(self) -> None:
        """Follow no more."""
        if self._began is not None:
            self._began, self._before = None, None
            TRACE.end()

    def _begin(self, now: float) -> None:
        self._times += 1
        self._levels = LeastLevels(LOOK_SECONDS)
        if not TRACE.start(MOST_FRAMES):  # the job traces by itself, or the trace could not be ended
            self._times = MOST_TIMES
            return
        self._began, self._before = now, None
        self._steps_at_begin = self._steps_now()

    def _follow(self, now: float, held: int, *, full: bool) -> None:
        assert self._began is not None
        lasted, steps = now - self._began, self._steps_now() - self._steps_at_begin
        if not tracemalloc.is_tracing():  # the job stopped it
            self._times = MOST_TIMES
            self.stop()
            return
        late = lasted >= MOST_FOLLOW_SECONDS or full
        if self._before is None:
            if lasted >= SETTLE_SECONDS and (steps >= SETTLE_STEPS or self._steps is None or late):
                self._before = held_blocks(owners=not self._forked), held
                self._since = now
            elif late:
                self._end(now)
            return
        if late or (now - self._since >= FOLLOW_SECONDS and (steps >= FOLLOW_STEPS or self._steps is None)):
            (before, held_before), after = self._before, held_blocks(owners=not self._forked)
            self._end(now)
            lines = grown_lines(kept_objects(before), kept_objects(after), held - held_before)
            least = _LEAST_SHARE * sum(lines.values())
            self._found = {line: size for line, size in list(lines.items())[:_MOST_LINES] if size >= least}, now - self._since

    def _end(self, now: float) -> None:
        assert self._began is not None
        self._look_at = now + _PAUSE_FACTOR * (now - self._began)
        self.stop()

    def _steps_now(self) -> int:
        return self._steps() if self._steps is not None else 0


def _held_bytes() -> int | None:
    kinds = procfs.resident_by_kind()
    return kinds["anonymous_bytes"] + kinds["shared_bytes"] if {"anonymous_bytes", "shared_bytes"} <= kinds.keys() else None
