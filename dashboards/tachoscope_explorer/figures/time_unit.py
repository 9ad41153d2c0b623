"""The unit of a time axis: one for a whole figure, so that bars can be compared with each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """`seconds` of one, and its sign."""

    seconds: float
    sign: str

    def convert(self, values: Iterable[float]) -> list[float]:
        """Return seconds as numbers of this unit."""
        return [value / self.seconds for value in values]


def time_unit(values: Iterable[float]) -> TimeUnit:
    """Return the unit in which the largest of some seconds is at least 1."""
    most = max((abs(value) for value in values if value == value), default=0.0)  # NaN is not itself
    return next((TimeUnit(size, sign) for size, sign in _UNITS if most >= size), TimeUnit(*_UNITS[-1]))
