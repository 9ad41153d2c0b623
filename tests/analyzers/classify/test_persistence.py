"""Stragglers that come and go: from which step to which a rank was late, and that nobody is accused of jitter."""

from pathlib import Path

import pytest

from course_making import SEGMENT, Extra, late, nothing, planted
from tachoscope_analyzers.classify.late_rank_intervals import late_ranks
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.report.trend import LateRank


def found(folder: Path, extra: Extra = nothing, **options: float) -> list[LateRank] | None:
    return late_ranks(aligned(from_spool([planted(folder, extra, **options)])))  # type: ignore[arg-type]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_was_late_for_a_while_is_named_with_its_first_and_last_step(tmp_path: Path, ranks: int) -> None:
    (one,) = found(tmp_path, late(1, 100, 180), ranks=ranks) or []
    (stretch,) = one.stretches

    assert one.rank == 1
    assert abs(stretch.first_step - 100) <= 3
    assert abs(stretch.last_step - 180) <= 3
    assert one.steps == pytest.approx(81, abs=3)
    assert one.share == pytest.approx(81 / 298, abs=0.01)
    assert stretch.seconds_per_step == pytest.approx(0.015, abs=0.002)
    assert stretch.state == "data_wait"
    assert stretch.start == pytest.approx(1.7e9 + 9.9 * 1.015, abs=1.0)
    assert stretch.end - stretch.start == pytest.approx(81 * 0.116, rel=0.05)


def test_a_straggler_that_comes_and_goes_has_several_stretches(tmp_path: Path) -> None:
    def comes_and_goes(step: int, rank: int) -> dict[str, float]:
        return {"forward": 0.03} if rank == 2 and step % 100 >= 60 else {}

    (one,) = found(tmp_path, comes_and_goes, steps=400) or []

    assert one.rank == 2
    assert [(row.first_step, row.last_step) for row in one.stretches] == [
        (pytest.approx(begin, abs=3), pytest.approx(begin + 39, abs=3)) for begin in (60, 160, 260, 360)
    ]
    assert {row.state for row in one.stretches} == {"compute"}


def test_two_ranks_that_are_late_at_once_are_both_named(tmp_path: Path) -> None:
    def both(step: int, rank: int) -> dict[str, float]:
        return {"data_wait": 0.03} if rank in {1, 4} and 100 <= step < 200 else {}

    assert sorted(one.rank for one in found(tmp_path, both, ranks=6) or []) == [1, 4]


def test_a_rank_that_was_late_throughout_has_one_stretch(tmp_path: Path) -> None:
    (one,) = found(tmp_path, late(0, 1, 300)) or []

    assert [(row.first_step, row.last_step) for row in one.stretches] == [(3, 300)]
    assert one.share == 1


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.bar), pytest.param(2, marks=pytest.mark.bar)])
def test_jitter_is_nobodys_lateness(tmp_path: Path, noise: float, ranks: int, seed: int) -> None:
    assert found(tmp_path, noise=noise, ranks=ranks, seed=seed) == []


def test_a_late_rank_that_changes_from_step_to_step_is_none(tmp_path: Path) -> None:
    assert found(tmp_path, lambda step, rank: {"forward": 0.05} if step % 4 == rank else {}) == []


def test_a_single_long_save_of_one_rank_is_no_straggler(tmp_path: Path) -> None:
    assert found(tmp_path, lambda step, rank: {"checkpoint": 2.0} if rank == 0 and step % 20 == 0 else {}) == []


def test_what_costs_less_than_a_warning_is_not_told(tmp_path: Path) -> None:
    assert found(tmp_path, late(1, 100, 180, 0.006)) == []


@pytest.mark.parametrize("options", [{"ranks": 1}, {"steps": 30}])
def test_with_one_rank_or_few_steps_it_is_not_known_and_not_fine(tmp_path: Path, options: dict[str, float]) -> None:
    assert found(tmp_path, late(0, 100, 180), **options) is None


def test_without_the_records_of_a_rank_it_is_not_known(tmp_path: Path) -> None:
    folder = planted(tmp_path, late(0, 100, 180), ranks=2)
    segment = folder / SEGMENT
    segment.write_bytes(segment.read_bytes().replace(b'"world_size":2', b'"world_size":3'))

    assert late_ranks(aligned(from_spool([folder]))) is None
