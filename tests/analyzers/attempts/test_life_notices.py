"""Planted notices of preemption: what was saved in time, and what was lost."""

from pathlib import Path

import pytest

from life_making import T0, PlantedLife, judged
from tachoscope_core.records import records


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
