"""Events that are written as two records, a begin and an end, put together; the begin may lie many chunks back."""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec import Raw

from tachoscope_analyzers.trace.reading.decode_events import NO_ARGS, Args, Begin, Complete, End
from tachoscope_analyzers.trace.reading.exact_time import NO_TIME, from_text
from tachoscope_analyzers.trace.reading.string_codes import TrackCodes

MOST_OPEN = 200_000
MOST_OPEN_BYTES = 64 << 20
"""Nothing nests so deep: these begins have no end, and the memory for them is bounded."""


class Pairs:
    """The begins of each track that wait for their ends.

    Attributes:
        open_count: how many those are.
    """

    def __init__(self, tracks: TrackCodes, counts: Counter[str]) -> None:
        self.open_count = 0
        self._tracks = tracks
        self._counts = counts
        self._open: dict[int, list[tuple[int, Begin]]] = {}
        self._bytes_left = MOST_OPEN_BYTES

    def completed(self, events: list[Begin | End]) -> list[Complete]:
        """Return the complete events whose ends are among `events`, given in the order of the file."""
        found = []
        for event, time in zip(events, from_text([event.ts for event in events]).tolist(), strict=True):
            if time == NO_TIME:
                self._counts["events_without_time"] += 1
                continue
            track = self._tracks[event.pid, event.tid]
            if type(event) is Begin:
                self._begun(track, time, event)
            elif stack := self._open.get(track):
                found.append(self._ended(*stack.pop(), time))
            else:
                self._counts["ends_without_begin"] += 1
        return found

    def _begun(self, track: int, time: int, event: Begin) -> None:
        size = len(event.name) + len(event.cat)
        if self.open_count >= MOST_OPEN or size > self._bytes_left:
            self._counts["begins_beyond_the_limit"] += 1
            return
        self._bytes_left -= size
        self.open_count += 1
        event.ts = event.ts.copy()  # a piece of the chunk's text would keep all of it in memory
        if event.args is not NO_ARGS:
            event.args = _detached(event.args)
        self._open.setdefault(track, []).append((time, event))

    def _ended(self, begun: int, event: Begin, ended: int) -> Complete:
        self._bytes_left += len(event.name) + len(event.cat)
        self.open_count -= 1
        return Complete(event.ts, event.name, event.cat, (ended - begun) / 1000, event.pid, event.tid, event.args)


def _detached(args: Args) -> Args:
    kept = {name: value.copy() for name in args.__struct_fields__ if type(value := getattr(args, name)) is Raw}
    return msgspec.structs.replace(args, **kept)
