"""NVML's answers in our units. Pure functions: they ask nobody."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

UNITS = {
    "percent": (1.0, 100.0),
    "mW": (1.0, 1e3),
    "mJ": (1.0, 1e3),
    "ns": (1.0, 1e9),
    "MHz": (1e6, 1.0),
    "KiB": (1024.0, 1.0),
    "MiB": (1024.0**2, 1.0),
    **dict.fromkeys(("bytes", "°C", "count", "number", "0 or 1"), (1.0, 1.0)),
}
"""NVML's units: ours are theirs times the first over the second, which rounds once."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""
_NOT_AVAILABLE = {1: (1 << 32) - 1, 2: (1 << 64) - 1, 3: (1 << 64) - 1, 6: (1 << 16) - 1}
"""What stands for no value, by type: NVML_VALUE_NOT_AVAILABLE, all bits set."""


def converted(raw: float, unit: str) -> float:
    """Return a number of NVML's in our unit."""
    times, over = UNITS[unit]
    return raw * times / over


def of_field(answer: Any) -> float | None:
    """Return the number of an nvmlFieldValue_t, None where it holds none."""
    kind = answer.valueType
    if not 0 <= kind < len(_MEMBERS):
        return None
    number = getattr(answer.value, _MEMBERS[kind])
    if number == _NOT_AVAILABLE.get(kind) or not math.isfinite(number):
        return None
    return float(number)


def answer_part(answer: Any, take: str, item: int | None, bit: int) -> float | None:
    """Return the part of a call's answer that a source takes, None where that is not a number.

    Args:
        take: a member's name, or `length`. item: of a sequence. bit: whether it is set. With none of them: the answer itself.
    """
    if take == "length":
        return float(len(answer))
    if take:
        answer = getattr(answer, take)
    if item is not None:
        answer = answer[item]
    if bit:
        return float(bool(answer & bit))
    return float(answer) if answer is not None and math.isfinite(answer) else None


def link_states(active: Sequence[bool]) -> dict[tuple[str, ...], float]:
    """Return how many NVLinks are active and inactive."""
    return {("active",): float(sum(active)), ("inactive",): float(len(active) - sum(active))}


def margins(limits: Mapping[str, float], temperatures: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Return the degrees left to each sensor's limit, of those sensors that are read."""
    return {(sensor,): limit - temperatures[sensor,] for sensor, limit in limits.items() if (sensor,) in temperatures}
