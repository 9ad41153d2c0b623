"""When the memory of a job will be full, from the samples of its processes: live on a node, and in reports.

Nothing is known of a process whose samples stop, or whose control group could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tachoscope_core.jobs.memory_growth import LeastLevels, growth, limit_of, seconds_until_full, used_and_room
from tachoscope_core.records.memory import HOST, LONGEST_SECONDS, MemorySampled

KNOWN_SECONDS = 2.5 * LONGEST_SECONDS
"""A sample is valid for this time: more than two intervals."""


class MemoryOutlook(msgspec.Struct):
    """What is known of one process: plain data, which is saved with its rank.

    Attributes:
        levels: of what counts against its limit. limit_of: path of the control group, or `HOST`. room_bytes: that were left at the
            last sample. sampled_at: time of the last sample; None: it did not say them.
    """

    levels: LeastLevels = msgspec.field(default_factory=LeastLevels)
    limit_of: str = ""
    room_bytes: float = 0.0
    sampled_at: float | None = None

    def add_sample(self, sample: MemorySampled, at: float) -> None:
        """Take the next sample."""
        known = used_and_room(sample)
        if known is None:
            self.sampled_at = None
            return
        place = limit_of(sample)
        if place != self.limit_of:  # another amount is compared with another limit
            self.limit_of, self.levels = place, LeastLevels()
        used, self.room_bytes = known
        self.levels.add(at, used)
        self.sampled_at = at


def full_at(outlooks: Iterable[MemoryOutlook], now: float) -> float | None:
    """Return when the memory of a job's processes on one host will be full; None: it will not, or this is not known.

    What a control group holds, each of its processes reports. What the host has left, all processes take together.
    """
    by_limit: dict[str, list[MemoryOutlook]] = {}
    for one in outlooks:
        if one.sampled_at is not None and now - one.sampled_at <= KNOWN_SECONDS:
            by_limit.setdefault(one.limit_of, []).append(one)
    times = [at for place, of in by_limit.items() for at in ([_full_at(of)] if place == HOST else [_full_at([one]) for one in of])]
    return min((at for at in times if at is not None), default=None)


def _full_at(outlooks: list[MemoryOutlook]) -> float | None:
    newest = max(outlooks, key=lambda one: one.sampled_at or 0.0)
    found = [grows for one in outlooks if (grows := growth(one.levels.points())) is not None]
    at = newest.sampled_at or 0.0
    seconds = seconds_until_full(found, at, newest.room_bytes)
    return at + seconds if seconds is not None else None
