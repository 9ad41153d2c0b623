"""Where an axis has its ticks: at round values of the unit, so that their texts are short."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grafana_preview import units

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_ROUND_BINARY = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
_ROUND_TIMES = (
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0),
    *(86_400.0, 172_800.0, 604_800.0, 1_209_600.0, 4.0 * 604_800.0),
)
_ROOM = 0.05


def span(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """Return the ends of an axis that shows values; low, high: ends that are given; others have some room."""
    least, most = (min(values), max(values)) if values else (0.0, 1.0)
    bottom, top = least if low is None else low, most if high is None else high
    length = top - bottom if top > bottom else abs(most) or 1.0
    room = length * (_ROOM if top > bottom else 1.0)
    if low is None:
        bottom = 0.0 if 0.0 <= bottom <= length else bottom - room
    if high is None or high <= bottom:
        top = max(top, bottom) + room
    return bottom, top


def ticks(low: float, high: float, unit: str, most: int = 6) -> tuple[list[float], list[str]]:
    """Return where ticks are on a linear axis, and their texts."""
    step = _step((high - low) / most, unit)
    first = math.ceil(low / step - 1e-9)
    places = [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
    return places, _texts([round(place / step) * step for place in places], unit)


def powers(low: float, high: float, unit: str, most: int = 8) -> tuple[list[float], list[str]]:
    """Return ticks of a logarithmic axis: powers of ten, or of two for a unit that counts so; the ends are among them."""
    base = 2.0 if units.is_binary(unit) else 10.0
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    each = max(1, math.ceil((last - first) / most))
    last = first + max(1, math.ceil((last - first) / each)) * each
    places = [base**power for power in range(first, last + 1, each)]
    return places, _texts(places, unit)


def _step(least: float, unit: str) -> float:
    """Return the smallest round distance of two ticks that is not below another."""
    if unit == "s" and 30.0 < least <= _ROUND_TIMES[-1]:
        return next(step for step in _ROUND_TIMES if step >= least)
    if units.is_binary(unit) and least >= 1.0:
        power = 1024.0 ** math.floor(math.log(least, 1024.0))
        return next(step * power for step in _ROUND_BINARY if step * power >= least)
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in _ROUND if step * power >= least * (1.0 - 1e-9))


def _texts(places: Sequence[float], unit: str) -> list[str]:
    """Return the texts of ticks, with as many decimals as it takes to tell them apart."""
    texts: list[str] = []
    for decimals in (None, *range(1, units.MOST_DIGITS + 1)):
        texts = [_short(units.text(place, unit, decimals)) for place in places]
        if len(set(texts)) == len(texts):
            break
    return texts


def _short(words: str) -> str:
    """Return the text of a tick without zeros that say nothing: 1.5 K, not 1.50 K."""
    number = words.lstrip("-$")
    length = len(words) - len(number) + next((n for n, sign in enumerate(number) if sign not in "0123456789."), len(number))
    head, tail = words[:length], words[length:]
    return (head.rstrip("0").rstrip(".") if "." in head else head) + tail
