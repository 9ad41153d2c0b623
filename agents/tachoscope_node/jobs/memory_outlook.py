"""When the memory of a rank will be full, from its samples as they come. The rule: `tachoscope_core.jobs.memory_growth`."""

from __future__ import annotations

import msgspec

from tachoscope_core.jobs.memory_growth import LeastLevels, growth, seconds_until_full, used_and_room
from tachoscope_core.records.memory import MemorySampled


class MemoryOutlook(msgspec.Struct):
    """What is known of one process: plain data, which is saved with its rank.

    Attributes:
        levels: of what counts against its limit. full_at: when that will be reached, seconds of the host's monotonic clock;
            None: it will not, or this is not known yet.
    """

    levels: LeastLevels = msgspec.field(default_factory=LeastLevels)
    full_at: float | None = None

    def add_sample(self, sample: MemorySampled, at: float) -> None:
        """Take the next sample."""
        used, room = used_and_room(sample)
        self.levels.add(at, used)
        seconds = seconds_until_full(growth(self.levels.points()), at, room)
        self.full_at = at + seconds if seconds is not None else None
