"""Who says how long the job held its ranks, and what follows where they say different things."""

from pathlib import Path

import msgspec
import pytest

from life_making import T0, PlantedLife
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_core.records import records
from tachoscope_core.report.job_life import Life


def life_of(life: PlantedLife, folder: Path, **options: object) -> Life:
    report = analyze_life(life.load(folder), now=T0 + 1e6, **options)  # type: ignore[arg-type]
    assert report.life is not None
    return report.life


def seen_by_agent(life: PlantedLife, first: float, last: float, attempt: int, host: str = "node-0") -> None:
    own = {"writer": f"agent-{host}-{attempt}", "attempt": attempt, "host": host}
    life.add(records.JobStarted, first + 0.5, **own, world_size=0, pid=0, process_time=T0 + first)  # type: ignore[arg-type]
    life.add(records.JobEnded, last, **own, status="failed")  # type: ignore[arg-type]


def test_an_agent_holds_a_job_from_its_first_process_to_its_last_and_between_restarts(tmp_path: Path) -> None:
    life = PlantedLife()
    for attempt, start in enumerate((0.0, 100.0)):
        seen_by_agent(life, start, start + 60.0, attempt)
        for rank in range(2):
            life.process(rank, [1.0] * 30, attempt=attempt, start=start, begin=start + 10.0, left=start + 45.0)
    told = life_of(life, tmp_path)

    assert told.denominator == "agent"
    assert told.allocated_seconds == pytest.approx(2 * 160.0)


def test_a_launcher_is_believed_before_an_agent(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(-10.0, 80.0)
    seen_by_agent(life, 0.0, 60.0, 0)
    life.process(0, [1.0] * 30, world=1, start=0.0, begin=10.0, left=45.0)
    told = life_of(life, tmp_path)

    assert told.denominator == "launcher"
    assert told.allocated_seconds == pytest.approx(90.0)


def test_accelerators_without_a_rank_are_held_all_the_same(tmp_path: Path) -> None:
    life = PlantedLife()
    life.process(0, [1.0] * 30, world=1, start=5.0, begin=10.0, left=45.0)
    allocation = Allocation(source="slurm", name="1", placed=T0, started=T0, ended=T0 + 50.0, nodes=("node-0",), accelerators=4)
    report = analyze_life(life.load(tmp_path), allocations=[allocation], now=T0 + 1e6)

    assert report.ledgers[0].wall_seconds == pytest.approx(200.0)
    assert report.ledgers[0].states["unexplained"] == pytest.approx(150.0 + 10.0)
    assert any("3 accelerators more" in note.what for note in report.quality)
    assert report.life is not None
    assert report.life.queued_seconds is None  # it does not say when the job was submitted


def test_an_attempt_that_the_scheduler_does_not_know_falls_back_to_who_does(tmp_path: Path) -> None:
    life = PlantedLife()
    for attempt, start in enumerate((0.0, 5000.0)):
        life.launcher(start, start + 60.0, attempt=attempt)
        life.process(0, [1.0] * 30, world=1, attempt=attempt, start=start + 1.0, begin=start + 10.0, left=start + 45.0)
    allocation = Allocation(source="slurm", name="1", placed=T0 + 4990.0, started=T0 + 4990.0, ended=T0 + 5070.0, nodes=("node-0",))
    told = life_of(life, tmp_path, allocations=[allocation])

    assert told.denominator == "launcher"  # the weakest of those believed
    assert told.allocated_seconds == pytest.approx(60.0 + 80.0)


def test_two_scripts_of_one_command_are_not_the_same_steps_again(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 100.0)
    for start in (0.0, 50.0):
        life.process(0, [1.0] * 30, world=1, start=start + 1.0, begin=start + 5.0, left=start + 36.0)
    report = analyze_life(life.load(tmp_path), now=T0 + 1e6)

    assert report.life is not None
    assert report.life.new_steps == 60
    assert "lost_work" not in report.ledgers[0].states
    assert [one.ended for one in report.life.attempts] == ["completed", "completed"]


@pytest.mark.parametrize("early", [0.0, 0.0099])
def test_a_script_that_seems_to_start_a_clock_tick_before_its_launcher_is_its_launchers_all_the_same(
    early: float, tmp_path: Path
) -> None:
    life = PlantedLife()
    for attempt, start in enumerate((0.0, 500.0)):  # run twice under one name
        life.launcher(start, start + 60.0, attempt=attempt)
        life.process(0, [1.0] * 30, world=1, attempt=attempt, start=start - early, begin=start + 10.0, left=start + 45.0)
    report = analyze_life(life.load(tmp_path), now=T0 + 1e6)

    assert report.life is not None
    assert report.life.denominator == "launcher"
    assert report.life.allocated_seconds == pytest.approx(120.0, abs=0.05), "one rank, not one more for each launcher"
    assert report.ledgers[0].states["initialisation"] == pytest.approx(20.0, abs=0.05)
    assert not any("only the ranks" in note.what for note in report.quality)


def test_a_process_whose_hosts_clock_was_set_back_after_its_launch_is_its_launchers(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    life.process(0, [1.0] * 30, world=1, start=0.01, begin=10.0, left=45.0)
    life.rows = [row if row.rank < 0 else _with_clock_set_back(row, 2.0) for row in life.rows]
    told = life_of(life, tmp_path)

    assert told.denominator == "launcher"
    assert told.allocated_seconds == pytest.approx(60.0)


def _with_clock_set_back(row: records.Record, seconds: float) -> records.Record:
    started = {"process_time": row.process_time - seconds} if isinstance(row, records.JobStarted) else {}
    return msgspec.structs.replace(row, time=row.time - seconds, **started)


def test_a_launch_beside_ranks_that_are_not_its_own_holds_nothing_more(tmp_path: Path) -> None:
    life = PlantedLife()
    life.process(0, [1.0] * 30, world=1, start=0.0, begin=10.0, left=45.0)
    life.launcher(20.0, 60.0)
    told = life_of(life, tmp_path)

    assert told.denominator == "records"
    assert told.allocated_seconds == pytest.approx(45.0)
