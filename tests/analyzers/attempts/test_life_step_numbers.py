"""The job's number of a step: from the checkpoint that its attempt restored."""

from pathlib import Path

import pytest

from life_making import PlantedLife, judged


def test_a_checkpoint_that_was_renamed_after_its_save_is_tied_by_its_folder_and_that_is_said(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 50.0)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=5.0, saves={8: "/ckpt/step.tmp"})
        life.gone(rank, 15.5, start=1.0)
        life.process(rank, [1.0] * 10, attempt=1, start=20.0, begin=25.0, restored=("/ckpt/step.pt", 21.0, 1.0), left=36.0)
    report, told = judged(life, tmp_path)

    assert told.recoveries[0].lost_steps == 2
    assert any("cannot be tied" in note.what for note in report.quality)


def test_a_checkpoint_of_another_job_says_nothing_about_steps(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 50.0)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=5.0, restored=("/models/pretrained.pt", 2.0, 1.0), left=16.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].first_step == 1
    assert report.ledgers[0].states["restore"] == pytest.approx(2.0)


def twice(life: PlantedLife, **second: object) -> None:
    """A run of 10 steps that completed, and another under the same name."""
    life.launcher(0.0, 20.0)
    life.launcher(100.0, 130.0, attempt=1)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0, left=13.0, saves={10: "/ckpt"})
        life.process(rank, [1.0] * 10, attempt=1, start=101.0, begin=110.0, left=121.0, **second)  # type: ignore[arg-type]


def test_a_run_that_restores_nothing_after_one_that_completed_is_another_run_and_loses_no_work(tmp_path: Path) -> None:
    life = PlantedLife()
    twice(life)
    report, told = judged(life, tmp_path)

    assert "lost_work" not in report.ledgers[0].states
    assert told.new_steps == 20
    assert [(one.first_step, one.last_step, one.redone) for one in told.attempts] == [(1, 10, 0), (11, 20, 0)]
    assert [note.what for note in report.quality if "began again" in note.what] == [
        "attempt 1 began again after a completed one: separate runs under one name?"
    ]


def test_a_run_that_restores_after_one_that_completed_goes_on_from_there(tmp_path: Path) -> None:
    life = PlantedLife()
    twice(life, restored=("/ckpt", 103.0, 1.0), restored_step=5)
    report, told = judged(life, tmp_path)

    assert [(one.first_step, one.last_step, one.redone) for one in told.attempts] == [(1, 10, 0), (6, 15, 5)]
    assert not [note for note in report.quality if "began again" in note.what]


@pytest.mark.parametrize("restored_step", [None, 2])
def test_after_a_run_that_began_anew_failed_the_next_counts_within_it(tmp_path: Path, restored_step: int | None) -> None:
    life = PlantedLife()
    life.launcher(0.0, 20.0)
    life.launcher(100.0, 150.0, attempt=1)
    restored = {} if restored_step is None else {"restored": ("/named", 121.0, 1.0), "restored_step": restored_step}
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0, left=13.0)
        life.process(rank, [1.0] * 4, attempt=1, start=101.0, begin=110.0)
        life.gone(rank, 114.5, attempt=1, start=101.0)
        life.process(rank, [1.0] * 10, attempt=2, start=120.0, begin=130.0, left=141.0, **restored)  # type: ignore[arg-type]
    _, told = judged(life, tmp_path)

    went_on = restored_step or 0
    assert [(one.first_step, one.redone) for one in told.attempts] == [(1, 0), (11, 0), (11 + went_on, 4 - went_on)]
