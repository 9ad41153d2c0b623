"""What each cause adds to the durations, by itself and together."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pipeline_operations.dependencies import dependencies
from benchmarks.pipeline_operations.effects import CAUSES, Effects, effects, rank_correlation
from benchmarks.pipeline_operations.operations import Operations, dense
from benchmarks.pipeline_operations.reading import read
from benchmarks.pipeline_operations.simulation import measured
from operations_making import Plan, write


def found(folder: Path, plan: Plan) -> tuple[Operations, Effects]:
    operations = dense(read(write(folder, plan)))
    return operations, effects(operations, measured(operations, dependencies(operations)))


def test_all_causes_together_are_the_recording(tmp_path: Path) -> None:
    plan = Plan(steps=6, stage={1: 1.3}, worker={(0, 1): 1.5}, lengths=0.3, pause=(0.05, 0.1), collect=(0.2, 0.1))
    operations, parts = found(tmp_path, plan)

    for number, taken in enumerate(parts.own(frozenset(CAUSES))):
        assert np.broadcast_to(taken, parts.measured[number].shape) == pytest.approx(parts.measured[number]), operations.each[
            number
        ]


def test_one_bad_worker_does_not_spoil_the_ideal(tmp_path: Path) -> None:
    _, parts = found(tmp_path, Plan(steps=6, replicas=3, worker={(2, 1): 5.0}))

    assert parts.computing.ideal == pytest.approx([0.010, 0.020], rel=0.01)
    assert parts.computing.worker[:, 2, 1] == pytest.approx(5.0, rel=0.01)
    others = np.delete(parts.computing.worker.reshape(2, -1), 2 * 3 + 1, axis=1)
    assert others == pytest.approx(np.ones_like(others))


def test_work_is_moved_between_stages_and_not_removed(tmp_path: Path) -> None:
    _, parts = found(tmp_path, Plan(steps=6, stage={3: 2.0}))

    assert parts.computing.ideal == pytest.approx([0.0125, 0.025], rel=0.01)
    assert parts.computing.stage[0] == pytest.approx([0.8, 0.8, 0.8, 1.6], rel=0.01)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_lengths_are_known_whatever_they_cost_each_type(tmp_path: Path, power: float) -> None:
    _, parts = found(tmp_path, Plan(steps=6, lengths=0.4, power=power))

    assert parts.computing.alike > 0.95
    assert np.abs(parts.computing.pauses).mean() < 0.02 * parts.computing.ideal.mean()


@pytest.mark.parametrize("stages", [1, 4])
def test_jitter_that_forward_and_backward_do_not_share_is_not_of_the_data(tmp_path: Path, stages: int) -> None:
    _, parts = found(tmp_path, Plan(steps=6, stages=stages, replicas=4, jitter=0.4))

    assert abs(parts.computing.alike) < 0.5
    assert (parts.computing.data == 1).all()


def test_a_correlation_by_ranks_does_not_mind_single_pauses() -> None:
    values = np.random.default_rng(0).random(1000)
    paused = values.copy()
    paused[::100] += 1000.0

    assert rank_correlation(values, values**3) == pytest.approx(1.0)
    assert rank_correlation(values, paused) > 0.95
    assert rank_correlation(values, np.ones(1000)) == 0.0
