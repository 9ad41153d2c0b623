"""Exact times: microseconds as text to whole nanoseconds, since a float64 cannot hold an epoch with three decimals."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import numpy.typing as npt
from msgspec import Raw

Nanoseconds = npt.NDArray[np.int64]

NO_TIME = int(np.iinfo(np.int64).min)
"""Stands for a text that is not a number."""
LARGEST = int(np.iinfo(np.int64).max // 8 * 3)
"""Moments further from 0 (Unix times after 2079) are no times: no span between two others overflows."""
LONGEST = int(np.iinfo(np.int64).max // 8)
"""The most that a duration may be (36 years)."""

_PLAIN = b"0123456789.,-"
_MOST_DIGITS = 19
"""More do not fit into 64 bits; whether these did is seen from the result."""
_MOST_DECIMALS = 12
_POWERS = 10 ** np.arange(_MOST_DECIMALS - 2, dtype=np.int64)
"""A look-up takes a tenth of the time of a power."""


def from_text(values: Sequence[Raw]) -> Nanoseconds:
    """Return microseconds in JSON's notation as nanoseconds, rounded half to even beyond three decimals, shape (N,).

    What is too large to be a time becomes `LARGEST`, and what is not a number, also not as a string, becomes `NO_TIME`.
    """
    if not values:
        return np.zeros(0, dtype=np.int64)
    joined = b",".join(values)
    if joined.translate(None, _PLAIN):
        return _one_by_one(values)
    text = np.frombuffer(joined, dtype=np.uint8)
    ends = np.append(np.flatnonzero(text == 0x2C), len(text))
    dots = np.flatnonzero(text == 0x2E)
    owner = np.searchsorted(ends, dots)
    decimals = np.zeros(len(ends), dtype=np.int64)
    decimals[owner] = ends[owner] - dots - 1
    digits = np.diff(ends, prepend=-1) - 1
    digits[owner] -= 1
    if digits.min() < 1 or digits.max() > _MOST_DIGITS or decimals.max() > _MOST_DECIMALS or (np.diff(owner) == 0).any():
        return _one_by_one(values)
    whole = np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=",")
    if len(whole) != len(ends) or (np.abs(whole) > LARGEST // _scale(decimals)).any():
        return _one_by_one(values)
    return from_digits(whole, decimals)


def from_digits(digits: Nanoseconds, decimals: Nanoseconds) -> Nanoseconds:
    """Return microseconds, given as all their digits and how many of them stand after the point, as `from_text` does, shape (N,).

    None may be larger than `LARGEST` in nanoseconds.
    """
    if len(decimals) and (decimals == decimals[0]).all():  # as nearly all writers have them
        decimals = decimals[:1]
    return _rounded(digits * _scale(decimals), _POWERS[np.maximum(decimals - 3, 0)])


def _scale(decimals: Nanoseconds) -> Nanoseconds:
    return np.asarray(_POWERS[np.maximum(3 - decimals, 0)])


def _rounded(values: Nanoseconds, divisor: Nanoseconds) -> Nanoseconds:
    if divisor.max(initial=1) == 1:
        return np.asarray(values)
    quotient, rest = np.divmod(values, divisor)
    half = divisor // 2
    up = (rest > half) | ((rest == half) & (divisor > 1) & (quotient % 2 == 1))
    return np.asarray(quotient + up)


def from_float(values: Sequence[float] | npt.NDArray[np.float64]) -> Nanoseconds:
    """Return durations in microseconds as nanoseconds, shape (N,), `NO_TIME` for NaN.

    Exact below 104 days, where a float64 still holds three decimals. Any negative duration becomes -1 us.
    """
    microseconds = np.array(values, dtype=np.float64)
    if microseconds.min(initial=0.0) >= 0 and microseconds.max(initial=0.0) <= LONGEST / 1000:  # none is NaN
        return np.rint(microseconds * 1000).astype(np.int64)
    absent = np.isnan(microseconds)
    rounded = np.rint(np.clip(np.where(absent, 0.0, microseconds), -1, LONGEST / 1000) * 1000).astype(np.int64)
    return np.where(absent, NO_TIME, np.where(microseconds < 0, -1000, rounded))


def _one_by_one(values: Sequence[Raw]) -> Nanoseconds:
    return np.array([_exact(bytes(value).decode(errors="replace").strip('"')) for value in values], dtype=np.int64)


def _exact(text: str) -> int:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return NO_TIME
    if not number.is_finite():
        return NO_TIME
    if number and number.adjusted() > _MOST_DIGITS:
        return LARGEST if number > 0 else -LARGEST
    if number.adjusted() < -_MOST_DIGITS:
        return 0
    return max(-LARGEST, min(LARGEST, int((number * 1000).to_integral_value(ROUND_HALF_EVEN))))
