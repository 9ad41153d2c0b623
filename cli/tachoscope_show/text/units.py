"""Seconds, ratios and counts as people read them."""

from __future__ import annotations

import re
from datetime import datetime

from tachoscope_core.errors import TachoscopeError


def seconds(value: float) -> str:
    """Return seconds in the unit that people read best."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def percent(ratio: float) -> str:
    """Return a ratio (0 to 1) as a percentage with one decimal."""
    return f"{ratio * 100:.1f} %"


def counted(number: int, thing: str) -> str:
    """Return `1 step`, `2 steps`, `20,000 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float:
    """Return the seconds of a length of time such as `60s`, `5m`, `1h` or `90`.

    Raises:
        TachoscopeError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    unit = (match[2] or "s") if match else ""
    if match is None or unit not in _UNITS or not float(match[1]):
        raise TachoscopeError(f"{text!r} is not a duration", fix="write 60s, 5m, 1h or 2d")
    return float(match[1]) * _UNITS[unit]


_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def bytes_of(text: str) -> int:
    """Return the bytes of a size such as `20GB`, `512 MiB` or `1000`.

    Raises:
        TachoscopeError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _BYTES:
        raise TachoscopeError(f"{text!r} is not a size", fix="write 20GB or 512MiB")
    return round(float(match[1]) * _BYTES[match[2]])


def moment_of(text: str) -> float:
    """Return the Unix seconds of a moment as `2026-03-01T14:30`, here if it names no zone, or as Unix seconds.

    Raises:
        TachoscopeError: it is none.
    """
    try:
        return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise TachoscopeError(f"{text!r} is not a moment", fix="write 2026-03-01T14:30, or Unix seconds") from None


_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(value: float) -> str:
    """Return a length of time as people say it: `2 h 13 min`, `45.2 s`."""
    if value < 59.95:
        return f"{value:.1f} s" if value >= 1 else seconds(value) if value > 0 else "0 s"
    value = round(value)
    length, unit, part, name = next(row for row in _STEPS if value >= row[0])
    whole, rest = divmod(round(value / part), length // part)
    return f"{whole} {unit} {rest} {name}" if rest else f"{whole} {unit}"


def size(count: float) -> str:
    """Return bytes in the binary unit that people read best."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count:.0f} B"


def size_unit(most: float) -> tuple[str, int]:
    """Return the unit, and its bytes, in which a column or an axis of sizes is read best, given the largest of them."""
    return ("GiB", 1 << 30) if most >= 1 << 30 else ("MiB", 1 << 20)
