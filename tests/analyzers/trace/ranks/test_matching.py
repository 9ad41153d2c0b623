import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.ranks.collective_matching import ABSENT, match

MILLISECOND = 1_000_000


def arrivals(ends: list[int], *, kinds: list[str] | None = None, steps: list[int] | None = None, **columns: object) -> pd.DataFrame:
    count = len(ends)
    table = {
        "group": "0",
        "group_description": "dp",
        "group_ranks": "[0, 1]",
        "kind": kinds or ["all_reduce"] * count,
        "channel": -1,
        "group_size": 2,
        "sequence": -1,
        "step": steps or [-1] * count,
        "start_ns": np.array(ends, dtype=np.int64) - 1_000,
        "duration_ns": 1_000,
        "bytes": -1,
        "exposed_ns": 0,
    }
    return pd.DataFrame({**table, **columns}, index=range(count))


def irregular(count: int, seed: int = 1) -> list[int]:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.integers(5 * MILLISECOND, 15 * MILLISECOND, count)).tolist()


@given(count=st.integers(8, 40), first=st.integers(-4, 4), offset=st.integers(-(10**12), 10**12), seed=st.integers(0, 99))
def test_the_same_collectives_are_found_whenever_a_recording_began_and_whatever_its_clock_says(count, first, offset, seed) -> None:
    ends = irregular(count + 8, seed)
    mine, theirs = ends[4 : 4 + count], ends[4 + first : 4 + first + count]
    (group,), strangers = match({0: arrivals(mine), 1: arrivals([end + offset for end in theirs])})
    assert strangers == []
    assert (group.end[1] - group.end[0] == offset).all()
    assert group.start.shape == (2, count - abs(first))


def test_kinds_in_another_order_tell_where_the_sequences_fit() -> None:
    kinds = ["all_gather", "reduce_scatter", "reduce_scatter", "all_reduce"] * 3
    ends = [10 * MILLISECOND * place for place in range(12)]  # so regular that the ends alone would fit anywhere
    (group,), _ = match({0: arrivals(ends, kinds=kinds), 1: arrivals(ends[:11], kinds=kinds[1:])})
    assert group.kind.tolist() == kinds[1:]


def test_steps_decide_where_collectives_are_so_regular_that_anything_fits() -> None:
    ends = [10 * MILLISECOND * place for place in range(12)]
    steps = list(range(12))
    (group,), _ = match({0: arrivals(ends, steps=steps), 1: arrivals(ends[:10], steps=steps[2:])})
    assert group.step.tolist() == steps[2:]
    assert (group.end[1] - group.end[0] == -20 * MILLISECOND).all()


def test_coalesced_collectives_that_share_a_sequence_number_stay_apart() -> None:
    numbers = [1, 1, 2, 3, 3]
    (group,), _ = match({0: arrivals(irregular(5), sequence=numbers), 1: arrivals(irregular(5)[1:], sequence=numbers[:4])})
    assert group.start.shape == (2, 4)


def test_a_rank_that_does_something_else_is_a_stranger_and_does_not_disturb_the_others() -> None:
    ends = irregular(10)
    other = arrivals(ends, kinds=["broadcast", "all_to_all"] * 5)
    (group,), strangers = match({0: arrivals(ends), 1: arrivals(ends), 2: other})
    assert group.ranks.tolist() == [0, 1]
    assert strangers == [("0", (2,))]


def test_sends_and_receives_are_not_compared() -> None:
    groups, _ = match({rank: arrivals(irregular(4), kinds=["send", "recv", "send_recv", "send"]) for rank in (0, 1)})
    assert groups == []


def test_groups_of_the_same_name_with_other_ranks_are_other_groups() -> None:
    ends = irregular(6)
    pairs = {rank: arrivals(ends, group_ranks=f"[{rank // 2 * 2}, {rank // 2 * 2 + 1}]") for rank in range(4)}
    groups, _ = match(pairs)
    assert [group.ranks.tolist() for group in groups] == [[0, 1], [2, 3]]


def test_a_collective_that_a_rank_lacks_is_absent_there_and_one_that_only_one_rank_has_is_left_out() -> None:
    numbers = list(range(6))
    ends = irregular(6)
    three = {
        0: arrivals(ends, sequence=numbers),
        1: arrivals(ends[1:5], sequence=numbers[1:5]),
        2: arrivals(ends[1:], sequence=numbers[1:]),
    }
    (group,), _ = match(three)
    assert group.start.shape == (3, 5)
    assert (group.start == ABSENT).sum(axis=1).tolist() == [0, 1, 0]


def test_one_rank_alone_has_nothing_to_be_compared_with() -> None:
    assert match({3: arrivals(irregular(4))}) == ([], [])
    assert match({}) == ([], [])
