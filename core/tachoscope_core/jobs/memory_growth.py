"""When memory grows until it is full: the one rule of all who judge it, in the process, live on a node, and in hindsight.

Memory that is freed again does not count: of each part of the time the least value is looked at. What levels off does not count
either: the rate is that of the last half of the growth, at the lower end of its interval, and it counts only once at least as much
was filled as is left. So a cache is not taken for a leak while it fills less than half of the room that it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from tachoscope_core.records.memory import HOST, ControlGroupMemory, MemorySampled, ProcessMemory

MOST_PARTS = 32
"""Into which the time is divided; with more, parts are joined in pairs."""
LEAST_PARTS = 8
LEAST_SECONDS = 20.0
LEAST_BYTES = 32 << 20
_LEAST_AFTER_BEND = 4
_NOISE_FACTOR = 3.0
_LOW_QUANTILE = 0.25
"""Of the slopes between all pairs of points: in a staircase some are zero."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that grows.

    Attributes:
        since: when it began, on the clock of the points. bytes: by which it grew since then.
        bytes_per_second: of the last half of the growth. low_bytes_per_second: the lower end of its interval.
    """

    since: float
    bytes: float
    bytes_per_second: float
    low_bytes_per_second: float


class LeastLevels(msgspec.Struct):
    """The least value in each of at most `MOST_PARTS` equal parts of the time since the first value; bounded, plain data.

    Attributes:
        part_seconds: length of a part. start: time of the first value. least: number of the part, time and value of its least.
    """

    part_seconds: float = 1.0
    start: float | None = None
    least: list[tuple[int, float, float]] = msgspec.field(default_factory=list)

    def add(self, time: float, value: float) -> None:
        """Take a value; times do not decrease."""
        if self.start is None:
            self.start = time
        part = int((time - self.start) / self.part_seconds)
        while part >= MOST_PARTS:
            self._join_pairs()
            part //= 2
        self._put(part, time, value)

    def points(self) -> list[tuple[float, float]]:
        """Return time and value of the least of each part that has one, in the order of time."""
        return [(time, value) for _, time, value in self.least]

    def _put(self, part: int, time: float, value: float) -> None:
        if self.least and self.least[-1][0] == part:
            if value < self.least[-1][2]:
                self.least[-1] = (part, time, value)
        else:
            self.least.append((part, time, value))

    def _join_pairs(self) -> None:
        self.part_seconds *= 2
        before, self.least = self.least, []
        for part, time, value in before:
            self._put(part // 2, time, value)


def growth(
    points: Sequence[tuple[float, float]], *, least_seconds: float = LEAST_SECONDS, least_bytes: float = LEAST_BYTES
) -> Growth | None:
    """Return how memory grows, given the points of `LeastLevels`; None: it does not, it levels off, or this is not known yet."""
    if len(points) < LEAST_PARTS or points[-1][0] - points[0][0] < least_seconds:
        return None
    if points[-1][1] - min(value for _, value in points) < least_bytes:  # the usual case, which is to cost nothing
        return None
    place, noise = bend(points)
    grown = points[place:]
    if len(grown) < _LEAST_AFTER_BEND:
        return None
    recent = grown[-max(len(grown) // 2, _LEAST_AFTER_BEND) :]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for place, earlier in enumerate(recent)
        for later in recent[place + 1 :]
        if later[0] > earlier[0]
    )
    low = slopes[int(_LOW_QUANTILE * len(slopes))] if slopes else 0.0
    rise = grown[-1][1] - grown[0][1]
    if low <= 0.0 or rise < max(least_bytes, _NOISE_FACTOR * noise):
        return None
    return Growth(grown[0][0], rise, median(slopes), low)


def seconds_until_full(found: Sequence[Growth], now: float, room_bytes: float) -> float | None:
    """Return in how many seconds memory that grows, of all of these together, fills the room that is left.

    None: it is not known yet, or never.
    """
    if not found or room_bytes > sum(one.low_bytes_per_second * (now - one.since) for one in found):
        return None
    return room_bytes / sum(one.bytes_per_second for one in found)


def bend(points: Sequence[tuple[float, float]]) -> tuple[int, float]:
    """Return where a level that then grows in a straight line fits best, and the median distance of the points from it."""
    best: tuple[float, int, float] | None = None
    for place in range(len(points) - 1):
        since = points[place][0]
        xs = [max(time - since, 0.0) for time, _ in points]
        mean_x, mean_y = sum(xs) / len(xs), sum(value for _, value in points) / len(points)
        spread = sum((x - mean_x) ** 2 for x in xs)
        if spread <= 0.0:
            continue
        slope = sum((x - mean_x) * (value - mean_y) for x, (_, value) in zip(xs, points, strict=True)) / spread
        apart = [abs(value - mean_y - slope * (x - mean_x)) for x, (_, value) in zip(xs, points, strict=True)]
        squares = sum(one * one for one in apart)
        if best is None or squares < best[0]:
            best = squares, place, median(apart)
    return (best[1], best[2]) if best is not None else (0, 0.0)


def held_bytes(memory: ProcessMemory) -> int:
    """Return what a process holds that the kernel cannot take back without killing it or swapping."""
    return memory.anonymous_bytes + memory.shared_bytes


def own_bytes(sample: MemorySampled) -> int:
    """Return what a rank and the workers of its loader hold. Pages that forked workers share with it count for each."""
    return held_bytes(sample.process) + sum(held_bytes(one) for one in sample.workers)


def in_limited_group(sample: MemorySampled) -> bool:
    """Return whether the control group of a rank has a limit below what the host has."""
    return sample.group is not None and is_limited(sample.group, sample.total_bytes)


def is_limited(group: ControlGroupMemory, host_total_bytes: int) -> bool:
    """Return whether a control group has a limit below what the host has; 0: that is not known."""
    return group.limit_bytes > 0 and (not host_total_bytes or group.limit_bytes < host_total_bytes)


def limit_of(sample: MemorySampled) -> str:
    """Return whose limit counts for a rank: path of its control group, or `HOST`."""
    return sample.group.path if sample.group is not None and in_limited_group(sample) else HOST


def used_and_room(sample: MemorySampled) -> tuple[float, float] | None:
    """Return bytes that count against the limit of a rank, and how many are left; None: that is not known.

    Of its control group, without page cache, which the kernel takes back; without a limit it is what the rank itself holds, and
    what is available on the host.
    """
    if not sample.limit_known or not sample.total_bytes:
        return None
    if sample.group is not None and in_limited_group(sample):
        used = sample.group.anonymous_bytes + sample.group.shared_bytes
        return used, max(sample.group.limit_bytes - used, 0)
    return own_bytes(sample), sample.available_bytes
