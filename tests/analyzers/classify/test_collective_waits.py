"""Waiting and transfer of collectives whose truth is planted: when each rank came, and how long the data took."""

from __future__ import annotations

import random
from typing import Any

import pytest

from making import moved
from tachoscope_analyzers.classify.communication.nccl_waits import collective_waits, evidence
from tachoscope_core.records.records import CollectiveDone

RANKS = 4


def call(
    arrivals: list[float], transfer: float, sequence: int, collective: str = "all_reduce", **fields: Any
) -> list[CollectiveDone]:
    """Return what each rank says about a call: it is in it from when it came until the last has come and the data has moved."""
    end = max(arrivals) + transfer
    whole = {"group_size": len(arrivals), "communicator": "0x1", "sequence": sequence} | fields
    return [moved(rank, collective, sequence, seconds=end - arrival, **whole) for rank, arrival in enumerate(arrivals)]


def test_the_planted_transfer_and_waiting_of_each_rank_are_found_and_sum_to_its_seconds() -> None:
    dice = random.Random(7)
    rows, waits, transfers = [], [0.0] * RANKS, 0.0
    for sequence in range(23):
        arrivals = [dice.uniform(0.0, 0.01) for _ in range(RANKS)]
        arrivals[2] += 0.05
        transfer = dice.uniform(0.001, 0.002)
        rows += call(arrivals, transfer, sequence)
        transfers += transfer
        waits = [waited + max(arrivals) - arrival for waited, arrival in zip(waits, arrivals, strict=True)]
    dice.shuffle(rows)

    found = collective_waits(rows)

    assert (found.calls, found.left_out) == (23, 0)
    assert found.last == {2: 23}
    assert found.caused_seconds == {2: pytest.approx(sum(waits))}
    for rank in range(RANKS):
        assert found.wait_seconds[rank] == pytest.approx(waits[rank])
        assert found.transfer_seconds[rank] == pytest.approx(transfers)
        seconds = sum(row.seconds for row in rows if row.rank == rank)
        assert found.wait_seconds[rank] + found.transfer_seconds[rank] == pytest.approx(seconds)


def test_a_call_that_a_rank_did_not_tell_of_is_in_no_sum() -> None:
    rows = call([0.0, 0.0, 0.0, 0.0], 0.001, 0) + call([0.0, 0.0, 0.0, 5.0], 0.001, 1)[:3]

    found = collective_waits(rows)

    assert (found.calls, found.left_out) == (1, 1)
    assert sum(found.wait_seconds.values()) == pytest.approx(0.0)


def test_calls_of_the_same_number_in_other_communicators_kinds_and_attempts_are_not_mixed() -> None:
    rows = [
        *call([0.0, 0.2], 0.001, 5),
        *call([0.3, 0.0], 0.001, 5, communicator="0x2"),
        *call([0.0, 0.0], 0.001, 5, collective="all_gather"),
        *call([0.4, 0.0], 0.001, 5, attempt=1),
    ]

    found = collective_waits(rows)

    assert found.calls == 4
    assert found.wait_seconds == {0: pytest.approx(0.2), 1: pytest.approx(0.7)}


def test_what_the_probe_summed_up_and_sends_are_left_alone() -> None:
    rows = [moved(0, "all_reduce", group_size=2), *call([0.0, 0.1], 0.001, 3, collective="send", peer=1)]

    found = collective_waits(rows)

    assert (found.calls, found.left_out) == (0, 0)
    assert found.wait_share is None, "nothing compared is not nothing waited"


def test_a_rank_that_told_twice_of_a_call_is_compared_with_none() -> None:
    rows = call([0.0, 0.1], 0.001, 3)

    assert collective_waits([*rows, rows[0]]).left_out == 1


def test_the_evidence_names_the_part_that_was_waiting_and_for_whom_and_is_absent_where_nobody_told() -> None:
    rows = [row for sequence in range(5) for row in call([0.0, 0.0, 0.03, 0.0], 0.01, sequence)]

    (found,) = evidence(rows, attempt=0)
    assert found.value == pytest.approx(0.09 / 0.13)
    assert "5 collectives" in found.source
    assert "rank 2, which came last in 5" in found.source
    assert evidence(rows, attempt=1) == []
    assert evidence([moved(0, "all_reduce", group_size=2)], attempt=0) == []
