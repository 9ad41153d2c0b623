"""Numbers as they stand in advice: short, and with no more digits than were measured."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_analyzers.stats.duration_text import in_words

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LONG_SECONDS = 100.0
_LEAST_RATIO = 1e-4
_MOST_RANKS = 4


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits: `0.25`, `1,240`."""
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def time(seconds: float) -> str:
    """Return a time: `95.3 ms`, `1.24 s`, `38 min`."""
    if seconds >= _LONG_SECONDS:
        return in_words(seconds)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= 0.9995 * size), _UNITS[-1])
    return f"{number(seconds / size)} {unit}"


def percent(ratio: float) -> str:
    """Return a ratio as a percentage with two digits: `33 %`, `0.41 %`."""
    return f"{number(100 * ratio, 2)} %" if ratio >= _LEAST_RATIO else "under 0.01 %"


def gigabytes(count: float) -> str:
    """Return bytes in units of 10^9: `24.1 GB`."""
    return f"{number(count / 1e9)} GB"


def count(value: int, word: str, ending: str = "s") -> str:
    """Return a number with its noun: `1 worker`, `2 workers`, `3 batches`."""
    return f"{value:,} {word}" + ("" if value == 1 else ending)


def named_ranks(ranks: Sequence[int]) -> str:
    """Return ranks: `rank 3`, `ranks 4 to 7`, `ranks 1, 5, 9, 12, ...`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks[:_MOST_RANKS])) + (", ..." if len(ranks) > _MOST_RANKS else "")
