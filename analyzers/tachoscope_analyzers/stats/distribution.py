"""Mean and quantiles of positive numbers that come some at a time and are too many to keep."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MOST_VALUES = 500_000
_COARSE_BITS = 36
"""Of the 52 bits of a fraction that are left out of each number when there are too many: what is left is right to 1.6e-5."""


class Distribution:
    """Counts of numbers >= 0: exact as long as at most `most` different ones are known, after that quantiles are right to 1e-5.

    What it tells depends on the numbers only, not on their order.
    """

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._dropped_bits = 0
        self._keys = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._waiting: list[tuple[npt.NDArray[np.int64], int]] = []
        self._waiting_count = 0
        self._sum = 0.0

    def add(self, values: npt.ArrayLike, times: int = 1) -> None:
        """Count each of some values, those below 0 as 0; `times` -1 takes them out again."""
        array = np.maximum(np.atleast_1d(np.asarray(values, np.float64)), 0.0) + 0.0  # -0.0 is 0.0
        self._sum += times * float(array.sum())
        self._waiting.append((array.view(np.int64), times))  # of numbers >= 0 the bits are in the order of the numbers
        self._waiting_count += len(array)
        if self._waiting_count >= max(self._most // 4, 1):
            self._merge()

    @property
    def count(self) -> int:
        self._merge()
        return int(self._counts.sum())

    @property
    def mean(self) -> float:
        """Their mean; 0 without any."""
        count = self.count
        if not count:
            return 0.0
        return (self._sum if self._dropped_bits else float((self._values() * self._counts).sum())) / count

    def quantiles(self, parts: Iterable[float]) -> list[float]:
        """Return the numbers below which some parts (0 to 1) of all are, interpolated as numpy does; 0 without any."""
        count = self.count
        if not count:
            return [0.0 for _ in parts]
        values, until = self._values(), np.cumsum(self._counts)
        found = []
        for part in parts:
            place = part * (count - 1)
            low, high = np.searchsorted(until, [int(place), min(int(place) + 1, count - 1)], side="right").tolist()
            found.append(float(values[low] + (values[high] - values[low]) * (place - int(place))))
        return found

    def _values(self) -> npt.NDArray[np.float64]:
        middle = (1 << self._dropped_bits) >> 1
        return ((self._keys << self._dropped_bits) + middle).view(np.float64)

    def _merge(self) -> None:
        if not self._waiting:
            return
        keys = np.concatenate([self._keys, *(bits >> self._dropped_bits for bits, _ in self._waiting)])
        counts = np.concatenate([self._counts, *(np.full(len(bits), times) for bits, times in self._waiting)])
        self._waiting, self._waiting_count = [], 0
        self._keep(keys, counts)
        if len(self._keys) > self._most and not self._dropped_bits:
            self._dropped_bits = _COARSE_BITS
            self._keep(self._keys >> _COARSE_BITS, self._counts)

    def _keep(self, keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
        firsts = np.flatnonzero(np.diff(keys, prepend=-1))
        sums = np.add.reduceat(counts, firsts) if len(firsts) else counts
        self._keys, self._counts = keys[firsts][sums != 0], sums[sums != 0]
