"""Which part of a job's memory grew most, since which step, and how fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tachoscope_analyzers.memory.parts import Part, RankMemory, Vector
from tachoscope_core.jobs.memory_growth import bend
from tachoscope_core.report.memory import LineBytes, MemoryGrowth

_MOST_POINTS = 64
_MOST_LINES = 8


def most_grown(parts: Sequence[Part], ranks: Sequence[RankMemory]) -> MemoryGrowth | None:
    """Return the part that rose most from its least to its last value; None: none rose.

    The last is the larger of two: a sample may be taken when a part is free already, and its kill not yet told.
    """
    rises = [(_rise(part.values), part) for part in parts if len(part.values) > 1]
    rise, part = max(rises, key=lambda row: row[0], default=(0.0, None))
    if part is None or rise <= 0:
        return None
    owner = next((one for one in ranks if one.rank == part.rank), None)
    since = _since(part)
    grown = part.times >= since
    slopes = _slopes(part.times[grown], part.values[grown])
    low, middle, high = (float(value) for value in np.quantile(slopes, [0.25, 0.5, 0.75])) if len(slopes) else (0.0, 0.0, 0.0)
    if not middle and part.times[-1] > since:
        middle = rise / float(part.times[-1] - since)
    steps = _steps_of(owner or ranks[0], since)
    last = _steps_of(owner or ranks[0], float(part.times[-1]))
    return MemoryGrowth(
        part=part.name,
        ranks=[part.rank] if part.rank is not None else [],
        bytes=round(rise),
        since_time=since,
        since_step=steps,
        bytes_per_step=rise / max(last - steps, 1),
        bytes_per_second=middle,
        low_bytes_per_second=low,
        high_bytes_per_second=high,
        lines=_lines(owner, part) if owner is not None else [],
    )


def _rise(values: Vector) -> float:
    ends = (len(values) - 1, max(len(values) - 2, 1))
    return float(max(values[end] - values[:end].min() for end in ends))


def _since(part: Part) -> float:
    """Return when it began to grow: the bend of a level and a line that fit best from its least value on."""
    first = int(part.values.argmin())
    times, values = part.times[first:], part.values[first:]
    if len(times) > _MOST_POINTS:
        kept = np.unique(np.linspace(0, len(times) - 1, _MOST_POINTS).round().astype(int))
        times, values = times[kept], values[kept]
    points = list(zip(times.tolist(), values.tolist(), strict=True))
    place, _ = bend(points)
    return float(points[place][0])


def _slopes(times: Vector, values: Vector) -> Vector:
    """Return the slopes between all pairs of points, of at most `_MOST_POINTS` of them."""
    if len(times) > _MOST_POINTS:
        kept = np.unique(np.linspace(0, len(times) - 1, _MOST_POINTS).round().astype(int))
        times, values = times[kept], values[kept]
    earlier, later = np.triu_indices(len(times), 1)
    apart = times[later] - times[earlier]
    return np.asarray((values[later] - values[earlier])[apart > 0] / apart[apart > 0])


def _steps_of(one: RankMemory, time: float) -> int:
    """Return the last step that a rank had finished at a time, as its samples tell."""
    place = max(int(np.searchsorted(one.times, time, side="right")) - 1, 0)
    return one.samples[place].step


def _lines(owner: RankMemory, part: Part) -> list[LineBytes]:
    """Return the lines that allocated what stayed, of all times in which allocations were followed."""
    found: Counter[str] = Counter()
    for row in owner.samples:
        lines = row.worker_growth if part.name == "loader_workers" else row.growth if part.name != "device" else {}
        for line, size in lines.items():
            found[line] += round(size)
    if part.name == "shared_memory" and not found:
        for row in owner.samples:
            found.update({line: round(size) for line, size in row.worker_growth.items()})
    return [LineBytes(line=line, bytes=size) for line, size in found.most_common(_MOST_LINES)]
