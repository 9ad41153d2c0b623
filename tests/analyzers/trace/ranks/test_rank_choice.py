from __future__ import annotations

from tachoscope_analyzers.trace.ranks.rank_sampling import outstanding, spread


def test_ranks_that_stand_out_are_among_those_shown() -> None:
    waits = dict.fromkeys(range(1000), 1.0) | {613: 9.0, 17: 0.1}

    shown, extreme = outstanding(waits, 64)

    assert len(shown) == len(set(shown)) == 64
    assert shown == sorted(shown)
    assert {613, 17} <= set(extreme) <= set(shown)
    assert len(extreme) == 32


def test_few_ranks_are_all_shown_and_none_stands_out() -> None:
    assert outstanding({3: 1.0, 1: 2.0}, 64) == ([1, 3], [])


def test_a_sample_reaches_from_the_first_to_the_last() -> None:
    assert spread(range(1000), 3) == [0, 499, 999]
    assert spread([4, 5], 3) == [4, 5]
    assert spread(range(9), 1) == [0]
