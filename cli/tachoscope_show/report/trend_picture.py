"""The course of a run as a picture: step time over steps, lasting changes marked, and a strip for each rank that came late."""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_core.report.trend import Bin, LateRank, Trend
from tachoscope_show.report import trend_words
from tachoscope_show.text.units import seconds

_HEIGHT = 100
_WIDTH = 1000
_TICKS = 4
_ROOM = 0.6
"""Above and below the medians, in parts of the distance between the lowest and the highest."""
_ROWS = 12


@dataclass(frozen=True, slots=True)
class ChangeMark:
    """A lasting change: where it is, from 0 to 1000, and what it was."""

    x: float
    title: str


@dataclass(frozen=True, slots=True)
class LateStretch:
    """A stretch in which a rank was late."""

    x: float
    width: float
    state: str
    title: str


@dataclass(frozen=True, slots=True)
class LateRankRow:
    """A rank that was late, and when."""

    rank: int
    parts: list[LateStretch]


@dataclass(frozen=True, slots=True)
class TrendPicture:
    """Step time from `low` to `high` seconds: points of the band from the 5th to the 95th percentile, and of the median's line."""

    low: float
    high: float
    band: str
    line: str
    ticks: list[int]
    changes: list[ChangeMark]
    late: list[LateRankRow]


def picture(trend: Trend) -> TrendPicture | None:
    """Return the picture; None without steps to draw."""
    bins = trend.picture
    if not bins:
        return None
    low, high = _range(bins)

    def point(one: Bin, value: float) -> str:
        y = (1 - (min(max(value, low), high) - low) / (high - low)) * _HEIGHT
        return f"{_x((one.first_step + one.last_step + 1) / 2, bins):.1f},{y:.1f}"

    return TrendPicture(
        low,
        high,
        band=" ".join([*(point(one, one.p95) for one in bins), *(point(one, one.p05) for one in reversed(bins))]),
        line=" ".join(point(one, one.p50) for one in bins),
        ticks=[bins[0].first_step + round((bins[-1].last_step - bins[0].first_step) * tick / _TICKS) for tick in range(_TICKS + 1)],
        changes=[ChangeMark(_x(one.step, bins), trend_words.change(one)) for one in trend.changes or []],
        late=[LateRankRow(one.rank, _parts(one, bins)) for one in (trend.late or [])[:_ROWS]],
    )


def _range(bins: list[Bin]) -> tuple[float, float]:
    """Return the ends of the vertical axis in seconds: around the medians, whatever single steps, such as periodic saves, take."""
    low, high = min(one.p50 for one in bins), max(one.p50 for one in bins)
    room = max((high - low) * _ROOM, high * 0.05)
    return max(low - room, 0.0), high + room


def _x(step: float, bins: list[Bin]) -> float:
    first, last = bins[0].first_step, bins[-1].last_step
    return (step - first) / (last + 1 - first) * _WIDTH


def _parts(one: LateRank, bins: list[Bin]) -> list[LateStretch]:
    found = []
    for row in one.stretches:
        x = _x(row.first_step, bins)
        told = f"{row.state}, {seconds(row.seconds_per_step)} a step"
        found.append(LateStretch(x, max(_x(row.last_step + 1, bins) - x, 2.0), row.state, told))
    return found
