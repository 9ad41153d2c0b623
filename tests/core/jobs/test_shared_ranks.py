"""Who is which rank where several processes say they are the same."""

from __future__ import annotations

from making import envelope
from tachoscope_core.jobs.shared_ranks import claims, shared_ranks
from tachoscope_core.records import records


def process(pid: int, begin: float, end: float, *, rank: int = 0, attempt: int = 0, world: int = 1) -> list[records.AnyRecord]:
    """Return the first and the last record of a process."""
    who = {"writer": f"0000000{pid}-0000-4000-8000-000000000000", "attempt": attempt}
    started = records.JobStarted(**envelope(rank, 0, time=begin, **who), world_size=world, pid=pid)
    return [started, records.JobEnded(**envelope(rank, 1, time=end, **who), status="left")]


def given(*processes: list[records.AnyRecord]) -> list[dict[str, int]]:
    """Return for each shared rank what its processes are analyzed as, by the first digit of their writers' names."""
    found = shared_ranks(claims([row for rows in processes for row in rows]))
    return [{writer[7]: rank for writer, rank in one.writers.items()} for one in found]


def test_processes_at_the_same_time_get_ranks_in_the_order_of_their_process_ids() -> None:
    assert given(process(2, 100.0, 200.0), process(1, 100.0, 190.0), process(3, 100.0, 201.0)) == [{"1": 0, "2": 1, "3": 2}]


def test_processes_one_after_the_other_stay_one_rank() -> None:
    assert given(process(1, 100.0, 200.0), process(2, 199.0, 300.0)) == []
    assert given(process(1, 100.0, 200.0), process(2, 150.0, 200.0, attempt=1)) == []


def test_a_pool_of_two_has_two_ranks_however_many_trials_it_runs() -> None:
    trials = [process(pid, 100.0 * (pid // 2), 100.0 * (pid // 2) + 95.0) for pid in range(2, 8)]

    assert given(*trials) == [{"2": 0, "3": 1, "4": 0, "5": 1, "6": 0, "7": 1}]


def test_ranks_that_a_launcher_gave_are_not_given_again() -> None:
    pairs = [process(pid, 100.0, 200.0, rank=pid % 2, world=2) for pid in range(1, 5)]

    assert given(*pairs) == [{"2": 0, "4": 2}, {"1": 1, "3": 3}]


def test_a_process_that_died_at_once_beside_the_others_has_a_rank_too() -> None:
    assert given(process(1, 100.0, 200.0), process(2, 100.5, 100.6)) == [{"1": 0, "2": 1}]
