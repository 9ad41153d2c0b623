"""What proves that a GPU of the node ended a job, and what does not."""

from __future__ import annotations

import pytest

from tachoscope_node.gpu.health.failure_cause import SLACK_SECONDS, gpu_failed
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_node.gpu.xid.counter import XidError, about
from trying import each

MINE, OTHER = (f"GPU-{digit * 8}-0000-4000-8000-000000000000" for digit in "12")
STEPPED = 10_000.0


def seen(xid: int, uuid: str = MINE, at: float = STEPPED + 5.0) -> XidError:
    return XidError(uuid, "0", about(xid), 1, at, "", reset_since=False)


def reading(fault: str, uuid: str = MINE) -> Reading:
    return Reading(Gpu(0, uuid), up=not fault, fault=fault)


@each("xid", [48, 79, 95, 140])
def test_an_error_after_which_the_gpu_must_be_reset_ended_the_job_that_had_it(xid: int) -> None:
    assert gpu_failed([MINE], STEPPED, [reading("")], [seen(xid)])


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(seen(31), id="which a program causes itself"),
        pytest.param(seen(63), id="which is news only"),
        pytest.param(seen(9999), id="which nobody knows"),
        pytest.param(seen(79, OTHER), id="of a GPU that the job did not have"),
        pytest.param(seen(79, at=STEPPED - SLACK_SECONDS - 1.0), id="after which the job went on"),
    ],
)
def test_an_error_proves_nothing(error: XidError) -> None:
    assert not gpu_failed([MINE], STEPPED, [reading("")], [error])


def test_a_gpu_that_is_lost_ended_its_job_and_one_that_does_not_answer_may_have() -> None:
    assert gpu_failed([MINE], STEPPED, [reading("lost")], [])
    assert not gpu_failed([MINE], STEPPED, [reading("no_answer")], [])
    assert not gpu_failed([MINE], STEPPED, [reading("lost", OTHER)], [])


def test_a_job_of_which_no_gpu_is_known_was_ended_by_none() -> None:
    assert not gpu_failed([], STEPPED, [reading("lost")], [seen(79)])
    assert not gpu_failed(["no such form"], STEPPED, [Reading(Gpu(0, ""), up=False, fault="lost")], [seen(79, "other")])
