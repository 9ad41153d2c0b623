from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.stats.arrays import distinct, median, quantile


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30), st.floats(0, 1))
def test_a_quantile_is_that_of_numpy_to_the_last_bit(values: list[float], at: float) -> None:
    assert quantile(np.array(values), at) == float(np.quantile(values, at))


@given(st.lists(st.floats(-1e9, 1e9) | st.just(float("nan")), min_size=1, max_size=9))
def test_a_median_is_that_of_numpy_to_the_last_bit(values: list[float]) -> None:
    assert repr(float(median(np.array(values)))) == repr(float(np.median(values)))


@given(st.lists(st.integers(-5, 5), max_size=30))
def test_distinct_values_are_those_of_numpy(values: list[int]) -> None:
    assert distinct(np.array(values, dtype=np.int64)).tolist() == np.unique(values).tolist()
