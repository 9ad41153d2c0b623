"""Planted hangs: they are told from slowness, from evaluation and from kills, and the rank that is stuck is named."""

from pathlib import Path

import pytest

from life_making import NOW, T0, PlantedLife, judged
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core.records import records
from tachoscope_show.report import verdict_words


def test_a_hang_that_passes_is_told_from_a_slow_step_by_who_waited(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    steps = [1.0] * 10 + [31.0] + [1.0] * 9
    life.process(0, steps, start=1.0, begin=2.0, blocked={11: 30.0}, left=54.0)
    life.process(1, steps, start=1.0, begin=2.0, stopped={11: 30.0}, left=54.0)
    report, told = judged(life, tmp_path)

    assert report.ledgers[0].states["hung"] == pytest.approx(60.0)
    assert [f.class_ for f in report.findings] == ["hang"]
    assert report.findings[0].ranks == [1]
    assert report.findings[0].severity == "critical"
    assert report.findings[0].share == pytest.approx(0.5)
    assert [(one.kind, one.rank, one.attempt) for one in told.recoveries] == [("hung", 1, 0)]
    assert told.attempts[0].ended == "completed"


def test_of_a_hang_that_passed_the_advice_is_not_to_restart(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    steps = [1.0] * 10 + [31.0] + [1.0] * 9
    life.process(0, steps, start=1.0, begin=2.0, blocked={11: 30.0}, left=54.0)
    life.process(1, steps, start=1.0, begin=2.0, stopped={11: 30.0}, left=54.0)
    report, _ = judged(life, tmp_path)

    assert report.findings[0].action == "it continued by itself; if it happens again, check that host"


def test_who_watched_can_tell_who_was_stuck_where_the_waiting_does_not(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    steps = [1.0] * 10 + [31.0] + [1.0] * 9
    for rank in range(2):
        life.process(rank, steps, start=1.0, begin=2.0, blocked={11: 30.0}, left=54.0)
    hung = {"since_time": T0 + 12.0, "failed_rank": 1, "failed_writer": life.writer(0, 1, 1.0), "why": "stopped by a signal"}
    life.add(records.WorkerHung, 22.0, writer="watch", **hung)
    report, told = judged(life, tmp_path)

    assert report.findings[0].ranks == [1]
    assert report.findings[0].evidence[1].source == "stopped by a signal"
    assert told.recoveries[0].total_seconds == pytest.approx(31.0)


def test_a_slow_step_in_which_nobody_waits_is_no_hang(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    for rank in range(2):
        life.process(rank, [1.0] * 10 + [31.0] + [1.0] * 9, start=1.0, begin=2.0, left=54.0)
    report, _ = judged(life, tmp_path)

    assert "hung" not in report.ledgers[0].states
    assert report.findings == []


def test_a_rank_that_collects_garbage_for_long_is_at_something_known_and_does_not_hang(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    steps = [1.0] * 10 + [31.0] + [1.0] * 9
    life.process(0, steps, start=1.0, begin=2.0, blocked={11: 30.0}, left=54.0)
    life.process(1, steps, start=1.0, begin=2.0, collecting={11: 30.0}, left=54.0)
    report, _ = judged(life, tmp_path)

    assert "hung" not in report.ledgers[0].states
    assert "hang" not in {finding.class_ for finding in report.findings}


def test_a_job_that_hangs_until_it_is_killed_is_called_hung_since_its_last_step(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 145.0)
    beats = [(t, "backward") for t in range(5, 100, 5)]
    for rank in range(2):
        life.process(rank, [1.0] * 20, start=1.0, begin=2.0, heartbeats=beats if rank == 0 else beats[:4])
        life.gone(rank, 100.0, start=1.0)
        life.process(rank, [1.0] * 20, attempt=1, start=110.0, begin=112.0, left=140.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].ended == "hung"
    assert told.recoveries[0].failed_at - T0 == pytest.approx(22.0)
    assert told.recoveries[0].rank == 1
    assert told.recoveries[0].detect_seconds == pytest.approx(78.0)
    assert report.ledgers[0].states["hung"] == pytest.approx(2 * 78.0)
    assert report.ledgers[0].states["lost_work"] == pytest.approx(2 * 20.0)  # nothing was restored: all done again
    assert {f.class_ for f in report.findings} == {"hang", "lost_work"}


def test_a_hang_of_the_next_attempt_does_not_make_a_kill_a_hang(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0, code=1)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0)
        life.gone(rank, 12.5, start=1.0)
        life.process(rank, [0.5], attempt=1, start=13.0, begin=14.0)
        life.gone(rank, 30.0, attempt=1, start=13.0)
    hung = {"since_time": T0 + 14.5, "failed_rank": 1, "failed_writer": life.writer(1, 1, 13.0), "why": "stopped by a signal"}
    life.add(records.WorkerHung, 20.0, writer="watch", **hung)
    _, told = judged(life, tmp_path)

    assert [one.ended for one in told.attempts] == ["killed", "hung"]


def test_ranks_that_evaluate_for_long_do_not_hang(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 200.0, code=1)
    for rank in range(2):
        life.process(rank, [1.0] * 20, start=1.0, begin=2.0, heartbeats=[(t, "evaluation") for t in range(5, 101, 5)])
        life.gone(rank, 100.0, start=1.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].ended == "killed"
    assert report.ledgers[0].states["evaluation"] == pytest.approx(2 * 78.0)
    assert "hung" not in report.ledgers[0].states


def hanging_now(*, gone: bool = False, heartbeats_until: float = 60.0) -> PlantedLife:
    """A job of two ranks without an end: rank 1 on node-1 is stopped after ten steps, and rank 0 waits for it."""
    life = PlantedLife()
    life.launcher(0.0, None)
    beats = [(float(t), "backward") for t in range(15, int(heartbeats_until), 5)]
    life.process(0, [1.0] * 10, start=1.0, begin=2.0, heartbeats=beats)
    life.process(1, [1.0] * 10, start=1.0, begin=2.0, host="node-1")
    stuck = {"failed_rank": 1, "failed_writer": life.writer(0, 1, 1.0), "why": "its process is stopped by a signal"}
    life.add(records.WorkerHung, 42.0, writer="agent-0", since_time=T0 + 12.0, step=10, why="all ranks of this host wait")
    life.add(records.WorkerHung, 42.5, writer="agent-1", host="node-1", since_time=T0 + 12.0, step=10, **stuck)
    if gone:
        life.gone(1, 50.0, start=1.0, host="node-1")
    return life


def test_a_job_that_hangs_now_is_said_to_first_with_rank_host_and_since_when_however_long_it_trained(tmp_path: Path) -> None:
    report = analyze_life(hanging_now().load(tmp_path), now=T0 + 62.0)

    assert report.life is not None
    assert report.life.attempts[0].ended == "running"
    assert report.life.attempts[0].reason.startswith("rank 1 on node-1: no rank finished a step for 50 s; its process is stopped")
    (found,) = (one for one in report.findings if one.class_ == "hang")
    assert (found.severity, found.ranks, found.cause) == ("critical", [1], "now")
    assert "rank 1 on node-1 was stuck since 2023-11-14T22:13:32+00:00" in found.action
    assert verdict_words.first_lines(report).verdict.startswith("Rank 1 is stuck, and no step came since")
    assert report.ledgers[0].states["hung"] == pytest.approx(2 * 50.0)
    assert report.life.recoveries == []


def test_a_hang_of_which_nothing_was_heard_any_more_lasts_as_far_as_anybody_knows(tmp_path: Path) -> None:
    report = analyze_life(hanging_now(heartbeats_until=20.0).load(tmp_path), now=NOW)

    assert report.life is not None
    assert report.life.attempts[0].ended == "hung"
    (found,) = (one for one in report.findings if one.class_ == "hang")
    assert (found.severity, found.ranks, found.cause) == ("critical", [1], "now")
    assert report.ledgers[0].states["hung"] == pytest.approx(2 * 30.5)


def test_a_hang_that_somebody_saw_end_or_pass_does_not_last(tmp_path: Path) -> None:
    ended, passed = hanging_now(gone=True), hanging_now()
    for rank in range(2):
        own = {"writer": passed.writer(0, rank, 1.0), "rank": rank, "host": f"node-{rank}"}
        phases = {"forward": 0.5, "backward": 43.5 if rank == 0 else 0.5}
        passed.add(records.StepDone, 56.0, **own, step=11, wall_seconds=44.0, phase_seconds=phases, cpu_seconds={})
    for life, folder in ((ended, tmp_path / "ended"), (passed, tmp_path / "passed")):
        folder.mkdir()
        report = analyze_life(life.load(folder), now=T0 + 62.0)
        assert [one.cause for one in report.findings if one.class_ == "hang"] == [""]
