"""One name for two jobs at once: neither attempt is the end, the restart or the recovery of the other."""

from pathlib import Path

import pytest

from life_making import T0, PlantedLife, judged
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records import load
from tachoscope_core.records import records

SAID = "two attempts ran at once: 0 and 1 from 2023-11-14 22:13:45 to 2023-11-14 22:13:55 UTC"


def two_at_once(*, first_left: bool = True, launchers: bool = True) -> PlantedLife:
    """The first has 60 steps of 1 s from 5 to 65 s, the second 10 from 25 to 35 s; two ranks each."""
    life = PlantedLife()
    if launchers:
        life.launcher(0.0, 66.0 if first_left else None)
        life.launcher(20.0, 36.0, attempt=1)
    for rank in range(2):
        life.process(rank, [1.0] * 60, start=1.0, begin=5.0, left=65.5 if first_left else None)
        life.process(rank, [1.0] * 10, attempt=1, start=21.0, begin=25.0, left=35.5)
    return life


def test_attempts_that_run_at_once_both_complete_and_none_recovers_or_repeats_the_other(tmp_path: Path) -> None:
    report, life = judged(two_at_once(), tmp_path)

    assert [one.ended for one in life.attempts] == ["completed", "completed"]
    assert life.recoveries == []
    assert report.ledgers[0].states.get("lost_work", 0.0) == 0.0
    assert life.allocated_seconds == pytest.approx(2 * 66.0 + 2 * 16.0)
    note = next(one for one in report.quality if "at once" in one.what)
    assert (note.what, note.severity) == (SAID, "limited")
    assert "--job" in note.means


def test_without_a_launcher_each_holds_its_ranks_for_its_own_time(tmp_path: Path) -> None:
    _, life = judged(two_at_once(launchers=False), tmp_path)

    assert life.denominator == "records"
    assert life.allocated_seconds == pytest.approx(2 * (65.5 - 1.0) + 2 * (35.5 - 21.0))


def test_the_first_is_running_while_it_goes_on_though_the_second_ended(tmp_path: Path) -> None:
    job = two_at_once(first_left=False).load(tmp_path)
    life = analyze_life(job, now=T0 + 66.0).life

    assert life is not None
    assert [(one.attempt, one.ended) for one in life.attempts] == [(0, "running"), (1, "completed")]
    assert life.recoveries == []
    assert load.status(job, now=T0 + 66.0) == "running"
    assert load.status(job, now=T0 + 200.0) == "completed"
    assert [one.what for one in analyze(job).quality if "at once" in one.what] == [SAID]


def test_the_first_is_running_while_the_second_is_before_its_first_step(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, None)
    life.process(0, [1.0] * 20, world=1, start=1.0, begin=5.0)
    life.launcher(20.0, None, attempt=1)
    life.process(0, [], world=1, attempt=1, start=21.0, begin=22.0, heartbeats=[(25.5, "forward")])
    told = analyze_life(life.load(tmp_path), now=T0 + 26.0).life

    assert told is not None
    assert told.attempts[0].ended == "running"


def test_the_one_that_is_killed_is_killed_and_the_other_is_not_its_recovery(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 31.0, code=137)
    life.launcher(10.0, 71.0, attempt=1)
    life.process(0, [1.0] * 25, world=1, start=1.0, begin=5.0)
    life.gone(0, 30.5, start=1.0)
    life.process(0, [1.0] * 50, world=1, attempt=1, start=11.0, begin=20.0, left=70.5)
    report, told = judged(life, tmp_path)

    assert [one.ended for one in told.attempts] == ["killed", "completed"]
    assert [(one.attempt, one.total_seconds, one.lost_steps) for one in told.recoveries] == [(0, None, 0)]
    # What was under way when it was killed is lost; the same numbers of the other are not.
    assert report.ledgers[0].states["lost_work"] == pytest.approx(0.5, abs=0.1)


def test_a_restart_whose_attempts_overlap_by_the_clocks_of_two_hosts_is_a_restart(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 26.0, code=1)
    life.process(0, [1.0] * 10, world=1, start=1.0, begin=5.0)
    life.gone(0, 15.2, start=1.0)
    life.process(0, [1.0] * 20, world=1, attempt=1, start=12.0, begin=13.0, left=33.5, host="node-1")
    life.launcher(11.5, 34.0, attempt=1, host="node-1")
    report, told = judged(life, tmp_path)

    assert [one.ended for one in told.attempts] == ["killed", "completed"]
    assert told.recoveries[0].lost_steps == 10
    assert not [one for one in report.quality if "at once" in one.what]
    assert any("clocks of the hosts differ" in one.what for one in report.quality)


def test_a_job_that_ended_is_not_running_by_the_last_words_of_an_attempt_before(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 26.0, code=1)
    life.process(0, [1.0] * 10, world=1, start=1.0, begin=5.0)
    life.process(0, [1.0] * 5, world=1, attempt=1, start=16.0, begin=18.0, left=25.0, failed="ValueError")
    life.add(records.Heartbeat, 15.5, writer=life.writer(0, 0, 1.0), rank=0, step=10, phase="forward", window_seconds=5.0)

    assert load.status(life.load(tmp_path), now=T0 + 30.0) == "failed"


def test_an_agent_that_watches_both_as_one_job_ends_neither_and_holds_each_for_its_own_time(tmp_path: Path) -> None:
    life = two_at_once(launchers=False)
    for attempt, (first, last) in enumerate([(1.0, 66.0), (21.0, 36.0)]):
        own = {"writer": f"agent-{attempt}", "attempt": attempt}
        life.add(records.JobStarted, first + 0.5, **own, world_size=0, pid=0, process_time=T0 + first)  # type: ignore[arg-type]
        life.add(records.JobEnded, last, **own, status="failed")  # type: ignore[arg-type]
    _, told = judged(life, tmp_path)

    assert told.denominator == "agent"
    assert [one.ended for one in told.attempts] == ["completed", "completed"]
    assert told.allocated_seconds == pytest.approx(2 * (66.0 - 1.0) + 2 * (35.5 - 21.0))
