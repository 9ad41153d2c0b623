"""What is said of communicators, from reports in RAS's own form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake_ras import communicator
from tachoscope_core.metrics.nccl import COMMUNICATOR_STATES
from tachoscope_node.nccl.ras_report import MOST_NAMED, Communicators, Report, is_safe, read
from trying import each

# The example of NCCL's documentation, troubleshooting/ras.rst of 2.29.1.
DOCUMENTED = b"""{
  "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2025-12-19 13:06:53",
  "communicators_count": 1,
  "communicators": [
    {"hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e", "size": 2, "ranks_count": 1,
      "missing_ranks_count": 1,
      "ranks": [
        {"rank": 0, "host": "172.16.64.245", "pid": 1524344, "cuda_dev": 0, "nvml_dev": 0,
          "status": {"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false},
          "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 0}}],
      "missing_ranks": [
        {"rank": 1, "host": "172.16.64.245", "pid": 1524345, "cuda_dev": 1, "nvml_dev": 1,
          "status": {"unresponsive": true, "considered_dead": false}}]}],
  "ras": {"collection_time_sec": 0.000, "timeouts_count": 0}}
"""


def report(*communicators: dict[str, Any]) -> Report:
    return read(json.dumps({"nccl_version": "2.29.1", "communicators": communicators}).encode())


def with_status(rows: dict[str, Any], **status: object) -> dict[str, Any]:
    """Give the last rank another status."""
    rows["ranks"][-1]["status"] |= status
    return rows


def state_of(row: dict[str, Any]) -> str:
    known = Communicators(8)
    known.add_report(report(row))
    (state,) = (state for state, count in known.states().items() if count)
    return state


def test_the_example_of_nccls_documentation_is_incomplete_by_one_rank() -> None:
    known = Communicators(8)
    sentences = known.add_report(read(DOCUMENTED))

    assert known.states() == dict.fromkeys(COMMUNICATOR_STATES, 0) | {"incomplete": 1}
    assert known.missing() == {"unresponsive": 1, "dead": 0, "not_a_member": 0}
    assert sentences == [
        "communicator 0xae94423cfbb2ef4a of 2 ranks is incomplete: rank 1 (process 1524345 on 172.16.64.245) unresponsive"
    ]


@each(
    ("row", "state"),
    [
        (communicator(5, 5), "running"),
        (communicator(5, 4), "disagreeing"),
        (with_status(communicator(0, 0), init_state=7), "starting"),
        (with_status(communicator(5, 4), finalize_called=True), "ending"),
        (communicator(5, missing={1: {"unresponsive": False, "considered_dead": False}}), "ending"),
        (communicator(5, missing={1: {"unresponsive": True, "considered_dead": True}}), "incomplete"),
        (with_status(communicator(5, 5), async_error=6), "error"),
        (with_status(communicator(5, 5), init_state=1), "error"),
    ],
)
def test_a_communicator_is_in_one_state(row: dict[str, Any], state: str) -> None:
    assert state_of(row) == state


def test_a_communicator_that_is_being_left_does_not_hang_however_long_it_takes() -> None:
    known = Communicators(3)
    for _ in range(10):
        known.add_report(report(with_status(communicator(5, 4), finalize_called=True)))

    assert known.states()["hung"] == 0
    assert known.states()["ending"] == 1


def test_an_error_is_told_with_its_code_and_its_rank() -> None:
    (sentence,) = Communicators(8).add_report(report(with_status(communicator(5, 5), async_error=6)))

    assert "ncclResult_t 6 at rank 1 (process 1001" in sentence


def test_of_many_ranks_some_are_named_and_the_others_counted() -> None:
    known = Communicators(2)
    sentences = [known.add_report(report(communicator(*[9] * 50, *[8] * 50))) for _ in range(3)][-1]

    assert sentences[0].count("(process") == MOST_NAMED
    assert f"and {50 - MOST_NAMED} more launched 8 AllReduce where others launched 9" in sentences[0]


def test_two_communicators_are_judged_each_by_itself() -> None:
    known = Communicators(3)
    for count in range(5):
        known.add_report(report(communicator(9, 8, name="0x1"), communicator(9 + count, 8 + count, name="0x2")))

    assert {state: count for state, count in known.states().items() if count} == {"hung": 1, "disagreeing": 1}


@each(("version", "safe"), [("2.28.7", True), ("2.29.1", True), ("3.0.0", True), ("2.27.7", False), ("2.9.9", False), ("", False)])
def test_versions_before_2_28_are_not_safe(version: str, *, safe: bool) -> None:
    assert is_safe(version) is safe


@each("answer", [b"", b"null", b"[]", b'{"nccl_version": 2, "communicators": []}', b"[" * 9999])
def test_garbage_is_no_report(answer: bytes) -> None:
    with pytest.raises(ValueError):
        read(answer)
