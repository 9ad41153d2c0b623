from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.analyses.time_bins import binned


def of(changes: list[tuple[int, float]], bounds: list[int]) -> tuple[list[float], list[float]]:
    course = binned(np.array([at for at, _ in changes]), np.array([value for _, value in changes], dtype=float), np.array(bounds))
    return course.mean.tolist(), course.most.tolist()


def test_a_value_holds_until_the_next_one() -> None:
    mean, most = of([(0, 1.0), (15, 3.0), (25, 0.0)], [0, 10, 20, 30, 40])

    assert mean == [1.0, 2.0, 1.5, 0.0]
    assert most == [1.0, 3.0, 3.0, 0.0]


def test_before_its_first_value_nothing_is_known() -> None:
    mean, most = of([(15, 4.0)], [0, 10, 20, 30])

    assert np.isnan(mean[0])
    assert np.isnan(most[0])
    assert (mean[1:], most[1:]) == ([4.0, 4.0], [4.0, 4.0])


def test_a_value_that_ends_where_the_bin_begins_is_not_in_it() -> None:
    assert of([(0, 9.0), (10, 1.0)], [10, 20])[1] == [1.0]


def test_without_a_value_all_is_unknown() -> None:
    assert np.isnan(binned(np.zeros(0, dtype=np.int64), np.zeros(0), np.array([0, 1, 2])).mean).all()


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), min_size=1, unique_by=lambda change: change[0]),
    st.lists(st.integers(0, 70), min_size=2, max_size=6, unique=True),
)
def test_bins_equal_a_look_at_each_nanosecond(changes: list[tuple[int, int]], bounds: list[int]) -> None:
    changes, bounds = sorted(changes), sorted(bounds)
    held = [max(((at, value) for at, value in changes if at <= moment), default=(0, None))[1] for moment in range(71)]

    mean, most = of([(at, float(value)) for at, value in changes], bounds)

    for place, (start, end) in enumerate(itertools.pairwise(bounds)):
        known = [value for value in held[start:end] if value is not None]
        if known:
            assert abs(mean[place] - sum(known) / len(known)) < 1e-9
            assert most[place] == max(known)
        else:
            assert np.isnan(mean[place])
