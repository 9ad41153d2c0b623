"""The heartbeats of a whole life: what those of a process say together, and those of some times, one by one."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tachoscope_analyzers.stats.distribution import Distribution
from tachoscope_core.records.records import GRADIENT_STEPS, OTHER_THREADS, Heartbeat

Windows = Mapping[str, Sequence[tuple[float, float]]]
"""Times of processes, by writer, in nanoseconds of the process's monotonic clock."""

_SINCE_THE_BEGIN = (OTHER_THREADS, GRADIENT_STEPS)
"""Signals that count since the process began to record; others are sums over the window."""
_MOST_LENGTHS = 4096
"""Of windows of a process that are kept to tell the usual one exactly."""


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """What a heartbeat says of a time in which no step ended; see `Heartbeat`."""

    monotonic_ns: int
    phase: str
    window_seconds: float
    where: Mapping[str, Mapping[str, int]]


class _Sums:
    """The heartbeats of one process as one."""

    def __init__(self) -> None:
        self.count = 0
        self._last: Heartbeat | None = None
        self._time = 0.0
        self._step = self._dropped = 0
        self._signals: dict[str, float] = {}
        self._wait_samples: dict[str, dict[str, int]] = {}
        self._activity: dict[str, dict[str, int]] = {}
        self._lengths = Distribution(_MOST_LENGTHS)
        self._some_lengths: list[float] = []
        self._longest = 0.0

    def add(self, beat: Heartbeat) -> None:
        self.count += 1
        if self._last is None or beat.monotonic_ns >= self._last.monotonic_ns:
            self._last = beat
        self._time = max(self._time, beat.time)
        self._step, self._dropped = max(self._step, beat.step), max(self._dropped, beat.dropped_total)
        if beat.window_seconds > 0:
            self._some_lengths.append(beat.window_seconds)
            if len(self._some_lengths) >= _MOST_LENGTHS:
                self._take_lengths()
        signals = self._signals
        for name, value in beat.signals.items():
            before = signals.get(name, 0.0)
            signals[name] = max(before, value) if name in _SINCE_THE_BEGIN else before + value
        for sums, samples in ((self._wait_samples, beat.wait_samples), (self._activity, beat.activity)):
            for phase, counts in samples.items():
                own = sums.setdefault(phase, {})
                for key, count in counts.items():
                    own[key] = own.get(key, 0) + count

    def together(self) -> Heartbeat:
        assert self._last is not None
        return msgspec.structs.replace(
            self._last,
            time=self._time,
            step=self._step,
            dropped_total=self._dropped,
            signals=dict(self._signals),
            wait_samples={phase: dict(counts) for phase, counts in self._wait_samples.items()},
            activity={phase: dict(counts) for phase, counts in self._activity.items()},
            where={},
        )

    @property
    def usual_window(self) -> float | None:
        self._take_lengths()
        return self._lengths.quantiles([0.5])[0] if self._lengths.count else None

    @property
    def longest_window(self) -> float:
        return max(self._longest, *self._some_lengths, 0.0)

    def _take_lengths(self) -> None:
        self._longest = max(self._longest, *self._some_lengths, 0.0)
        self._lengths.add(self._some_lengths)
        self._some_lengths = []


class LifeHeartbeats:
    """Takes each heartbeat of a job once, by `add`, and keeps what they say together.

    Args:
        read: yields the heartbeats of a job again, those of some windows at least.
    """

    def __init__(self, read: Callable[[Windows], Iterable[Heartbeat]]) -> None:
        self._read = read
        self._sums: dict[str, _Sums] = defaultdict(_Sums)

    def add(self, beat: Heartbeat) -> None:
        """Take a heartbeat."""
        self._sums[beat.writer].add(beat)

    @property
    def count(self) -> int:
        """How many heartbeats were taken of all processes."""
        return sum(sums.count for sums in self._sums.values())

    def together(self) -> dict[str, Heartbeat]:
        """Return one heartbeat for each process that sent any: sums of samples and signals, and the last time and step.

        Lines of code are not in it.
        """
        return {writer: sums.together() for writer, sums in self._sums.items()}

    def usual_window(self, writer: str) -> float | None:
        """Return the length in seconds of the usual window of a process's heartbeats; None: none tells it."""
        return self._sums[writer].usual_window if writer in self._sums else None

    def within(self, windows: Windows) -> dict[str, list[SeenBeat]]:
        """Return the heartbeats of some processes that say something of some times, in order; of each process that sends any."""
        wider = {
            writer: _disjoint((begin, end + 1e9 * self._sums[writer].longest_window) for begin, end in own)
            for writer, own in windows.items()
            if writer in self._sums
        }
        if not wider:
            return {}
        found: dict[str, dict[int, SeenBeat]] = {writer: {} for writer in wider}
        known: dict[bytes, Mapping[str, Mapping[str, int]]] = {}  # all of a process that hangs say the same
        phases: dict[str, str] = {}
        for beat in self._read(wider):
            if beat.writer in wider and _is_within(beat.monotonic_ns, wider[beat.writer]):
                where = known.setdefault(msgspec.json.encode(beat.where), beat.where)
                seen = SeenBeat(beat.monotonic_ns, phases.setdefault(beat.phase, beat.phase), beat.window_seconds, where)
                found[beat.writer][beat.seq] = seen
        return {
            writer: sorted((own[seq] for seq in sorted(own)), key=lambda one: one.monotonic_ns) for writer, own in found.items()
        }


def _disjoint(windows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in sorted(windows):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _is_within(time: float, windows: Sequence[tuple[float, float]]) -> bool:
    place = bisect_left(windows, (time, float("inf")))
    return place > 0 and time <= windows[place - 1][1]


_SPAN = np.dtype([("place", np.int32), ("writer", np.int32), ("first_ns", np.int64), ("last_ns", np.int64)])


class HeartbeatIndex:
    """Which pieces of a job hold heartbeats of which processes and times."""

    def __init__(self) -> None:
        self._writers: dict[str, int] = {}
        self._collected = bytearray()

    def add(self, place: int, beats: Iterable[Heartbeat]) -> None:
        """Add what a piece holds."""
        spans: dict[str, tuple[int, int]] = {}
        for beat in beats:
            first, last = spans.get(beat.writer, (beat.monotonic_ns, beat.monotonic_ns))
            spans[beat.writer] = min(first, beat.monotonic_ns), max(last, beat.monotonic_ns)
        rows = [(place, self._writers.setdefault(writer, len(self._writers)), *span) for writer, span in spans.items()]
        self._collected += np.array(rows, _SPAN).tobytes()

    def places(self, windows: Windows) -> list[int]:
        """Return the pieces that may hold a heartbeat of some windows."""
        spans = np.frombuffer(self._collected, _SPAN)
        wanted = np.zeros(len(spans), dtype=bool)
        order = np.argsort(spans["writer"], kind="stable")
        codes = spans["writer"][order]
        for writer, own in windows.items():
            if writer in self._writers:
                code = self._writers[writer]
                rows = order[slice(*np.searchsorted(codes, (code, code + 1)).tolist())]
                for begin, end in own:
                    wanted[rows] |= (spans["last_ns"][rows] >= begin) & (spans["first_ns"][rows] <= end)
        found: list[int] = np.unique(spans["place"][wanted]).tolist()
        return found
