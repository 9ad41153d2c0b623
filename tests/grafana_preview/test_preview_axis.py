"""Axes hold what they show, with round ticks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grafana_preview.axis import powers, span, ticks

VALUES = st.lists(st.floats(-1e9, 1e9).map(lambda value: round(float(f"{value:.6g}"), 9)), min_size=1, max_size=20)
UNITS = st.sampled_from(["none", "s", "bytes", "percentunit", "short"])


@given(VALUES, UNITS)
def test_an_axis_without_given_ends_holds_all_values_and_has_ticks_inside(values: list[float], unit: str) -> None:
    low, high = span(values, None, None)
    places, texts = ticks(low, high, unit)

    assert low <= min(values) <= max(values) <= high
    assert low < high
    assert 1 <= len(places) == len(texts) <= 8
    assert all(low - 1e-6 * (high - low) <= place <= high + 1e-6 * (high - low) for place in places)


def test_ticks_that_are_close_have_texts_that_differ() -> None:
    assert ticks(1000.0, 1001.0, "none")[1] == ["1000", "1000.2", "1000.4", "1000.6", "1000.8", "1001"]
    assert ticks(0.9990, 0.9995, "percentunit")[1][:2] == ["99.9%", "99.91%"]


def test_given_ends_hold_whatever_the_values_are() -> None:
    assert span([0.2, 3.0], 0.0, 1.0) == (0.0, 1.0)
    assert span([], 0.0, None)[0] == 0.0
    assert span([1.0, 1.0], None, 1.0) == (0.0, 1.0)
    assert span([0.99, 0.98], None, 1.0)[1] == 1.0
    assert span([0.99, 0.98], None, 1.0)[0] > 0.9


def test_an_axis_of_one_value_has_room_on_both_sides() -> None:
    for value in (0.5, 5.0, -3.0):
        low, high = span([value], None, None)
        assert low < value < high
    assert span([0.0], None, None) == (0.0, 1.0)
    low, high = span([5.0], 5.0, None)
    assert (low, high > 5.0) == (5.0, True)
    assert span([5.0], 0.0, None)[0] == 0.0
    low, high = span([5.0], 7.0, 6.0)
    assert low < high


def test_ticks_are_round_in_their_unit() -> None:
    assert ticks(0.0, 1.0, "percentunit")[1] == ["0%", "20%", "40%", "60%", "80%", "100%"]
    assert ticks(0.0, 7200.0, "s")[1] == ["0 s", "30 min", "1 hour", "1.5 hour", "2 hour"]
    assert ticks(0.0, 4.0 * 2**30, "bytes")[1] == ["0 B", "1 GiB", "2 GiB", "3 GiB", "4 GiB"]
    assert ticks(0.0, 2600.0, "short")[1][:3] == ["0", "500", "1 K"]


def test_a_logarithmic_axis_has_powers_of_ten_or_of_two_around_its_values() -> None:
    assert powers(0.002, 30.0, "s") == ([1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0], ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1.67 min"])
    places, texts = powers(1536.0, 3.0 * 2**30, "bytes")
    assert places[0] <= 1536.0 < 3.0 * 2**30 <= places[-1]
    assert all("." not in text for text in texts)
    assert len(powers(1e-9, 1e9, "none")[0]) <= 10
