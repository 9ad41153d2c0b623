"""The ledger of a recording: every second of every worker once."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pipeline_operations.attribution import attribute
from benchmarks.pipeline_operations.causes import bubble_ratio
from benchmarks.pipeline_operations.operations import Operations, dense
from benchmarks.pipeline_operations.reading import read
from benchmarks.pipeline_operations.states import ledgers, states
from operations_making import Plan, write


def booked(folder: Path, plan: Plan) -> tuple[Operations, dict[str, np.ndarray]]:
    operations = dense(read(write(folder, plan)))
    return operations, states(operations, attribute(operations))


@pytest.mark.parametrize(
    "plan",
    [
        Plan(steps=5),
        Plan(steps=5, stages=2, chunks=2),
        Plan(steps=5, stages=1, replicas=4, lengths=0.5),
        Plan(steps=5, worker={(2, 0): 2.0}, pause=(0.1, 0.1), collect=(0.3, 0.2), launch=0.001),
        Plan(steps=5, replicas=1),
    ],
)
def test_the_states_sum_to_the_step_for_every_worker_and_none_is_negative(tmp_path: Path, plan: Plan) -> None:
    operations, split = booked(tmp_path, plan)
    total = sum(split.values())

    assert total == pytest.approx(np.broadcast_to(operations.step_seconds[None, :, None], total.shape), rel=1e-9)
    assert all((seconds >= -1e-12).all() for seconds in split.values())
    whole, *_ = ledgers(operations, split)
    assert sum(whole.states.values()) == pytest.approx(whole.wall_seconds)


def test_computing_is_what_was_recorded_as_that(tmp_path: Path) -> None:
    operations, split = booked(tmp_path, Plan(steps=5))
    recorded = operations.duration[operations.of("forward-compute", "backward-compute", "optimizer")].sum()

    assert split["compute"].sum() == pytest.approx(recorded)


def test_the_bubble_of_an_even_pipeline_is_that_of_the_formula(tmp_path: Path) -> None:
    operations, split = booked(tmp_path, Plan(steps=5, jitter=0.0, launch=0.0, transfer=1e-6, collective=1e-6))
    of_pipeline = split["pipeline_bubble"] + split["compute"] - 0.005  # without the optimizer

    assert (split["pipeline_bubble"] / of_pipeline).mean() == pytest.approx(bubble_ratio(operations), abs=0.005)
    assert bubble_ratio(operations) == pytest.approx(3 / (8 + 3))
    assert split["straggler_wait"].sum() < 0.01 * split["compute"].sum()


def test_waiting_beyond_the_bubble_is_for_the_straggler_and_it_waits_least(tmp_path: Path) -> None:
    _, split = booked(tmp_path, Plan(steps=5, worker={(1, 1): 1.6}))
    waits = split["straggler_wait"].mean(axis=1)

    assert waits[1, 1] < 0.01 < np.delete(waits.ravel(), 3).min()


def test_one_replica_of_one_stage_has_one_ledger(tmp_path: Path) -> None:
    operations, split = booked(tmp_path, Plan(steps=5, stages=1, replicas=1))

    assert len(ledgers(operations, split)) == 1
    assert split["pipeline_bubble"].sum() == 0
