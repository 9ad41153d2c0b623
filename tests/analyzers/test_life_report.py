"""Planted lives: what was lost, to which state, and how the job came back, is known."""

from pathlib import Path

import pytest

from life_making import T0, PlantedLife
from tachoscope_analyzers.allocation import Allocation
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core import records
from tachoscope_core.life import Life
from tachoscope_core.report import Report

NOW = T0 + 1e6


def judged(life: PlantedLife, folder: Path, **options: object) -> tuple[Report, Life]:
    report = analyze_life(life.load(folder), now=NOW, **options)  # type: ignore[arg-type]
    assert report.life is not None
    assert sum(report.ledgers[0].states.values()) == pytest.approx(report.ledgers[0].wall_seconds, abs=1e-6)
    return report, report.life


def killed_three_times() -> PlantedLife:
    """Two ranks, steps of 1 s, a checkpoint every 4 steps; rank 1 is killed in the sixth step of each attempt but the last."""
    life = PlantedLife()
    life.launcher(0.0, 100.0)
    for attempt in range(4):
        at = 20.0 * attempt
        last = attempt == 3
        base = 4 * attempt
        for rank in range(2):
            life.process(
                rank,
                [1.0] * (8 if last else 5),
                attempt=attempt,
                start=at + 2.0,
                begin=at + 6.0,
                restored=(f"/ckpt/{base}", at + 3.0, 1.5) if attempt else None,
                saves={4: f"/ckpt/{base + 4}"},
                left=at + 14.0 if last else None,
                rendezvous=0.5,
            )
            if not last:
                life.gone(rank, at + 11.5 + (0.5 if rank == 0 else 0.0), attempt=attempt, start=at + 2.0, code=-9 if rank else -15)
    return life


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


def test_each_recovery_names_the_first_to_go_and_its_parts_make_the_whole(tmp_path: Path) -> None:
    _, life = judged(killed_three_times(), tmp_path)

    assert len(life.recoveries) == 3
    for number, one in enumerate(life.recoveries):
        assert (one.kind, one.rank, one.host, one.lost_steps) == ("killed", 1, "node-0", 1)
        assert one.failed_at - T0 == pytest.approx(20.0 * number + 11.5)
        parts = (
            one.detect_seconds,
            one.reschedule_seconds,
            one.rendezvous_seconds,
            one.restore_seconds,
            one.initialise_seconds,
            one.redo_seconds,
        )
        assert parts == pytest.approx((0.5, 10.0, 0.5, 1.5, 2.0, 1.0))
        first_new_step = 1.0
        assert one.total_seconds == pytest.approx(sum(part for part in parts if part is not None) + first_new_step)
        assert one.checkpoint == f"/ckpt/{4 * number + 4}"
    assert life.checkpoints is not None
    assert (life.checkpoints.saves, life.checkpoints.last_step, life.checkpoints.restore_seconds) == (4, 16, pytest.approx(1.5))


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


def test_a_notice_with_an_emergency_checkpoint_in_time(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 40.0, code=143)
    life.add(records.PreemptionNotice, 25.0, writer="launcher-node-0-0.0", source="sigterm")
    for rank in range(2):
        end = life.process(rank, [1.0] * 20, start=1.0, begin=10.0, left=33.0)
        more = {"step": 20, "blocking_seconds": 1.5, "reference": "/ckpt/emergency", "after_notice": True}
        life.add(records.CheckpointSaved, end + 1.5, writer=life.writer(0, rank, 1.0), rank=rank, **more)
    life.launcher(100.0, 140.0, attempt=1)
    for rank in range(2):
        restored = ("/ckpt/emergency", 103.0, 2.0)
        life.process(rank, [1.0] * 20, attempt=1, start=101.0, begin=110.0, restored=restored, left=135.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].ended == "preempted"
    assert told.notices[0].saved_seconds == pytest.approx(6.5)
    assert told.notices[0].ended_seconds == pytest.approx(8.0)
    assert told.notices[0].in_time
    assert "lost_work" not in report.ledgers[0].states
    assert report.ledgers[0].states["checkpoint"] == pytest.approx(3.0)
    assert told.recoveries[0].lost_steps == 0
    assert told.attempts[1].first_step == 21


def test_a_notice_without_a_checkpoint_loses_all_since_the_last_one(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 40.0, code=143)
    life.add(records.PreemptionNotice, 25.0, writer="launcher-node-0-0.0", source="sigterm")
    for rank in range(2):
        life.process(rank, [1.0] * 20, start=1.0, begin=10.0, saves={10: "/ckpt/10"})
        life.gone(rank, 30.5, start=1.0, code=-15)
    life.launcher(100.0, 140.0, attempt=1)
    for rank in range(2):
        life.process(rank, [1.0] * 20, attempt=1, start=101.0, begin=110.0, restored=("/ckpt/10", 103.0, 2.0), left=135.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].ended == "preempted"
    assert (told.notices[0].saved_seconds, told.notices[0].in_time) == (None, False)
    assert told.recoveries[0].lost_steps == 10
    assert report.ledgers[0].states["lost_work"] == pytest.approx(2 * (10.0 + 0.5))


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
    assert any("nobody but the ranks" in note.what for note in report.quality)
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


def test_the_newest_sound_checkpoint_is_the_verified_one_and_a_fault_asks_for_a_review(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 30.0)
    life.process(0, [1.0] * 10, start=1.0, begin=5.0, world=1, saves={2: "/ckpt/2", 4: "/ckpt/4", 6: "/ckpt/6"}, left=16.0)
    for step, sound in ((2, True), (4, True), (6, False)):
        fault = "" if sound else "checksum of a.pt differs"
        life.add(
            records.CheckpointVerified, 20.0 + step, writer="agent", step=step, reference=f"/ckpt/{step}", sound=sound, fault=fault
        )
    report, told = judged(life, tmp_path)

    assert told.checkpoints is not None
    assert (told.checkpoints.last_step, told.checkpoints.verified_step, told.checkpoints.verified_reference) == (6, 4, "/ckpt/4")
    assert told.checkpoints.faults == {"/ckpt/6": "checksum of a.pt differs"}
    assert report.review == ["checkpoint /ckpt/6 failed its verification: checksum of a.pt differs"]


def test_a_checkpoint_whose_nodes_read_their_own_files_is_verified_once_the_files_of_all_ranks_are_sound(tmp_path: Path) -> None:
    def verified(*nodes: int) -> str:
        life = PlantedLife()
        life.launcher(0.0, 60.0)
        for rank in range(2):
            life.process(rank, [1.0] * 6, start=1.0, begin=5.0, saves={4: "/ckpt/4"}, left=40.0)
            shard = records.ShardSum(path=f"__{rank}_0.distcp", bytes=1000, checksum="sha256:0")
            own = {"rank": rank, "writer": life.writer(0, rank, 1.0)}
            life.add(records.CheckpointManifest, 10.0, **own, step=4, reference="/ckpt/4", shards=[shard])
        for node in nodes:
            life.add(records.CheckpointVerified, 30.0, writer=f"agent-{node}", step=4, reference="/ckpt/4", ranks=[node])
        told = analyze_life(life.load(tmp_path)).life
        assert told is not None
        assert told.checkpoints is not None
        return told.checkpoints.verified_reference

    assert verified(0) == ""
    assert verified(0, 1) == "/ckpt/4"


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
    assert [note.what for note in report.quality if "began anew" in note.what] == [
        "attempt 1 began anew after a completed one: separate runs under one name?"
    ]


def test_a_run_that_restores_after_one_that_completed_goes_on_from_there(tmp_path: Path) -> None:
    life = PlantedLife()
    twice(life, restored=("/ckpt", 103.0, 1.0), restored_step=5)
    report, told = judged(life, tmp_path)

    assert [(one.first_step, one.last_step, one.redone) for one in told.attempts] == [(1, 10, 0), (6, 15, 5)]
    assert not [note for note in report.quality if "began anew" in note.what]


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


@pytest.mark.parametrize("gone_before", [0.2, 8.0])
def test_an_interrupt_by_the_user_is_nobodys_failure_but_one_after_a_failure_is_no_excuse(
    tmp_path: Path, gone_before: float
) -> None:
    life = PlantedLife()
    life.launcher(0.0, 21.0, code=130)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0, host=f"node-{rank}")
        life.gone(rank, 20.5 - (gone_before if rank else 0.0), start=1.0, host=f"node-{rank}", code=-2)
    _, told = judged(life, tmp_path)

    by_user = gone_before < 1
    assert told.attempts[0].ended == ("interrupted" if by_user else "killed")
    assert [(one.kind, one.host) for one in told.recoveries] == [("interrupted", "") if by_user else ("killed", "node-1")]
    assert bool(told.suspects) is not by_user


def test_a_command_that_failed_before_its_first_step_says_how_and_is_no_clean_bill(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 3.0, code=1)
    report, told = judged(life, tmp_path)

    assert not told.attempts
    assert [(note.what, note.severity) for note in report.quality if "no training step" in note.what] == [
        ("no training step was seen of a command: exit code 1", "bad")
    ]


def test_the_picture_of_an_attempt_that_left_in_order_after_a_notice_ends_without_lost_work(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 30.0, code=143)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0, left=14.0)
    life.add(records.PreemptionNotice, 11.0, writer="launcher-notice", source="sigterm", deadline=T0 + 36.0)
    report, told = judged(life, tmp_path)

    assert told.attempts[0].ended == "preempted"
    assert "lost_work" not in report.ledgers[0].states
    assert told.attempts[0].spans[-1].state == "unexplained"


def test_of_a_hang_that_passed_the_advice_is_not_to_restart(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0)
    steps = [1.0] * 10 + [31.0] + [1.0] * 9
    life.process(0, steps, start=1.0, begin=2.0, blocked={11: 30.0}, left=54.0)
    life.process(1, steps, start=1.0, begin=2.0, stopped={11: 30.0}, left=54.0)
    report, _ = judged(life, tmp_path)

    assert report.findings[0].action == "it went on by itself; if it comes again, look at that host"


def test_an_attempt_is_over_when_the_next_one_begins_though_its_end_was_seen_later(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 30.0)
    for rank, (gone, again) in enumerate([(10.5, 10.7), (10.9, 11.0)]):
        life.process(rank, [1.0] * 5, start=1.0, begin=5.0)
        life.gone(rank, gone, start=1.0)
        life.process(rank, [1.0] * 5, attempt=1, start=again, begin=15.0, left=21.0)
    _, told = judged(life, tmp_path)

    first, second = told.attempts
    assert second.start - first.end == pytest.approx(0.0, abs=1e-3)
