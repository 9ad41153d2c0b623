from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.events import intervals
from tachoscope_analyzers.trace.events.intervals import Intervals, covered, difference, gaps, intersection, union, within

SPAN = 60
pairs = st.lists(st.tuples(st.integers(0, SPAN), st.integers(-3, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12)


def columns(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    both = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def set_of(spans: list[tuple[int, int]]) -> Intervals:
    return union(*columns(spans))


def points(spans: list[tuple[int, int]]) -> set[int]:
    """The unit pieces that spans cover: what the arithmetic must agree with."""
    return {point for start, end in spans for point in range(start, end)}


def points_of(one: Intervals) -> set[int]:
    return points(list(zip(one.starts.tolist(), one.ends.tolist(), strict=True)))


def proper(one: Intervals) -> bool:
    return bool((one.ends > one.starts).all() and (one.starts[1:] > one.ends[:-1]).all())


@given(pairs, pairs, st.lists(st.integers(-5, SPAN), max_size=12))
def test_with_and_without_the_native_module_the_sets_are_the_same(
    first: list[tuple[int, int]], second: list[tuple[int, int]], times: list[int]
) -> None:
    one, other = set_of(first), set_of(second)
    for found, expected in (
        (one, intervals.union_in_python(*columns(first))),
        (intersection(one, other), intervals.intersection_in_python(one, other)),
    ):
        assert (found.starts.tolist(), found.ends.tolist()) == (expected.starts.tolist(), expected.ends.tolist())
    moments = np.array(times, dtype=np.int64)
    if len(one):
        assert covered(one, np.full(len(times), -9), moments).tolist() == intervals.before_in_python(one, moments).tolist()


@given(pairs)
def test_a_union_covers_what_its_parts_cover_and_is_disjoint(spans: list[tuple[int, int]]) -> None:
    one = set_of(spans)
    assert points_of(one) == points(spans)
    assert proper(one)
    assert one.total == len(points(spans))


@given(pairs, pairs)
def test_intersection_and_difference_split_a_set(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    one, other = set_of(first), set_of(second)
    both, only = intersection(one, other), difference(one, other)
    assert points_of(both) == points(first) & points(second)
    assert points_of(only) == points(first) - points(second)
    assert both.total + only.total == one.total
    assert intersection(other, one).total == both.total
    assert (both.ends > both.starts).all()
    assert (only.ends > only.starts).all()


@given(pairs, st.integers(-5, SPAN), st.integers(0, SPAN))
def test_gaps_and_what_is_within_fill_a_window(spans: list[tuple[int, int]], start: int, length: int) -> None:
    one, end = set_of(spans), start + length
    window = set(range(start, end))
    assert points_of(gaps(one, start, end)) == window - points(spans)
    assert points_of(within(one, start, end)) == window & points(spans)
    assert gaps(one, start, end).total + within(one, start, end).total == length


@given(pairs, pairs)
def test_how_much_of_each_span_is_covered(spans: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    found = covered(set_of(spans), *columns(asked))
    assert found.tolist() == [len(points(spans) & points([one])) for one in asked]


def test_nanoseconds_of_an_epoch_stay_exact() -> None:
    start = 1_713_219_600_123_456_789
    one = union(np.array([start, start + 10]), np.array([start + 11, start + 13]))
    assert (one.starts.tolist(), one.ends.tolist(), one.total) == ([start], [start + 13], 13)
