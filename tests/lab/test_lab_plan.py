"""Which runs the lab draws: enough of each, the same from the same seed, and each set its own."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from benchmarks.lab import faults, plan
from benchmarks.lab.faults.input import rank_of_part
from benchmarks.lab.workloads.exchange import partner

from tachoscope_core.report.taxonomy import BY_SLUG

RUNS = plan.runs("development", runs_per_class=4, seed=7)


def test_every_class_has_its_runs_at_each_severity() -> None:
    counts = Counter((spec.faults[0].slug, spec.severity) for spec in RUNS if spec.kind == "fault")
    assert counts == {(slug, severity): 4 for slug in faults.SLUGS for severity in (0.1, 0.2, 0.5)}
    assert set(faults.SLUGS) <= set(BY_SLUG)


def test_three_in_ten_runs_are_clean_and_both_sides_of_each_look_alike_are_there() -> None:
    kinds = Counter(spec.kind for spec in RUNS)
    assert kinds["clean"] >= 0.3 * len(RUNS)
    sides = Counter((spec.lookalike, spec.faults[0].slug if spec.faults else "nothing") for spec in RUNS if spec.lookalike)
    assert set(sides.values()) == {4}
    assert {pair for pair, _ in sides} == plan.LOOKALIKES.keys()


def test_ids_are_of_one_run_each_and_the_order_mixes_the_classes() -> None:
    assert len({spec.id for spec in RUNS}) == len(RUNS)
    neighbours = sum(one.faults[:1] != () and one.kind == other.kind for one, other in itertools.pairwise(RUNS))
    assert neighbours < len(RUNS) - 10


def test_the_same_seed_draws_the_same_runs_and_another_set_draws_others() -> None:
    assert plan.runs("development", runs_per_class=4, seed=7) == RUNS
    others = plan.runs("test", runs_per_class=4, seed=7)
    assert len(others) == len(RUNS)
    assert not {spec.seed for spec in RUNS} & {spec.seed for spec in others}


def test_more_runs_of_a_class_leave_those_that_were_drawn_as_they_are() -> None:
    more = {spec.id: spec for spec in plan.runs("development", runs_per_class=6, seed=7)}
    same = [spec for spec in RUNS if spec.kind == "fault"]
    assert all(more[spec.id] == spec for spec in same)


def test_both_sides_of_a_look_alike_are_the_same_training_with_the_same_culprit() -> None:
    for pair in ("2v11", "1v2", "4v12", "11v24"):
        one, other = sorted(
            (spec for spec in RUNS if spec.lookalike == pair and spec.id.endswith("-000")), key=lambda spec: spec.id
        )
        assert (one.shape["model"], one.shape["scale"], one.severity) == (
            other.shape["model"],
            other.shape["scale"],
            other.severity,
        )


def test_only_what_is_asked_for_is_made() -> None:
    chosen = plan.runs("development", runs_per_class=2, seed=7, only=("hang", "4v12"))
    assert {spec.kind for spec in chosen} == {"fault", "lookalike"}
    assert {spec.faults[0].slug for spec in chosen if spec.kind == "fault"} == {"hang"}


@pytest.mark.parametrize("world_size", [2, 4])
def test_in_a_round_robin_each_rank_meets_every_other_once(world_size: int) -> None:
    for rank in range(world_size):
        met = [partner(step, rank, world_size) for step in range(world_size - 1)]
        assert sorted(met) == sorted(set(range(world_size)) - {rank})
    for step in range(world_size - 1):
        assert all(partner(step, partner(step, rank, world_size), world_size) == rank for rank in range(world_size))


def test_a_culprit_that_changes_is_one_rank_in_each_part_of_the_run() -> None:
    planned = next(fault for spec in RUNS for fault in spec.faults if fault.cause == "changing_rank")
    ranks = [rank_of_part(planned, batch, 120, 2) for batch in range(120)]
    changes = sum(one != other for one, other in itertools.pairwise(ranks))
    assert changes == int(planned.parameters["parts"]) - 1
    assert max(ranks.count(rank) for rank in range(2)) <= 80  # of none it is so much that it would be the culprit of all
