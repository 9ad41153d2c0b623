"""The replay of a step."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pipeline_operations.dependencies import dependencies
from benchmarks.pipeline_operations.operations import dense
from benchmarks.pipeline_operations.reading import read
from benchmarks.pipeline_operations.simulation import measured, simulate
from operations_making import Plan, write

PLANS = [
    Plan(steps=4),
    Plan(steps=4, stages=2, chunks=2, lengths=0.3),
    Plan(steps=4, stages=1, replicas=3),
    Plan(steps=4, stages=2, batches=1, worker={(0, 0): 3.0}),
    Plan(steps=4, lengths=0.5, pause=(0.1, 0.05), launch=0.001),
]


@pytest.mark.parametrize("plan", PLANS)
def test_with_the_recorded_delays_every_operation_is_as_recorded(tmp_path: Path, plan: Plan) -> None:
    operations = dense(read(write(tmp_path, plan)))
    graph = dependencies(operations)
    times = measured(operations, graph)

    replayed = simulate(graph, list(times.own), list(times.gap))

    assert np.array(replayed.end) == pytest.approx(operations.end, abs=1e-9)
    inline = np.flatnonzero(graph.inline)  # what runs beside computing may begin to wait earlier than the replay says, not end
    assert np.array(replayed.begin)[inline] == pytest.approx(operations.start[inline], abs=1e-9)


@pytest.mark.parametrize("plan", PLANS)
def test_what_takes_less_never_makes_the_step_longer(tmp_path: Path, plan: Plan) -> None:
    operations = dense(read(write(tmp_path, plan)))
    graph = dependencies(operations)
    own = list(measured(operations, graph).own)
    whole = simulate(graph, own).step_seconds
    draw = np.random.default_rng(plan.seed)

    for _ in range(10):
        less = [seconds * draw.random() if draw.random() < 0.3 else seconds for seconds in own]
        assert (simulate(graph, less).step_seconds <= whole + 1e-12).all()
    assert simulate(graph, [0.0 * seconds for seconds in own]).step_seconds == pytest.approx(np.zeros(4))


def test_a_collective_is_divided_into_waiting_for_the_last_and_the_transfer(tmp_path: Path) -> None:
    plan = Plan(steps=4, worker={(1, 1): 2.0}, jitter=0.0, launch=0.0)
    operations = dense(read(write(tmp_path, plan)))
    times = measured(operations, dependencies(operations))
    scatters = operations.of("grads-reduce-scatter")

    assert times.own[scatters] == pytest.approx(plan.collective)
    assert times.wait[scatters][1].min(axis=-1) == pytest.approx(np.zeros(4), abs=1e-9)
    assert times.own + times.wait == pytest.approx(operations.duration)


def test_steps_are_replayed_independently(tmp_path: Path) -> None:
    operations = dense(read(write(tmp_path, Plan(steps=4, lengths=0.4))))
    graph = dependencies(operations)
    own = list(measured(operations, graph).own)

    one = simulate(graph, [seconds[2:3] for seconds in own]).step_seconds

    assert one == pytest.approx(simulate(graph, own).step_seconds[2:3])
