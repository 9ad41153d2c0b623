import numpy as np
import pytest
from test_clocks import EPOCH

from tachoscope_analyzers.trace.events.intervals import Intervals
from tachoscope_analyzers.trace.ranks.clock_alignment import UNKNOWN_ERROR, Offsets
from tachoscope_analyzers.trace.ranks.collective_matching import ABSENT, MatchedCollectives
from tachoscope_analyzers.trace.ranks.lateness import Lateness, collective_table, lateness, wait_table

ALWAYS = {rank: Intervals(np.array([0]), np.array([1 << 62])) for rank in range(4)}
"""No rank computes anything."""


def late(
    starts: list[list[int]],
    end: list[int],
    *,
    error: int = 1,
    kind: str = "all_reduce",
    size: int = 0,
    exposed: dict[int, Intervals] = ALWAYS,
) -> Lateness:
    start = np.array(starts, dtype=np.int64)
    here = start >= 0
    begin = np.where(here, start + EPOCH, ABSENT)
    duration = np.where(here, np.array(end) - start, ABSENT)
    ranks, count = start.shape
    group = MatchedCollectives(
        group="0",
        description="dp",
        size=size or ranks,
        ranks=np.arange(ranks),
        start=begin,
        duration=duration,
        exposed=np.where(here, 1, ABSENT),
        kind=np.full(count, kind, dtype=object),
        bytes=np.full(count, 10_000),
        step=np.zeros(count, dtype=np.int64),
    )
    offsets = Offsets(np.zeros(ranks, dtype=np.int64), np.full(ranks, error), np.full(ranks, count))
    return lateness(group, offsets, exposed)


def test_all_wait_for_the_last_and_the_next_to_last_tells_what_it_costs() -> None:
    (row,) = collective_table(late([[100], [700], [1_000]], [1_500]), 0).itertuples()
    assert (row.last_rank, row.delay_ns, row.wait_max_ns, row.wait_mean_ns, row.transfer_ns) == (2, 300, 900, 600, 500)
    assert row.shortest_rank == 2
    assert row.bus_bandwidth_gb_per_s == pytest.approx(10_000 / 500 * 2 * 2 / 3)


def test_what_is_below_the_error_is_transfer() -> None:
    (row,) = collective_table(late([[100], [700], [1_000]], [1_500], error=200), 0).itertuples()
    assert (row.delay_ns, row.error_ns, row.wait_max_ns) == (0, 400, 900)


def test_clocks_that_nothing_aligns_claim_no_wait() -> None:
    table = collective_table(late([[100], [10**12]], [10**12 + 5], error=UNKNOWN_ERROR), 0)
    assert (table["delay_ns"] == 0).all() and (table["error_ns"] == -1).all() and (table["wait_max_ns"] == 0).all()


def test_a_rank_waits_no_longer_than_its_collective_took() -> None:
    """The root of a broadcast is done before the last receiver comes, so it did not wait for it."""
    found = late([[100], [100]], [200], kind="broadcast")
    start = found.group.start.copy()
    start[1] += 5_000
    group = MatchedCollectives(**{**found.group.__dict__, "start": start})
    again = lateness(group, Offsets(np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64), np.ones(2, dtype=np.int64)), ALWAYS)
    assert again.wait.tolist() == [[100], [0]]
    assert again.delay.tolist() == [100]


def test_two_collectives_that_wait_for_one_rank_at_once_cost_that_time_once() -> None:
    found = late([[0, 10, 2_000], [1_000, 1_000, 2_500]], [1_100, 1_200, 2_600])
    assert found.delay.tolist() == [1_000, 990, 500]
    assert found.added_delay.tolist() == [1_000, 0, 500]
    assert found.added_wait[0].tolist() == [1_000, 0, 500]


def test_waiting_while_the_rank_still_computes_costs_nothing() -> None:
    """Two buckets of gradients wait for a rank that is 1,000 late; the other one computes from the first until the second."""
    idle = Intervals(np.array([EPOCH + 400]), np.array([1 << 62]))
    found = late([[0, 400], [1_000, 1_400]], [1_100, 1_500], exposed=ALWAYS | {0: idle})
    assert found.wait[0].tolist() == found.delay.tolist() == [1_000, 1_000]
    assert found.added_delay.tolist() == found.added_wait[0].tolist() == [600, 400], "and not 1,000 and 400"


def test_a_rank_that_computes_all_the_time_loses_nothing_to_a_late_one() -> None:
    nowhere = dict.fromkeys(range(4), Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)))
    found = late([[0, 400], [1_000, 1_400]], [1_100, 1_500], exposed=nowhere)
    assert not found.added_delay.any() and not found.added_wait.any()


def test_an_absent_rank_neither_waits_nor_is_waited_for() -> None:
    found = late([[0, 0], [400, -1], [300, 50]], [500, 600])
    assert found.wait.tolist() == [[400, 50], [0, 0], [100, 0]]
    table = collective_table(found, 0)
    assert table["ranks"].tolist() == [3, 2]
    assert np.isnan(table["bus_bandwidth_gb_per_s"]).tolist() == [False, True]  # not all of its ranks are here


def test_wait_and_transfer_of_a_rank_sum_to_its_durations() -> None:
    found = late([[0, 600], [400, 700]], [500, 900])
    table = wait_table(found, 3)
    assert (table["wait_ns"] + table["transfer_ns"] == table["duration_ns"]).all()
    assert table["wait_ns"].tolist() == [500, 0]
    assert table["group_number"].tolist() == [3, 3]
