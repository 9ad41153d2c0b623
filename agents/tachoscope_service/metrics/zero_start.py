"""Shows a counter at 0 for two scrapes before its first value, where it comes into being with one.

Who reads counters needs two of its samples to see that it grew: one that begins at 1 shows no growth. Most counters are there at 0
before anything happens; those by the name of a shard, of a job whose first check finds something, or of the time of a job, which is
known only once its start-up is over, cannot be.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tachoscope_core.metrics.training import (
    INTEGRITY_EVENTS,
    JOB_EFFECTIVE_SECONDS,
    JOB_HELD_SECONDS,
    JOB_TIME_SECONDS,
    SHARD_FAILURES,
)
from tachoscope_service.metrics.family import Family, Labels

SCRAPE_SECONDS, _SCRAPES_AT_ZERO = 30.0, 2
"""The usual time between two scrapes, and how many see a 0: one may be missed."""
_OF_JOB_TIME = (JOB_TIME_SECONDS, JOB_HELD_SECONDS, JOB_EFFECTIVE_SECONDS)
METRICS = frozenset(metric.name for metric in (INTEGRITY_EVENTS, SHARD_FAILURES, *_OF_JOB_TIME))


class ZeroStart:
    """Remembers since when each series is there; what is there at the first look is old. Any thread may call it."""

    def __init__(self, scrape_seconds: float = SCRAPE_SECONDS) -> None:
        self._at_zero_seconds = _SCRAPES_AT_ZERO * scrape_seconds
        self._lock = threading.Lock()
        self._born: dict[tuple[str, Labels], float] | None = None

    def with_zero_starts(self, families: Sequence[Family], now: float) -> list[Family]:
        """Return the families with the new series at 0; `now` is monotonic."""
        with self._lock:
            first = float("-inf") if self._born is None else now
            before = self._born or {}
            born = {
                (family.metric.name, labels): before.get((family.metric.name, labels), first)
                for family in families
                if family.metric.name in METRICS
                for labels, _ in family.points
            }
            self._born = born
        old_before = now - self._at_zero_seconds
        return [_at_zero(family, born, old_before) if family.metric.name in METRICS else family for family in families]


def _at_zero(family: Family, born: dict[tuple[str, Labels], float], old_before: float) -> Family:
    name = family.metric.name
    return Family(family.metric, [(labels, value if born[name, labels] <= old_before else 0.0) for labels, value in family.points])
