"""What counts as the same answer of two servers, and which differences are allowed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from benchmarks.fleet.comparison import Compared, compare
from benchmarks.fleet.expressions import Expression
from benchmarks.server_process import ServerProcess

Rows = dict[str, float]


class Answering:
    """A server that gives one value for each rank, whatever it is asked."""

    def __init__(self, values: Rows, **labels: str) -> None:
        self._values, self._labels = values, labels

    def ask(self, path: str, **query: str) -> Any:
        rows = [{"metric": {"rank": rank, **self._labels}, "value": [0, str(value)]} for rank, value in self._values.items()]
        return {"resultType": "vector", "result": rows}


def compared(query: str, ours: Rows, theirs: Rows, **labels: str) -> Compared:
    first, second = cast(ServerProcess, Answering(ours)), cast(ServerProcess, Answering(theirs, **labels))
    return compare(first, second, [Expression("panel", query)], at=0.0)


@pytest.mark.parametrize("theirs", [2.0, 2.0000001], ids=["equal", "rounded"])
def test_the_same_values_are_no_difference(theirs: float) -> None:
    assert compared("x", {"0": 2.0}, {"0": theirs}).differences == []


def test_the_rounding_of_a_difference_that_is_nothing_is_none() -> None:
    assert compared("1 - x", {"0": 0.0}, {"0": 1.1e-16}).differences == []


def test_a_name_that_one_server_keeps_is_no_difference() -> None:
    assert compared("avg_over_time(x[5m])", {"0": 2.0}, {"0": 2.0}, __name__="x").differences == []


def test_another_value_or_series_of_a_gauge_has_no_reason() -> None:
    assert [one.what for one in compared("x", {"0": 2.0}, {"0": 2.1}).unexplained] == ['0.048 apart at most, {rank="0"}']
    assert [one.what for one in compared("x", {"0": 2.0}, {}).unexplained] == ['only the first has {rank="0"}']


def test_of_equal_values_topk_may_choose_others_but_not_others_values() -> None:
    assert compared("topk(1, x)", {"0": 2.0}, {"1": 2.0}).unexplained == []
    assert len(compared("topk(1, x)", {"0": 2.0}, {"1": 3.0}).unexplained) == 1


def test_rates_over_short_windows_may_differ_a_little_and_over_long_ones_by_more() -> None:
    assert compared("rate(x[1m])", {"0": 2.0}, {"0": 2.02}).unexplained == []
    assert len(compared("rate(x[1m])", {"0": 2.0}, {"0": 2.2}).unexplained) == 1
    assert compared("rate(x[10m])", {"0": 2.0}, {"0": 2.2}).unexplained == []
