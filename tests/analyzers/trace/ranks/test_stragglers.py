import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.ranks.stragglers import by_chance, stragglers


def table(last: list[int], delay: list[int], steps: list[int] | None = None, wait: list[int] | None = None) -> pd.DataFrame:
    count = len(last)
    return pd.DataFrame(
        {
            "group": "0",
            "group_description": "dp",
            "group_number": 0,
            "step": steps or list(range(count)),
            "start_ns": np.arange(count),
            "last_rank": last,
            "shortest_rank": last,
            "delay_ns": delay,
            "added_delay_ns": delay,
            "added_wait_ns": wait or delay,
        }
    )


def named(collectives: pd.DataFrame, ranks: int = 4, step: float = 1_000.0) -> list[int]:
    found = stragglers(collectives, {0: ranks}, step)
    return found.loc[found["straggler"], "rank"].tolist()


def test_a_rank_that_is_late_step_after_step_is_the_straggler() -> None:
    assert named(table([2] * 10, [300] * 10)) == [2]


def test_ranks_that_take_turns_are_none() -> None:
    assert named(table([0, 1, 2, 3] * 3, [300] * 12)) == []


def test_one_large_stall_is_no_straggler() -> None:
    assert named(table([2] * 10, [10_000] + [1] * 9)) == []


def test_less_than_a_tenth_of_the_step_is_no_straggler() -> None:
    assert named(table([2] * 10, [90] * 10)) == []


def test_two_ranks_and_few_steps_can_be_chance() -> None:
    assert named(table([1] * 4, [300] * 4), ranks=2) == []
    assert named(table([1] * 6, [300] * 6), ranks=2) == [1]


def test_in_a_single_step_its_collectives_are_counted() -> None:
    assert named(table([7] * 6 + [1, 2], [300] * 6 + [10, 10], steps=[0] * 8), ranks=8) == [7]
    assert named(table([7] * 2, [300] * 2, steps=[0] * 2), ranks=2) == []


def test_what_others_waited_for_in_the_first_collective_of_the_recording_is_told_apart() -> None:
    found = stragglers(table([2] * 3, [300, 20, 20]), {0: 4}, 1_000.0)
    assert found["waited_at_first_ns"].tolist() == [300]
    assert found["waited_ns"].tolist() == [340]


def test_without_lateness_there_is_no_row_and_without_steps_no_straggler() -> None:
    none = stragglers(table([0] * 3, [0] * 3), {0: 2}, 1_000.0)
    assert none.empty
    assert list(none[none["straggler"]].columns) == list(none.columns)
    assert stragglers(table([], []), {}, math.nan).empty
    assert named(table([2] * 10, [300] * 10), step=math.nan) == []


@given(trials=st.integers(1, 40), hits=st.data(), ranks=st.integers(2, 16))
def test_the_bound_is_never_below_the_binomial_tail(trials, hits, ranks) -> None:
    count = hits.draw(st.integers(0, trials))
    tail = sum(math.comb(trials, k) * ranks**-k * (1 - 1 / ranks) ** (trials - k) for k in range(count, trials + 1))
    assert by_chance(trials, count, ranks) >= min(1.0, ranks * tail) * (1 - 1e-9)


def test_the_bound_is_sharp_where_a_rank_is_always_last() -> None:
    assert by_chance(6, 6, 2) == pytest.approx(2 * 0.5**6)
