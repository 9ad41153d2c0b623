"""What is said of a change: when, from how many seconds to how many, which state grew, on which ranks."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from course_making import Extra, late, nothing, planted, slower
from tachoscope_analyzers.job.report import analyze, verdict, verdicts
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.report.trend import Trend


def course(folder: Path, extra: Extra = nothing, **options: int) -> Trend:
    found = analyze(from_spool([planted(folder, extra, **options)])).course  # type: ignore[arg-type]
    assert found is not None
    return found


def test_of_a_rank_that_became_slow_the_state_the_seconds_and_the_rank_are_told(tmp_path: Path) -> None:
    (one,) = course(tmp_path, late(2, 161, 300)).changes or []

    assert abs(one.step - 161) <= 2
    assert (one.first_step, one.last_step) == (3, 300)
    assert one.before_seconds == pytest.approx(0.101, rel=0.02)
    assert one.after_seconds - one.before_seconds == pytest.approx(0.0145, abs=0.001)
    assert [row.state for row in one.states] == ["data_wait"]
    assert one.states[0].after_seconds == pytest.approx(0.016, rel=0.1)
    assert one.ranks == [2]
    assert one.share == pytest.approx(0.14, abs=0.015)


def test_its_time_is_when_the_step_began(tmp_path: Path) -> None:
    (one,) = course(tmp_path, late(2, 161, 300)).changes or []

    assert one.time == pytest.approx(1.7e9 + 0.101 * 160, abs=0.5)


@pytest.mark.parametrize(("phase", "state"), [("forward", "compute"), ("collective", "communication"), ("gc", "host_wait")])
def test_what_grew_on_all_ranks_is_nobodys(tmp_path: Path, phase: str, state: str) -> None:
    (one,) = course(tmp_path, slower(150, phase=phase)).changes or []

    assert [row.state for row in one.states] == [state]
    assert one.ranks == "all"


def test_a_rank_that_recovers_is_named_at_both_ends(tmp_path: Path) -> None:
    begin, end = course(tmp_path, late(1, 100, 200, 0.03)).changes or []

    assert (begin.ranks, end.ranks) == ([1], [1])
    assert begin.share > 0 > end.share
    assert [row.state for row in end.states] == ["data_wait"]


def test_periodic_saves_are_no_part_of_the_levels(tmp_path: Path) -> None:
    def saving(step: int, rank: int) -> dict[str, float]:
        return slower(150)(step, rank) | ({"checkpoint": 0.6} if step % 15 == 0 else {})

    (one,) = course(tmp_path, saving).changes or []

    assert one.after_seconds == pytest.approx(0.1165, rel=0.02)
    assert [row.state for row in one.states] == ["compute"]


def test_a_steady_run_has_neither_changes_nor_late_ranks_nor_a_picture(tmp_path: Path) -> None:
    found = course(tmp_path)

    assert (found.changes, found.late, found.picture) == ([], [], [])


def test_too_few_steps_to_tell_are_not_measured_and_not_fine(tmp_path: Path) -> None:
    assert course(tmp_path, steps=30).changes is None


def test_the_states_of_a_mean_step_sum_to_it(tmp_path: Path) -> None:
    found = course(tmp_path, late(0, 50, 150))

    assert sum(row.seconds for row in found.states.values()) == pytest.approx(found.step.seconds)


def test_the_picture_covers_every_step_once(tmp_path: Path) -> None:
    bins = course(tmp_path, slower(150)).picture

    assert (bins[0].first_step, bins[-1].last_step) == (3, 300)
    assert all(left.last_step + 1 == right.first_step for left, right in pairwise(bins))
    assert all(one.p05 <= one.p50 <= one.p95 for one in bins)


def test_a_fault_in_part_of_the_steps_is_judged_by_itself_and_what_is_around_it_too(tmp_path: Path) -> None:
    job = from_spool([planted(tmp_path, late(1, 100, 200, 0.03))])  # type: ignore[arg-type]

    before, fault, after = verdicts(job)

    assert [one.findings[0].class_ for one in (before, fault, after)] == ["compute_bound", "input_straggler", "compute_bound"]
    assert fault.findings[0].ranks == [1] and fault.findings[0].seconds_per_step == pytest.approx(0.03, rel=0.1)
    assert fault.window.steps == pytest.approx(101, abs=2)
    assert before.window.steps + fault.window.steps + after.window.steps == verdict(job).window.steps, "each step once"


@pytest.mark.parametrize("seed", range(5))
def test_steps_that_go_on_as_they_were_are_judged_as_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    def noise(step: int, rank: int) -> dict[str, float]:
        return {"forward": abs(chance.gauss(0, 0.01)), "data_wait": 0.1 * (chance.random() < 0.01)}

    job = from_spool([planted(tmp_path, noise)])  # type: ignore[arg-type]

    assert verdicts(job) == [verdict(job)]
