"""Which of a life's checkpoints is the newest that was found sound, and what its failures cost for the advice on them."""

from pathlib import Path
from unittest import mock

import pytest

from life_making import PlantedLife, judged, killed_three_times
from tachoscope_analyzers.life import report as life_report
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core.records import records


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


def test_advice_on_checkpoints_counts_a_restart_from_the_failure_to_the_first_step(tmp_path: Path) -> None:
    """Rank 1 is gone at 11.5 s of each attempt, and the next begins to step 6 s after the 20th second."""
    advise = life_report.advisor.advise
    with mock.patch.object(life_report.advisor, "advise", side_effect=advise) as asked:
        judged(killed_three_times(), tmp_path)

    assert asked.call_args.kwargs["restart_seconds"] == pytest.approx(14.5)
