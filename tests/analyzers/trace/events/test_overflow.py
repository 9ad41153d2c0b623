"""Durations that overflow the next event of their stream."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.events.launch_links import ends_in_order


def cut(events: list[tuple[int, int, int, int]]) -> list[int]:
    columns = [np.array(column, dtype=np.int64) for column in zip(*events, strict=True)]
    return ends_in_order(*columns).tolist()


def test_an_event_that_outlasts_the_next_one_ends_where_that_begins() -> None:
    assert cut([(0, 7, 0, 10_000_000), (0, 7, 100, 200), (0, 7, 300, 400)]) == [100, 200, 400]


def test_of_several_such_events_in_a_row_each_ends_where_the_next_begins() -> None:
    assert cut([(0, 7, 0, 9_000), (0, 7, 100, 9_100), (0, 7, 200, 9_200), (0, 7, 300, 400)]) == [100, 200, 300, 400]
    assert cut([(0, 7, 0, 9_000), (0, 7, 0, 50), (0, 7, 100, 200)]) == [100, 50, 200]


def test_one_that_only_reaches_into_the_next_stays_as_it_is() -> None:
    assert cut([(0, 7, 0, 120), (0, 7, 100, 200)]) == [120, 200]


def test_streams_devices_and_events_of_no_stream_run_beside_one_another() -> None:
    assert cut([(0, 7, 0, 900), (0, 8, 100, 200), (1, 8, 150, 180)]) == [900, 200, 180]
    assert cut([(0, -1, 0, 900), (0, -1, 100, 200)]) == [900, 200]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_ends_never_grow_and_never_fall_before_their_start(pairs: list[tuple[int, int]]) -> None:
    events = sorted((0, 7, start, start + length) for start, length in pairs)
    for (_, _, start, end), found in zip(events, cut(events), strict=True):
        assert start <= found <= end


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=20))
def test_no_event_outlasts_one_that_begins_later(pairs: list[tuple[int, int]]) -> None:
    events = sorted((0, 7, start, start + length) for start, length in pairs)
    for (_, _, start, _), found in zip(events, cut(events), strict=True):
        assert found <= min((end for _, _, begin, end in events if begin > start), default=found)
