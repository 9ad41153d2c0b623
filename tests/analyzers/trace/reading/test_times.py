from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from independent import nanoseconds
from tachoscope_analyzers.trace.reading.exact_time import LARGEST, LONGEST, NO_TIME, from_float, from_text


def text_of(values: list[str]) -> list[int]:
    return from_text([Raw(value.encode()) for value in values]).tolist()


numbers = st.one_of(
    st.integers(-(10**15), 10**15).map(str),
    st.decimals(min_value=-(10**15), max_value=10**15, places=3).map(str),
    st.builds("{}.{}".format, st.integers(0, 10**12), st.text("0123456789", min_size=1, max_size=12)),
    st.builds("{}e{}".format, st.integers(-9999, 9999), st.integers(-20, 10)),
)


@given(st.lists(numbers, max_size=20))
@example(["1712195496004644.183", "0", "-0.5", "12"])
@example(["0.0005", "0.0015", "0.0025", "-0.0005", "-0.0015"])
@example(["9.9999", "1", "123456789012.123456"])
def test_every_number_is_exact_to_the_nanosecond(values: list[str]) -> None:
    assert text_of(values) == [nanoseconds(Decimal(value)) for value in values]


@given(st.lists(numbers, min_size=1, max_size=20), st.sampled_from(["1E3", '"5"', "12345678901234567890.5"]))
def test_the_notation_of_one_time_does_not_change_another(values: list[str], odd: str) -> None:
    assert text_of([*values, odd])[:-1] == text_of(values)


def test_nanoseconds_survive_beside_an_epoch_where_a_float_would_lose_them() -> None:
    assert text_of(["1713219600123456.789"]) == [1_713_219_600_123_456_789]
    assert round(float("1713219600123456.789") * 1000) != 1_713_219_600_123_456_789


@pytest.mark.parametrize(
    "text", ["null", "true", '"x"', "{}", "[1]", '"1.2.3"', '""', '"NaN"', '"Infinity"', '"\xff"', '"1e99999999999999999999"']
)
def test_what_is_no_number_is_no_time(text: str) -> None:
    assert text_of(["1.5", text]) == [1500, NO_TIME]


@pytest.mark.parametrize("text", ["1e30", "9" * 19, "9" * 20, "9" * 400, "18446744073709551617", "9223372036854775808", "1e999999"])
def test_what_is_too_large_to_be_a_time_becomes_the_largest(text: str) -> None:
    assert text_of([text, f"-{text}"]) == [LARGEST, -LARGEST]


def test_a_number_smaller_than_a_nanosecond_is_zero() -> None:
    assert text_of(["1e-400", "1e-999999", "-1e-30"]) == [0, 0, 0]


def test_no_span_between_extreme_times_overflows() -> None:
    assert np.iinfo(np.int64).max > (LARGEST + LONGEST) - -LARGEST


@given(st.lists(st.integers(0, 10**12), max_size=20))
def test_durations_are_exact_to_the_nanosecond_below_eleven_days(values: list[int]) -> None:
    assert from_float([float(f"{value // 1000}.{value % 1000:03d}") for value in values]).tolist() == values


def test_durations_without_sense_are_told_apart() -> None:
    absent, *negative, large, infinite = from_float([float("nan"), -1e-9, -5.0, 1e308, float("inf")]).tolist()
    assert absent == NO_TIME
    assert max(negative) < 0
    assert LONGEST - 1000 < large == infinite <= LONGEST + 1000
