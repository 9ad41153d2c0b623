import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.ranks.clock_alignment import UNKNOWN_ERROR, clock_rows, clock_table, completed, group_offsets
from tachoscope_analyzers.trace.ranks.collective_matching import ABSENT, MatchedCollectives

EPOCH = 1_700_000_000_000_000_000


def matched(ends: np.ndarray, ranks: list[int], kind: str = "all_reduce") -> MatchedCollectives:
    duration = np.where(ends == ABSENT, ABSENT, 1_000)
    count = ends.shape[1]
    return MatchedCollectives(
        group="0",
        description="",
        size=len(ranks),
        ranks=np.array(ranks),
        start=np.where(ends == ABSENT, ABSENT, ends - 1_000),
        duration=duration,
        exposed=duration,
        kind=np.full(count, kind, dtype=object),
        bytes=np.full(count, -1),
        step=np.full(count, -1),
    )


def ends(offsets: list[int], count: int = 20, scatter: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    true = EPOCH + np.cumsum(rng.integers(10**6, 10**7, count))
    noise = np.rint(rng.normal(0, scatter, (len(offsets), count))).astype(np.int64)
    return true + np.array(offsets, dtype=np.int64)[:, None] + noise


@given(offsets=st.lists(st.integers(-(10**13), 10**13), min_size=2, max_size=9))
def test_clocks_are_found_to_the_nanosecond_where_collectives_end_together(offsets) -> None:
    found = group_offsets(matched(ends(offsets), list(range(len(offsets)))))
    assert (found.offset - found.offset[0] == np.array(offsets) - offsets[0]).all()
    assert found.error.tolist() == [1] * len(offsets)


def test_the_error_is_the_scatter_of_the_ends() -> None:
    found = group_offsets(matched(ends([0] * 8, count=400, scatter=5_000), list(range(8))))
    assert found.error == pytest.approx([5_000] * 8, rel=0.25)
    assert np.abs(found.offset - found.offset[0]).max() < 2_000


def test_a_few_stalled_collectives_do_not_move_a_clock() -> None:
    table = ends([0, 500, -300], count=21)
    table[1, :6] += 80_000_000
    found = group_offsets(matched(table, [0, 1, 2]))
    assert (found.offset - found.offset[0]).tolist() == [0, 500, -300]


def test_time_stamps_in_microseconds_are_no_better_than_that() -> None:
    table = ends([0, 0]) // 1_000 * 1_000
    assert group_offsets(matched(table, [0, 1])).error.tolist() == [1_000, 1_000]


@pytest.mark.parametrize("table", [ends([0, 5], count=2), ends([0, 5], count=0)], ids=["two", "none"])
def test_too_few_collectives_tell_no_clock(table: np.ndarray) -> None:
    assert group_offsets(matched(table, [0, 1])).error.tolist() == [UNKNOWN_ERROR] * 2


def test_a_broadcast_tells_no_clock_since_its_root_need_not_wait() -> None:
    assert group_offsets(matched(ends([0, 5]), [0, 1], "broadcast")).error.tolist() == [UNKNOWN_ERROR] * 2


def test_clocks_are_handed_on_from_group_to_group() -> None:
    offsets = {0: 0, 1: 400, 2: -70, 3: 10**9}
    pairs = [(0, 1), (1, 2), (2, 3)]
    groups = [matched(ends([offsets[rank] for rank in pair], seed=place), list(pair)) for place, pair in enumerate(pairs)]
    table = clock_table(clock_rows(groups, [group_offsets(group) for group in groups], [0, 1, 2, 3]))
    assert dict(zip(table["rank"], table["offset_ns"], strict=True)) == offsets
    assert table["error_ns"].is_monotonic_increasing  # each step of the way adds its own


def test_a_rank_that_nothing_connects_has_no_clock_error() -> None:
    group = matched(ends([0, 5]), [0, 1])
    table = clock_table(clock_rows([group], [group_offsets(group)], [0, 1, 2]))
    assert table["error_ns"].tolist() == [0, 1, -1]


def test_a_group_with_few_collectives_takes_the_clocks_that_others_tell() -> None:
    world, few = matched(ends([0, 900, 5]), [0, 1, 2]), matched(ends([900, 5], count=1), [1, 2])
    offsets = [group_offsets(world), group_offsets(few)]
    found = completed(few, offsets[1], clock_rows([world, few], offsets, [0, 1, 2]))
    assert found.offset.tolist() == [900, 5]
    assert (found.error < UNKNOWN_ERROR).all()


def test_absent_collectives_count_for_nothing() -> None:
    table = ends([0, 77], count=12)
    table[1, ::2] = ABSENT
    found = group_offsets(matched(table, [0, 1]))
    assert found.offset[1] - found.offset[0] == 77
    assert found.collectives.tolist() == [6, 6]
