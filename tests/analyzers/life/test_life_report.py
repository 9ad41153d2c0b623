"""Where the time of planted lives went: which state, and of how much that was allocated."""

from pathlib import Path

import pytest

from life_making import T0, PlantedLife, judged, killed_three_times
from tachoscope_analyzers.schedulers.common.allocation import Allocation


def test_a_job_killed_three_times_loses_the_steps_since_its_checkpoints(tmp_path: Path) -> None:
    report, life = judged(killed_three_times(), tmp_path)
    states = report.ledgers[0].states

    assert life.denominator == "launcher"
    assert life.allocated_seconds == pytest.approx(200.0)
    # One step done again after each kill, and half a second to a second of the sixth step.
    assert states["lost_work"] == pytest.approx(3 * 2 * 1.0 + 3 * (0.5 + 1.0))
    assert states["restore"] == pytest.approx(3 * 2 * 1.5)
    assert life.new_steps == 5 + 4 + 4 + 7
    assert [(a.attempt, a.first_step, a.last_step, a.redone, a.ended) for a in life.attempts] == [
        (0, 1, 5, 0, "killed"),
        (1, 5, 9, 1, "killed"),
        (2, 9, 13, 1, "killed"),
        (3, 13, 20, 1, "completed"),
    ]
    assert report.goodput == pytest.approx(states["compute"] / 200.0)


def test_the_time_between_two_runs_of_the_same_name_is_not_the_jobs(tmp_path: Path) -> None:
    life = PlantedLife()
    for attempt, begin in enumerate((0.0, 10_000.0)):
        life.launcher(begin, begin + 30.0, attempt=attempt)
        for rank in range(2):
            saves, restored = {10: "/ckpt"}, ("/ckpt", begin + 2.0, 1.0) if attempt else None
            life.process(
                rank,
                [1.0] * 10,
                attempt=attempt,
                start=begin + 1.0,
                begin=begin + 5.0,
                saves=saves,
                restored=restored,
                left=begin + 16.0,
            )
    _, told = judged(life, tmp_path)

    assert told.allocated_seconds == pytest.approx(2 * 60.0)
    assert [a.ended for a in told.attempts] == ["completed", "completed"]
    assert told.new_steps == 20
    assert told.recoveries == []


def test_without_a_launcher_the_denominator_is_said_to_be_the_records(tmp_path: Path) -> None:
    life = PlantedLife()
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=5.0, left=16.0)
    report, told = judged(life, tmp_path)

    assert told.denominator == "records"
    assert told.allocated_seconds == pytest.approx(30.0)
    assert any("only the ranks" in note.what for note in report.quality)
    assert "hang" in {row.class_ for row in report.not_measured}
    assert told.queued_seconds is None


def test_ranks_that_left_no_record_count_as_unexplained(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 20.0)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=5.0, left=15.0, world=4)
    report, told = judged(life, tmp_path)

    assert told.allocated_seconds == pytest.approx(80.0)
    assert report.ledgers[0].states["unexplained"] == pytest.approx(40.0 + 2 * 5.0)
    assert any("2 of the ranks left no record" in note.what for note in report.quality)


def test_maintenance_counts_for_nothing(tmp_path: Path) -> None:
    plain, with_it = PlantedLife(), PlantedLife()
    for life, pause in ((plain, 0.0), (with_it, 500.0)):
        life.launcher(0.0, 40.0 + pause)
        for rank in range(2):
            life.process(rank, [1.0] * 9 + [1.0 + pause] + [1.0] * 10, start=1.0, begin=5.0, left=30.0 + pause)
    (tmp_path / "plain").mkdir()
    without, _ = judged(plain, tmp_path / "plain")
    report, told = judged(with_it, tmp_path, maintenance=[(T0 + 14.5, T0 + 514.5)])

    assert told.excluded_seconds == pytest.approx(2 * 500.0)
    assert told.allocated_seconds == pytest.approx(80.0)
    assert report.ledgers[0].states == pytest.approx(without.ledgers[0].states)


def test_a_job_that_crashes_before_its_first_step_only_initialises(tmp_path: Path) -> None:
    life = PlantedLife()
    for attempt in range(3):
        life.launcher(100.0 * attempt, 100.0 * attempt + 20.0, attempt=attempt, code=1)
    report, told = judged(life, tmp_path)

    assert report.ledgers[0].states == {"initialisation": pytest.approx(60.0)}
    assert report.goodput == 0.0
    assert (told.new_steps, told.attempts) == (0, [])


def test_a_command_that_failed_before_its_first_step_says_how_and_is_no_clean_bill(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 3.0, code=1)
    report, told = judged(life, tmp_path)

    assert not told.attempts
    assert [(note.what, note.severity) for note in report.quality if "no training step" in note.what] == [
        ("no training step was seen of a command: exit code 1", "bad")
    ]


def test_the_queue_is_in_the_waterfall_but_not_in_the_goodput(tmp_path: Path) -> None:
    life = PlantedLife()
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=5.0, left=16.0)
    allocation = Allocation(
        source="slurm", name="1", submitted=T0 - 300.0, placed=T0, started=T0, ended=T0 + 20.0, nodes=("node-0",), accelerators=2
    )
    report, told = judged(life, tmp_path, allocations=[allocation])

    assert told.denominator == "slurm"
    assert told.queued_seconds == pytest.approx(600.0)
    assert told.allocated_seconds == pytest.approx(40.0)
    assert report.ledgers[0].wall_seconds == pytest.approx(640.0)
    assert report.goodput == pytest.approx(20.0 * 0.9 / 40.0)


@pytest.mark.parametrize(("killed", "named"), [((1, 1, 1), [1]), ((0, 1, 1), "all")])
def test_lost_work_names_the_rank_whose_end_it_always_was_and_nobody_where_it_was_chance(
    tmp_path: Path, killed: tuple[int, ...], named: list[int] | str
) -> None:
    """Two ranks, steps of 1 s and no checkpoint: each attempt does all steps of the one before again."""
    life = PlantedLife()
    life.launcher(0.0, 120.0)
    for attempt in range(4):
        at, last = 20.0 * attempt, attempt == 3
        for rank in range(2):
            life.process(
                rank,
                [1.0] * (40 if last else 12),
                attempt=attempt,
                start=at + 1.0,
                begin=at + 2.0,
                left=at + 45.0 if last else None,
            )
            if not last:
                first = rank == killed[attempt]
                life.gone(rank, at + 14.5 + (0.0 if first else 0.5), attempt=attempt, start=at + 1.0, code=-9 if first else -15)
    report, _ = judged(life, tmp_path)
    (found,) = [one for one in report.findings if one.class_ == "lost_work"]

    assert found.ranks == named
