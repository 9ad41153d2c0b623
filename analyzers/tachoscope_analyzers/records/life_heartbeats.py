"""The heartbeats of a whole life: what those of a process say together, and those of some times, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np

from tachoscope_analyzers.records.beat_table import Heartbeats
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

    def add(self, beats: Heartbeats) -> None:
        """Take heartbeats of the process, at least one."""
        self.count += len(beats)
        latest = beats[len(beats) - 1 - int(beats.column("monotonic_ns")[::-1].argmax())]
        if self._last is None or latest.monotonic_ns >= self._last.monotonic_ns:
            self._last = latest
        self._time = max(self._time, beats.last_time())
        self._step = max(self._step, int(beats.column("step").max()))
        self._dropped = max(self._dropped, int(beats.column("dropped_total").max()))
        self._some_lengths += beats.windows[beats.windows > 0].tolist()
        while len(self._some_lengths) >= _MOST_LENGTHS:
            self._take_lengths()
        highest = {name: max(self._signals.get(name, 0.0), beats.most(name)) for name in _SINCE_THE_BEGIN if beats.has(name).any()}
        self._signals |= beats.totals(self._signals) | highest
        for seen, times in beats.different():
            for sums, samples in ((self._wait_samples, seen.wait_samples), (self._activity, seen.activity)):
                for phase, counts in samples.items():
                    own = sums.setdefault(phase, {})
                    for key, count in counts.items():
                        own[key] = own.get(key, 0) + times * count

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
        taken, self._some_lengths = self._some_lengths[:_MOST_LENGTHS], self._some_lengths[_MOST_LENGTHS:]
        self._longest = max(self._longest, *taken, 0.0)
        self._lengths.add(taken)


class LifeHeartbeats:
    """Takes each heartbeat of a job once, by `add`, and keeps what they say together.

    Args:
        read: yields the heartbeats of a job again, some at a time, those of some windows at least.
    """

    def __init__(self, read: Callable[[Windows], Iterable[Heartbeats]]) -> None:
        self._read = read
        self._sums: dict[str, _Sums] = defaultdict(_Sums)

    def add(self, beats: Heartbeats) -> None:
        """Take heartbeats."""
        for writer, own in beats.by_writer().items():
            self._sums[writer].add(own)

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
        for beat in chain.from_iterable(_within(beats, wider) for beats in self._read(wider)):
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


def _within(beats: Heartbeats, windows: Windows) -> Heartbeats:
    """Return the heartbeats of the given processes in their windows, which are disjoint and in order."""
    kept = np.zeros(len(beats), dtype=bool)
    for writer, own in windows.items():
        rows = np.flatnonzero(beats.is_of([writer]))
        begins, ends = np.array(own).reshape(-1, 2).T
        times = beats.column("monotonic_ns")[rows]
        place = np.searchsorted(begins, times, side="right") - 1
        kept[rows] = (place >= 0) & (times <= ends[place])
    return beats.take(kept)


_SPAN = np.dtype([("place", np.int32), ("writer", np.int32), ("first_ns", np.int64), ("last_ns", np.int64)])


class HeartbeatIndex:
    """Which pieces of a job hold heartbeats of which processes and times."""

    def __init__(self) -> None:
        self._writers: dict[str, int] = {}
        self._collected = bytearray()

    def add(self, place: int, beats: Heartbeats) -> None:
        """Add what a piece holds."""
        times = {writer: own.column("monotonic_ns") for writer, own in beats.by_writer().items()}
        codes = {writer: self._writers.setdefault(writer, len(self._writers)) for writer in times}
        rows = [(place, codes[writer], own.min(), own.max()) for writer, own in times.items()]
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
