"""A rate by repetitions of equal work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tachoscope_core.storage.preflights import Measurement

_DEVIATION = 1.4826
"""Standard deviations in a median absolute deviation, for normal noise."""
_LEAST_REPETITIONS = 3
_AGREE_RATIO = 0.03
"""Repetitions that differ by no more decide: a host is refused for 10 % and more."""
_MOST_CALLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a test measures: repetitions of `seconds` each, longer than the 100 ms after which a CPU quota pauses a process; at
    most `repetitions`.
    """

    seconds: float
    repetitions: int


FULL = Effort(0.4, 9)
QUICK = Effort(0.15, 5)


def measured(name: str, rates: list[float], *, device: str = "", comparable_with: str) -> Measurement:
    """Return median and spread of the rates of repetitions."""
    middle = statistics.median(rates)
    deviation = _DEVIATION * statistics.median(abs(rate - middle) for rate in rates)
    spread = deviation / middle if middle else 0.0
    return Measurement(
        name=name, device=device, comparable_with=comparable_with, median=middle, spread_ratio=spread, repetitions=len(rates)
    )


def failed(name: str, error: str, *, device: str = "", broken: bool) -> Measurement:
    """Return what is known of a test that gave no rate; `broken`: by a fault of the node, not for lack of a right or of time."""
    return Measurement(name=name, device=device, error=error, broken=broken)


def rates(call: Callable[[], object], units: float, effort: Effort, wait: Callable[[], object] = lambda: None) -> list[float]:
    """Return units per second of each repetition, after a warm-up that also decides how many calls are one.

    Args:
        units: that a call does. wait: returns when all calls are done, where they go on in the background.
    """
    _timed(call, 1, wait)
    count = min(max(1, round(effort.seconds / max(_timed(call, 1, wait), 1e-7))), _MOST_CALLS)
    return repeated(lambda: count * units / _timed(call, count, wait), effort)


def repeated(once: Callable[[], float], effort: Effort) -> list[float]:
    """Return the rates of repetitions: until they agree, or all of them, or those of twice the time."""
    stop = time.monotonic() + 2 * effort.seconds * effort.repetitions
    found: list[float] = []
    while len(found) < effort.repetitions and (time.monotonic() < stop or len(found) < _LEAST_REPETITIONS):
        found.append(once())
        if len(found) >= _LEAST_REPETITIONS and max(found) - min(found) <= _AGREE_RATIO * statistics.median(found):
            break
    return found


def _timed(call: Callable[[], object], count: int, wait: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return max(time.perf_counter() - began, 1e-9)
