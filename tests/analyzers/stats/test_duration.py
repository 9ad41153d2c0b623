"""Times in words."""

import math

import pytest

from tachoscope_analyzers.stats.duration_text import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"), (0.251, "0.25 s"), (5.0, "5 s"), (42.3, "42 s"), (89.0, "89 s"), (120.0, "2 min"), (2287.0, "38 min"),
        (5400.0, "1.5 h"), (86_400.0, "24 h"), (172_800.0, "2 d"), (8_640_000.0, "100 d"), (math.inf, "ever"),
    ],
)  # fmt: skip
def test_a_time_is_given_in_the_unit_that_suits_it(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
