"""Metric samples of the store as Prometheus would have them: series of the metrics that are wanted, over a span of time.

An agent writes a line for each metric at each sample. Of these only the wanted names are decoded, of a histogram only its count and
the buckets that are asked for, and only objects are opened that can hold a part of the span. What is read takes 16 bytes a sample
and series: an hour of samples every 15 s takes 4 KiB a series.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec
import numpy as np
from numpy.typing import NDArray

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.agent import INFO
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.storage.store import Store, StoredSamples

Times = NDArray[np.int64]
Floats = NDArray[np.float64]
Wanted = Mapping[str, frozenset[float]]
"""Names of metrics, of a histogram without `_bucket`, each with the bounds of the buckets that are asked for."""

_NAME = b'"name":"'
_TICK = INFO.name
"""Told at each sample, so that a series that is not there is known to be gone."""
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Series:
    """What one series was.

    Attributes:
        metric: its name, of a histogram with `_count` or `_bucket`. labels: without empty ones; `instance` is the node.
        times_ms: Unix milliseconds, ascending, shape (N,). values: shape (N,).
        ends_ms: when the node was first sampled without the series after it was there: for Prometheus too it is gone from then on.
    """

    metric: str
    labels: dict[str, str]
    times_ms: Times
    values: Floats
    ends_ms: Times = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Samples:
    """What was read.

    Attributes:
        by_metric: series by their name. lines: read, of the wanted metrics. garbage: lines and points that make no sense.
        unread: why objects could not be read.
    """

    by_metric: Mapping[str, Sequence[Series]] = field(default_factory=dict)
    lines: int = 0
    garbage: int = 0
    unread: tuple[str, ...] = ()

    def series(self) -> Iterator[Series]:
        """Yield the series of all metrics, one metric after the other."""
        for found in self.by_metric.values():
            yield from found


def joined(parts: Iterable[Samples]) -> Samples:
    """Return the samples of several nodes as one."""
    by_metric: dict[str, list[Series]] = defaultdict(list)
    lines, garbage = 0, 0
    unread: list[str] = []
    for part in parts:
        for one in part.series():
            by_metric[one.metric].append(one)
        lines, garbage = lines + part.lines, garbage + part.garbage
        unread += part.unread
    return Samples(by_metric, lines, garbage, tuple(unread))


def of_host(store: Store, objects: Iterable[StoredSamples], host: str, wanted: Wanted, *, start: float, end: float) -> Samples:
    """Return the series of a node with the samples from `start` to `end`, both included, in Unix seconds.

    An object that cannot be read leaves a gap and is told in `unread`.
    """
    table = _Table(host, wanted)
    names = {name.encode() for name in (*wanted, _TICK)}
    first, last = round(start * 1000), round(end * 1000)
    unread: list[str] = []
    for one in objects:
        try:
            content = store.read(one)
        except TachoscopeError as error:
            unread.append(str(error))
            continue
        for line in content.split(b"\n"):
            if line:
                table.add_line(line, names, first, last)
    return Samples(table.series(), table.lines, table.garbage, tuple(unread))


class _Histogram(msgspec.Struct):
    counts: list[float]
    bounds: list[float] | None = None


class _Line(msgspec.Struct):
    time: float
    name: str
    labels: list[str]
    points: list[tuple[list[str], float | _Histogram | None]]


_decoder = msgspec.json.Decoder(_Line)
_Key = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Name of a series, names of labels, values of labels."""


class _Rows:
    """A series that grows. `tick`: the number of the node's last sample that has it."""

    __slots__ = ("ends", "tick", "times", "values")

    def __init__(self) -> None:
        self.times, self.values, self.ends = array("q"), array("d"), array("q")
        self.tick = -1


class _Table:
    """The series of a node while its lines are read."""

    def __init__(self, host: str, wanted: Wanted) -> None:
        self._host = host
        self._wanted = wanted
        self._rows: dict[_Key, _Rows] = defaultdict(_Rows)
        self._ticks = array("q")
        self.lines = self.garbage = 0

    def add_line(self, text: bytes, names: set[bytes], first_ms: int, last_ms: int) -> None:
        """Take a line if it is wanted, of the span, and not older than the one before."""
        begin = text.find(_NAME) + len(_NAME)
        if begin < len(_NAME):
            self.garbage += 1
            return
        if text[begin : text.find(b'"', begin)] not in names:
            return
        try:
            line = _decoder.decode(text)
            time_ms = round(line.time * 1000)
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, ValueError):
            self.garbage += 1
            return
        if not first_ms <= time_ms <= last_ms:
            return
        if not self._ticks or time_ms > self._ticks[-1]:
            self._ticks.append(time_ms)
        elif time_ms < self._ticks[-1]:
            self.garbage += 1  # a clock that was set back: Prometheus takes no samples out of order either
            return
        if line.name in self._wanted:
            self.lines += 1
            self._put(line)

    def _put(self, line: _Line) -> None:
        names = tuple(line.labels)
        for labels, value in line.points:
            if len(labels) != len(names):
                self.garbage += 1
            elif isinstance(value, _Histogram):
                self._histogram(line.name, names, tuple(labels), value)
            else:
                self._add((line.name, names, tuple(labels)), _NAN if value is None else value)

    def _histogram(self, name: str, names: tuple[str, ...], labels: tuple[str, ...], value: _Histogram) -> None:
        bounds = value.bounds if value.bounds is not None else BY_NAME[name].buckets if name in BY_NAME else ()
        if not bounds or len(value.counts) != len(bounds) + 1:
            self.garbage += 1
            return
        below = list(accumulate(value.counts))
        self._add((f"{name}_count", names, labels), below[-1])
        for bound, count in zip(bounds, below[:-1], strict=True):
            if bound in self._wanted[name]:
                self._add((f"{name}_bucket", (*names, "le"), (*labels, str(float(bound)))), count)

    def _add(self, key: _Key, value: float) -> None:
        rows, tick = self._rows[key], len(self._ticks) - 1
        if rows.tick == tick:
            return  # twice in one sample: Prometheus takes the first
        if 0 <= rows.tick < tick - 1:
            rows.ends.append(self._ticks[rows.tick + 1])
        rows.times.append(self._ticks[tick])
        rows.values.append(value)
        rows.tick = tick

    def series(self) -> dict[str, list[Series]]:
        """Return what was taken."""
        found: dict[str, list[Series]] = defaultdict(list)
        for (metric, names, values), rows in self._rows.items():
            if rows.tick < len(self._ticks) - 1:
                rows.ends.append(self._ticks[rows.tick + 1])
            labels = {name: value for name, value in zip(names, values, strict=True) if value}
            times, ends = (np.array(one, dtype=np.int64) for one in (rows.times, rows.ends))
            found[metric].append(Series(metric, labels | {"instance": self._host}, times, np.array(rows.values), ends))
        return dict(found)
