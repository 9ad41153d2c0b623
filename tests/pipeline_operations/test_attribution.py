"""The step as a sum, against planted truth: what the same job takes without the fault."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from benchmarks.pipeline_operations.attribution import Attribution, attribute
from benchmarks.pipeline_operations.operations import dense
from benchmarks.pipeline_operations.reading import read
from benchmarks.pipeline_operations.simulation import simulate
from operations_making import Plan, write

PLANS = {
    "stage": Plan(steps=5, stage={3: 1.5}),
    "worker": Plan(steps=5, worker={(1, 1): 1.6}),
    "data": Plan(steps=5, lengths=0.4),
    "pauses": Plan(steps=5, pause=(0.03, 0.1)),
    "communication": Plan(steps=5, slow_pair=(1, 0), slow_transfer=0.02),
}


@cache
def attributed(plan: Plan) -> Attribution:
    with TemporaryDirectory() as folder:
        return attribute(dense(read(write(Path(folder), plan))))


Plan.__hash__ = lambda plan: hash(repr(plan))  # type: ignore[method-assign]
MIXED = Plan(steps=5, stage={3: 1.3}, worker={(1, 1): 1.4}, lengths=0.2, pause=(0.02, 0.05), collect=(0.1, 0.05), replicas=3)


@pytest.mark.parametrize("plan", [*PLANS.values(), MIXED, Plan(steps=5)])
@pytest.mark.bar  # of a benchmark
def test_the_parts_sum_to_each_step_and_the_shares_to_one(plan: Plan) -> None:
    found = attributed(plan)
    parts = found.ideal + sum(found.causes.values.values()) + found.delay + found.unexplained + found.error

    assert parts == pytest.approx(found.step, rel=1e-9)
    assert sum(found.shares.values()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("cause", PLANS)
def test_the_planted_cause_has_nearly_all_of_the_gap(cause: str) -> None:
    shares = attributed(PLANS[cause]).shares

    assert max(shares, key=shares.__getitem__) == cause
    assert shares[cause] > 0.95


@pytest.mark.parametrize("cause", ["worker", "pauses", "communication", "data"])
def test_the_seconds_are_those_that_the_job_takes_less_without_the_fault(cause: str) -> None:
    clean = {
        "worker": {"worker": {}},
        "pauses": {"pause": (0.0, 0.0)},
        "communication": {"slow_pair": None},
        "data": {"lengths": 0.0},
    }
    plan = PLANS[cause]
    injected = attributed(plan).step.mean() - attributed(replace(plan, **clean[cause])).step.mean()  # type: ignore[arg-type]

    assert attributed(plan).causes.values[cause].mean() == pytest.approx(injected, rel=0.1)


def test_a_slow_stage_costs_what_moving_its_layers_would_bring_and_not_the_layers_themselves() -> None:
    """With p stages balanced the pipeline takes (m + p - 1) times the mean, with one slow one m times that and the others' fill."""
    plan = replace(PLANS["stage"], jitter=0.0, launch=0.0)
    balanced = replace(plan, stage=dict.fromkeys(range(4), 4.5 / 4))

    injected = attributed(plan).step.mean() - attributed(balanced).step.mean()

    assert attributed(plan).causes.values["stage"].mean() == pytest.approx(injected, rel=0.02)


def test_the_replay_with_all_delays_is_the_recording() -> None:
    found = attributed(MIXED)

    replayed = simulate(found.graph, list(found.times.own), list(found.times.gap))

    assert replayed.step_seconds == pytest.approx(found.step, rel=1e-9)
    assert found.error_ratio < 1e-6


def test_delay_is_stated_by_itself_and_is_no_cause() -> None:
    slow = attributed(Plan(steps=5, launch=0.002))
    fast = attributed(Plan(steps=5, launch=0.0))

    assert slow.delay.mean() > 0.08 * slow.step.mean()
    assert fast.delay == pytest.approx(np.zeros(5), abs=1e-9)
    assert sum(map(np.mean, slow.causes.values.values())) < 0.01 * slow.step.mean()


def test_removal_of_one_cause_is_told_apart_from_its_share_and_two_are_removed_together() -> None:
    found = attributed(MIXED)
    total = float(sum(map(np.mean, found.causes.values.values())))

    assert found.saved(*found.causes.values) == pytest.approx(total)
    assert found.saved("worker", "data") >= max(found.saved("worker"), found.saved("data")) - 1e-6
    assert found.speedup("worker") == pytest.approx(found.step.mean() / (found.step.mean() - found.saved("worker")))


def test_a_clock_that_is_wrong_is_an_error_of_the_replay_and_nothing_is_attributed() -> None:
    found = attributed(Plan(steps=5, skew={(1, 0): -0.1}))

    assert found.error_ratio > 0.05
    assert "misses the recorded steps" in found.refusal
    assert not attributed(MIXED).refusal
