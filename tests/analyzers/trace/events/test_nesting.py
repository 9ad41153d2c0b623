from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.events.nesting import MODULE, parents, parents_in_python
from tachoscope_core.native import native

Event = tuple[int, int, int]
"""Track, start, end."""


def found(events: list[Event]) -> list[int]:
    columns = np.array(events, dtype=np.int64).reshape(-1, 3)
    arguments = columns[:, 0].astype(np.int32), columns[:, 1], columns[:, 2]
    answer = parents(*arguments).tolist()
    assert answer == parents_in_python(*arguments).tolist()  # of which `parents` is the compiled form
    return answer


@st.composite
def calls(draw: st.DrawFn) -> list[Event]:
    """Calls as a thread makes them: each within the one around it, siblings apart; spans may be equal or empty."""

    def grow(track: int, start: int, end: int, depth: int) -> None:
        place = start
        for _ in range(draw(st.integers(0, 3))):
            begin = draw(st.integers(place, end))
            stop = draw(st.integers(begin, end))
            events.append((track, begin, stop))
            if depth and stop > begin:
                grow(track, begin, stop, depth - 1)
            place = stop

    events: list[Event] = []
    for track in range(draw(st.integers(1, 3))):
        grow(track, 0, draw(st.integers(0, 40)), 3)
    return events


def model(events: list[Event]) -> list[int]:
    """A stack for each track, in order of start, the longer first, then the order of the file."""
    answer = [-1] * len(events)
    stacks: dict[int, list[int]] = {}
    for row in sorted(range(len(events)), key=lambda row: (events[row][1], -events[row][2], row)):
        track, start, end = events[row]
        stack = stacks.setdefault(track, [])
        while stack and events[stack[-1]][2] <= start and not events[stack[-1]][1] == start == end == events[stack[-1]][2]:
            stack.pop()
        while stack and (events[stack[-1]][2] < end or events[stack[-1]][1] == events[stack[-1]][2]):
            stack.pop()
        answer[row] = stack[-1] if stack else -1
        stack.append(row)
    return answer


@given(calls())
def test_nested_calls_have_the_parent_that_a_stack_finds(events: list[Event]) -> None:
    assert found(events) == model(events)


@given(calls(), st.randoms(use_true_random=False))
def test_the_order_of_the_file_matters_only_among_equal_spans(events: list[Event], chance: random.Random) -> None:
    events = sorted(set(events))
    order = list(range(len(events)))
    chance.shuffle(order)
    shuffled = found([events[row] for row in order])
    back = [-1] * len(events)
    for place, row in enumerate(order):
        back[row] = order[shuffled[place]] if shuffled[place] >= 0 else -1
    assert back == found(events)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 8)).map(lambda one: (one[0], one[1], one[1] + one[2])),
        max_size=12,
    )
)
@example([(0, 0, 10), (0, 5, 15), (0, 6, 9)])
def test_a_parent_always_contains_its_child_on_the_same_track_even_in_disorder(events: list[Event]) -> None:
    answer = found(events)
    for row, parent in enumerate(answer):
        if parent >= 0:
            assert parent != row
            assert events[parent][0] == events[row][0]
            assert events[parent][1] <= events[row][1]
            assert events[row][2] <= events[parent][2]
    for row in range(len(events)):  # no circles
        steps = 0
        while row >= 0:
            row, steps = answer[row], steps + 1
            assert steps <= len(events)


def test_many_calls_in_disorder_have_the_same_parents_with_and_without_the_native_module() -> None:
    chance = np.random.default_rng(7)
    start = np.sort(chance.integers(0, 5_000, 20_000)) + chance.integers(0, 300, 20_000)
    track, end = chance.integers(0, 4, 20_000).astype(np.int32), start + chance.integers(0, 400, 20_000)
    assert (parents(track, start, end) == parents_in_python(track, start, end)).all()


@pytest.mark.skipif(native(MODULE).module is None, reason=native(MODULE).reason)
def test_tracks_that_the_native_module_does_not_take_are_left_to_python() -> None:
    assert found([(1 << 21, 0, 9), (1 << 21, 2, 3), (-1, 0, 9)]) == [-1, 0, -1]
    assert not native(MODULE).module.parents(*(np.full(2, -1, dtype) for dtype in (np.int32, *[np.int64] * 3)))


def test_of_two_equal_spans_the_first_is_the_outer_one() -> None:
    assert found([(0, 5, 9), (0, 5, 9), (0, 6, 7)]) == [-1, 0, 1]


def test_an_event_that_begins_when_another_ends_is_not_in_it() -> None:
    assert found([(0, 0, 5), (0, 5, 9)]) == [-1, -1]


def test_no_events_have_no_parents() -> None:
    assert found([]) == []
