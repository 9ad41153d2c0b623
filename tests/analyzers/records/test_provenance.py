import uuid
from pathlib import Path

from life_making import PlantedLife
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.store import Store


def planted() -> PlantedLife:
    life = PlantedLife()
    life.process(0, [1.0] * 30, world=1, start=0.0, begin=5.0, left=40.0)
    own = {"writer": "again", "rank": 0, "attempt": 1}
    made_of = {"lineage": {"image": "registry/train:3", "seed": "7"}, "parents": ["/ckpt/10"], "code_reference": "git:abc train.py"}
    life.add(records.JobStarted, 50.0, **own, world_size=1, pid=1, **made_of)  # type: ignore[arg-type]
    for step in range(1, 31):
        life.add(
            records.StepDone,
            50.0 + step,
            **own,  # type: ignore[arg-type]
            step=step,
            wall_seconds=1.0,
            phase_seconds={"forward": 1.0},
        )
    life.add(records.JobEnded, 85.0, **own, status="left", lineage={"mlflow_run": "r1"})  # type: ignore[arg-type]
    life.add(records.ShardQuarantined, 86.0, writer="watch", shard="s3://data/7.tar", failures=2, ranks=[0, 3], error="OSError")
    fault = {"step": 10, "reference": "/ckpt/10", "sound": False, "fault": "a.pt is missing"}
    life.add(records.CheckpointVerified, 87.0, writer="watch", **fault)
    return life


def test_every_report_says_what_the_newest_attempt_was_made_of_and_why_to_review_it(tmp_path: Path) -> None:
    job = planted().load(tmp_path)
    for report in (analyze(job), analyze_life(job)):
        assert report.lineage == {
            "code_reference": "git:abc train.py",
            "image": "registry/train:3",
            "seed": "7",
            "parents": "/ckpt/10",
            "mlflow_run": "r1",
        }
        assert report.review == [
            "data shard s3://data/7.tar is in quarantine: it failed 2 times (rank 0, 3), OSError",
            "checkpoint /ckpt/10 failed its verification: a.pt is missing",
        ]


def test_a_checkpoint_that_was_found_sound_later_needs_no_review(tmp_path: Path) -> None:
    life = planted()
    life.add(records.CheckpointVerified, 90.0, writer="watch", step=10, reference="/ckpt/10")
    report = analyze(life.load(tmp_path))

    assert not any("checkpoint" in reason for reason in report.review)


def stored(tmp_path: Path, life: PlantedLife, *, released: float) -> JobRecords:
    """The life in a store, where a person released its shard."""
    store = Store(str(tmp_path / "store"))
    lines = b"".join(records.encode(row) for row in life.rows)
    store.write(life.job, host="node-1", writer=str(uuid.uuid4()), attempt=0, offset=0, time=1.0, lines=lines)
    shards = {"s3://data/7.tar": shard_quarantine.Shard(quarantined=life.rows[0].time, released=released)}
    store.write_quarantine(life.job, "released", shard_quarantine.encode(life.job, shards))
    return from_store(store, life.job)


def put_on_the_list(life: PlantedLife) -> float:
    return next(row.time for row in life.rows if isinstance(row, records.ShardQuarantined))


def test_a_shard_that_a_person_released_is_in_quarantine_in_no_report(tmp_path: Path) -> None:
    life = planted()
    life.add(records.ShardFailed, 85.5, writer="worker", shard="s3://data/7.tar", error="OSError")
    job = stored(tmp_path, life, released=put_on_the_list(life) + 60.0)
    story = analyze_life(job)

    for report in (analyze(job), story):
        assert not any("quarantine" in reason for reason in report.review)
    assert story.life is not None
    assert [(suspect.name, suspect.quarantined) for suspect in story.life.suspects] == [("s3://data/7.tar", False)]
    assert "quarantine" not in story.life.suspects[0].action


def test_a_shard_that_was_put_on_the_list_again_after_its_release_is_under_review(tmp_path: Path) -> None:
    life = planted()
    job = stored(tmp_path, life, released=put_on_the_list(life) - 1.0)

    assert any("s3://data/7.tar is in quarantine" in reason for reason in analyze(job).review)


def test_a_broken_list_costs_no_report(tmp_path: Path) -> None:
    life = planted()
    stored(tmp_path, life, released=put_on_the_list(life) + 60.0)
    store = Store(str(tmp_path / "store"))
    store.write_quarantine(life.job, "node-1", b"{")

    assert any("s3://data/7.tar is in quarantine" in reason for reason in analyze(from_store(store, life.job)).review)
