from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.schedulers.common.allocation import (
    Allocation,
    Launch,
    gang_wait_seconds,
    held_seconds,
    match,
    of_job,
    queued_seconds,
    running_seconds,
)
from tachoscope_core.errors import TachoscopeError

ENDED = Allocation(source="slurm", name="7", submitted=0, eligible=5, placed=10, started=30, ended=100, nodes=("a", "b"))
REQUEUED = replace(ENDED, attempt=1, submitted=100, eligible=100, placed=150, started=160, ended=None, nodes=("b", "c"))


def test_the_queue_ends_with_the_first_node_and_the_wait_for_the_gang_begins() -> None:
    assert (queued_seconds(ENDED), gang_wait_seconds(ENDED), running_seconds(ENDED), held_seconds(ENDED)) == (10, 20, 70, 90)


def test_what_the_scheduler_does_not_say_is_not_zero() -> None:
    unknown = Allocation(source="kubernetes", name="ml/train")

    for seconds in queued_seconds, gang_wait_seconds, running_seconds, held_seconds:
        assert seconds(unknown) is None
        assert seconds(unknown, now=50) is None


def test_what_still_lasts_is_counted_up_to_now() -> None:
    assert running_seconds(REQUEUED) is None
    assert running_seconds(REQUEUED, now=200) == 40
    waits = replace(REQUEUED, placed=None, started=None)
    assert queued_seconds(waits, now=130) == 30
    assert gang_wait_seconds(replace(REQUEUED, started=None), now=170) == 20


def test_an_allocation_that_ended_in_the_queue_held_nothing() -> None:
    gone = replace(ENDED, placed=None, started=None)

    assert (queued_seconds(gone), gang_wait_seconds(gone), running_seconds(gone), held_seconds(gone)) == (100, 0, 0, 0)


def test_a_gang_that_never_came_together_only_waited() -> None:
    never = replace(ENDED, started=None)

    assert (queued_seconds(never), gang_wait_seconds(never), running_seconds(never), held_seconds(never)) == (10, 90, 0, 90)


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(sorted), st.booleans(), st.booleans())
def test_the_parts_sum_to_the_time_from_submission_to_end_whatever_is_known(times: list[int], placed: bool, started: bool) -> None:
    one = replace(
        ENDED, submitted=times[0], placed=times[1] if placed else None, started=times[2] if started else None, ended=times[3]
    )

    parts = [queued_seconds(one), gang_wait_seconds(one), running_seconds(one)]

    assert sum(part or 0 for part in parts) == times[3] - times[0]


def test_launches_are_in_the_allocation_of_their_time_several_in_one() -> None:
    launches = [Launch(start=31, end=50), Launch(start=52, end=99), Launch(start=161, end=None)]

    assert match([ENDED, REQUEUED], launches) == [ENDED, ENDED, REQUEUED]


def test_a_launch_outside_of_all_allocations_has_none() -> None:
    pending = replace(REQUEUED, placed=None, started=None)

    assert match([ENDED, pending], [Launch(start=120, end=130)]) == [None]
    assert match([], [Launch(start=120, end=130)]) == [None]


def test_of_jobs_at_the_same_time_the_one_on_the_same_host_is_taken() -> None:
    other = replace(ENDED, name="8", nodes=("c", "d"))

    assert match([ENDED, other], [Launch(start=40, end=50, hosts=("d.example.com",))]) == [other]
    assert match([ENDED, other], [Launch(start=40, end=50, hosts=("elsewhere",))]) == [ENDED]


def test_a_host_in_common_does_not_make_up_for_a_time_that_is_not() -> None:
    other = replace(ENDED, name="8", placed=500, started=500, ended=600, nodes=("x",))

    assert match([ENDED, other], [Launch(start=520, end=530, hosts=("a",))]) == [other]


@pytest.mark.parametrize("end", [None, 120.0])
def test_a_launch_over_two_allocations_is_in_the_one_that_holds_more_of_it(end: float | None) -> None:
    assert match([ENDED, replace(REQUEUED, placed=101, started=101)], [Launch(start=90, end=end)]) == [
        replace(REQUEUED, placed=101, started=101)
    ]


def test_a_job_has_its_allocations_without_a_launch_too_and_none_of_other_jobs() -> None:
    pending = replace(REQUEUED, placed=None, started=None)
    other = replace(ENDED, name="8", nodes=("x",))

    assert of_job([ENDED, other, pending], [Launch(start=31, end=50, hosts=("a",))]) == [ENDED, pending]
    assert of_job([], [Launch(start=500, end=510)]) == []


def test_allocations_of_other_jobs_only_are_refused() -> None:
    with pytest.raises(TachoscopeError, match="no attempt ran in the time that the scheduler reports 7"):
        of_job([ENDED], [Launch(start=500, end=510)])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), min_size=1, max_size=6),
    st.data(),
)
def test_a_launch_within_an_allocation_is_matched_to_it(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    at, allocations, launches = 0, [], []
    for attempt, (wait, length) in enumerate(lengths):
        begin, at = at + wait, at + wait + length
        allocations.append(replace(ENDED, attempt=attempt, placed=begin, started=begin, ended=at))
        inner = sorted((data.draw(st.integers(begin, at)), data.draw(st.integers(begin, at))))
        launches.append(Launch(start=inner[0], end=inner[1]))

    for launch, one, found in zip(launches, allocations, match(allocations, launches), strict=True):
        assert found is not None
        assert found.placed <= launch.start <= launch.end <= found.ended
        assert found == one or launch.start == launch.end
