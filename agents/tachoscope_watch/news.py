"""Which jobs do something else than when they were judged, by their agents' ledger rows: only these are judged again."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from zlib import crc32

from tachoscope_watch.ledgers import RecentTime, movement, recent_time
from tachoscope_watch.live_jobs import LiveJob
from tachoscope_watch.view import JobView

EVERY_SECONDS = 180.0
"""A job is judged once in so long, whatever its rows say; each at its own time, so that not all are due in one cycle."""
DUE = 1.0


@dataclass(frozen=True, slots=True)
class _JobState:
    """A job as it was when it last did something new.

    Attributes:
        since: Unix seconds at the end of the rows that told so; 0.0: it did nothing new since the watch knows it.
        who: attempt, world size, ranks and how they ended. size: of the news, see `JobNews.urgency`.
    """

    since: float
    who: tuple[object, ...]
    events: int
    recent: RecentTime
    size: float = 0.0


class JobNews:
    """Remembers what jobs did, from one cycle to the next.

    Args:
        over: seconds that a report is on. A job that does something new is judged with each new record until its report is on these
            seconds alone.
    """

    def __init__(self, over: float) -> None:
        self._over = over
        self._known: dict[str, _JobState] = {}

    def keep_only(self, jobs: Container[str]) -> None:
        """Forget what is known of all other jobs."""
        self._known = {job: known for job, known in self._known.items() if job in jobs}

    def urgency(self, live: LiveJob, last: JobView | None, now: float) -> float:
        """Take what a job does now; return how urgently it must be judged.

        Args:
            last: its view of the cycle before; None: there is none. now: Unix seconds.

        Returns:
            0.0: the last report is still valid. `DUE`: nothing changed, but the report is old, or the rows do not show changes.
            Above: the change, in multiples of the smallest that counts. `inf`: no report, or an event, an end or a new attempt.
        """
        recent = recent_time(live.rows, live.attempt)
        if recent is None:  # steps are too long to tell from a minute of them, or its agents write no rows
            self._known.pop(live.job, None)
            return math.inf if last is None or last.report is None else DUE
        known = self._note(live, recent, first=last is None)
        if last is None or last.report is None:
            return math.inf
        if known.since and last.report.window.end < known.since + self._over:
            return known.size
        return 0.0 if turn(live.job, now) == turn(live.job, last.judged) else DUE

    def _note(self, live: LiveJob, recent: RecentTime, *, first: bool) -> _JobState:
        known = self._known.get(live.job)
        who = (live.attempt, live.world_size, live.state, [(rank.status.rank, rank.status.ended) for rank in live.ranks])
        if known is None:
            self._known[live.job] = _JobState(0.0 if first else recent.until, who, live.events, recent, DUE)
        elif (known.who, known.events) != (who, live.events):
            self._known[live.job] = _JobState(recent.until, who, live.events, recent, math.inf)
        elif (size := movement(known.recent, recent)) > 1.0:
            self._known[live.job] = _JobState(recent.until, who, live.events, recent, size)
        return self._known[live.job]


def turn(job: str, time: float) -> int:
    """Return the number of the interval of `EVERY_SECONDS` that a time lies in; those of each job begin at other times."""
    return int((time + EVERY_SECONDS * (crc32(job.encode()) % 1000) / 1000) // EVERY_SECONDS)
