"""Counts of what checks of the numbers found, from planted records of two replicas."""

from __future__ import annotations

from typing import Any

from making import envelope
from tachoscope_core.records.records import IntegrityEvent
from tachoscope_node.jobs.integrity_counts import MAX_STEPS, Integrity


def check(rank: int, step: int, checksum: str = "same", *bad: str, attempt: int = 0, **fields: Any) -> IntegrityEvent:
    told: dict[str, Any] = {"replicas": [0, 1], "checksum": checksum, "not_finite": list(bad), **fields}
    return IntegrityEvent(**envelope(rank, attempt=attempt), step=step, check="parameters", **told)


def counted(*events: IntegrityEvent) -> dict[str, int]:
    integrity = Integrity()
    for event in events:
        integrity.add_event(event)
    return {kind: count for kind, count in integrity.events.items() if count}


def test_checks_that_find_nothing_leave_every_kind_at_zero() -> None:
    integrity = Integrity()
    integrity.add_event(check(0, 100))

    assert integrity.events == {"loss": 0, "gradients": 0, "parameters": 0, "checksum": 0}


def test_a_step_with_nan_counts_once_for_all_its_ranks_and_again_at_the_next_check() -> None:
    spread = [check(rank, step, "x", "loss", "parameters") for step in (100, 200) for rank in (0, 1)]

    assert counted(check(0, 50), check(1, 50), *spread) == {"loss": 2, "parameters": 2}


def test_replicas_that_differ_count_once_they_were_alike_whichever_rank_is_read_first() -> None:
    first, second = ([check(rank, step, f"{rank if step > 200 else ''}") for step in (100, 200, 300, 400)] for rank in (0, 1))

    assert counted(*first, *second) == {}, "no checksum was taken in the steps before"
    first, second = ([check(rank, step, f"s{rank if step > 200 else ''}") for step in (100, 200, 300, 400)] for rank in (0, 1))
    assert counted(*first, *second) == {"checksum": 2}
    assert counted(*(event for pair in zip(first, second, strict=True) for event in pair)) == {"checksum": 2}


def test_replicas_that_never_agreed_may_not_have_to() -> None:
    assert counted(check(0, 100, "a"), check(1, 100, "b"), check(0, 200, "a"), check(1, 200, "b")) == {}


def test_a_new_attempt_has_to_agree_anew_before_it_can_differ() -> None:
    alike = [check(0, 100), check(1, 100)]
    other = [check(0, 100, "a", attempt=1), check(1, 100, "b", attempt=1)]

    assert counted(*alike, *other) == {}
    assert counted(*alike, *other, check(0, 200, "x", "loss")) == {}, "a late word of the attempt before"


def test_not_finite_numbers_have_no_checksum_to_be_compared() -> None:
    assert counted(check(0, 100), check(1, 100), check(0, 200, "a", "parameters"), check(1, 200, "b")) == {"parameters": 1}


def test_what_is_remembered_has_a_bound() -> None:
    integrity = Integrity()
    for step in range(10 * MAX_STEPS):
        integrity.add_event(check(0, step, "x" * 10_000))

    assert len(integrity.steps) == MAX_STEPS
    assert max(len(value) for checked in integrity.steps.values() for value in checked.sums.values()) < 100


def test_kinds_that_nobody_knows_count_nothing_and_nobody_can_say_that_checksums_differ() -> None:
    assert counted(check(0, 100, "x", "novel", "checksum")) == {}
