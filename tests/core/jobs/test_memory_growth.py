"""The one rule of what grows until it is full, on series whose truth is planted."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from tachoscope_core.jobs.memory_growth import MOST_PARTS, LeastLevels, growth, seconds_until_full, used_and_room
from tachoscope_core.records import records

GIB = float(1 << 30)


def told_at(level: Callable[[float], float], limit: float, until: int = 7200, every: int = 5) -> float | None:
    """Return after how many seconds it is first told that memory will be full; None: never."""
    levels = LeastLevels()
    for second in range(0, until, every):
        value = level(float(second))
        if value >= limit:
            return None
        levels.add(float(second), value)
        found = growth(levels.points())
        if seconds_until_full([found] if found else [], float(second), limit - value) is not None:
            return float(second)
    return None


def test_a_steady_leak_is_told_when_half_of_the_room_is_filled_with_the_time_that_is_left() -> None:
    levels = LeastLevels()
    for second in range(0, 2400, 5):
        levels.add(float(second), GIB + second * GIB / 1200)
    found = growth(levels.points())

    assert found is not None
    assert found.bytes_per_second == pytest.approx(GIB / 1200, rel=0.05)
    assert told_at(lambda second: GIB + second * GIB / 1200, 5 * GIB) == pytest.approx(2400, rel=0.15)
    assert seconds_until_full([found], 2400.0, 1.5 * GIB) == pytest.approx(1800, rel=0.1)


def test_a_leak_below_peaks_that_are_many_times_larger_is_told_all_the_same() -> None:
    def level(second: float) -> float:
        return GIB + second * GIB / 1200 + (0.8 * GIB if second % 30 < 20 else 0.0)

    assert told_at(level, 5 * GIB) is not None


@pytest.mark.parametrize(
    "level",
    [
        lambda second: GIB,
        lambda second: GIB + (GIB if second % 60 < 30 else 0.0),
        lambda second: GIB + 2.5 * GIB * (1 - math.exp(-second / 300)),
        lambda second: GIB + min(second / 600, 1.0) * 1.5 * GIB,
        lambda second: GIB + 2.5 * GIB * min(second, 20.0) / 20.0,
        lambda second: GIB + 0.6 * GIB * (second // 900 if second < 3600 else 4),
        lambda second: GIB + 0.4 * GIB * math.log1p(second / 60),
    ],
    ids=["level", "peaks", "saturates", "fills and stops", "warm-up", "staircase that ends", "ever slower"],
)
def test_memory_that_levels_off_is_never_told(level: Callable[[float], float]) -> None:
    assert told_at(level, 5 * GIB, every=15) is None


def test_levels_stay_bounded_however_long_a_job_runs_and_survive_being_saved() -> None:
    levels = LeastLevels()
    for second in range(0, 30 * 86400, 60):
        levels.add(float(second), GIB + second)
    kept = msgspec.json.decode(msgspec.json.encode(levels), type=LeastLevels)

    assert len(levels.points()) <= MOST_PARTS
    assert kept.points() == levels.points()


def test_page_cache_does_not_count_against_the_limit_of_a_group_and_without_a_limit_the_host_counts() -> None:
    group = records.ControlGroupMemory(path="/job", limit_bytes=1000, usage_bytes=990, anonymous_bytes=300, shared_bytes=100)
    sample = records.MemorySampled(
        job="a", attempt=0, writer="w", seq=0, rank=0, local_rank=0, host="h", time=1.0, monotonic_ns=1, step=1,
        process=records.ProcessMemory(anonymous_bytes=250), group=group, available_bytes=5000, total_bytes=9000,
    )  # fmt: skip
    assert used_and_room(sample) == (400, 600)
    assert used_and_room(msgspec.structs.replace(sample, group=None)) == (250, 5000)
    assert used_and_room(msgspec.structs.replace(sample, group=None, limit_known=False)) is None
    assert used_and_room(msgspec.structs.replace(sample, group=None, available_bytes=0, total_bytes=0)) is None
