"""Numbers in advice are short, and never in powers of ten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.advice.number_text import count, named_ranks, number, percent, time


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0953, "95.3 ms"),
        (0.9999, "1 s"),
        (1.2345, "1.23 s"),
        (0.0000412, "41.2 µs"),
        (99.96, "100 s"),
        (2280, "38 min"),
        (0, "0 µs"),
    ],
)
def test_a_time_is_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert time(seconds) == words


@given(st.floats(0.001, 1e12))
def test_a_number_keeps_three_digits_and_no_exponent(value: float) -> None:
    words = number(value)

    assert "e" not in words
    assert float(words.replace(",", "")) == pytest.approx(value, rel=0.0051)


def test_ratios_counts_and_ranks_in_words() -> None:
    assert [percent(ratio) for ratio in (0.333, 0.00414, 0.000001, 1.0)] == ["33 %", "0.41 %", "under 0.01 %", "100 %"]
    assert [count(1, "batch", "es"), count(1200, "batch", "es"), count(2, "worker")] == ["1 batch", "1,200 batches", "2 workers"]
    assert named_ranks([3]) == "rank 3"
    assert named_ranks([4, 5, 6, 7]) == "ranks 4 to 7"
    assert named_ranks([1, 5, 9, 12, 77]) == "ranks 1, 5, 9, 12, ..."
