"""What the probe records of checkpoints, in real trainings: two ranks, and frameworks."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from helpers import records_of, run_watched, steps_of
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records

# What computes checksums has the lowest priority: beside other tests it may get no time before its job ends.
pytestmark = pytest.mark.alone

TRAININGS = Path(__file__).parents[2] / "trainings"
RESTORED_BY_PATH = ["dcp", "path.pt", "object.pt", "atomic.pt", "weights.safetensors", "own.bin"]

T = TypeVar("T", records.CheckpointSaved, records.CheckpointRestored, records.CheckpointManifest)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run both attempts of the script."""
    tmp_path = tmp_path_factory.mktemp("checkpoints")
    for attempt in ("save", "restore"):
        done = run_watched(tmp_path, sys.executable, str(TRAININGS / "checkpoint_script.py"), attempt)
        assert done.returncode == 0, done.stderr
    return tmp_path


@pytest.fixture(scope="module")
def job(folder: Path) -> JobRecords:
    return records_of(folder)


def named(rows: Sequence[T], name: str, rank: int = 0) -> list[T]:
    return sorted((row for row in rows if Path(row.reference).name == name and row.rank == rank), key=lambda row: row.time)


def own(job: JobRecords, attempt: int, rank: int = 0) -> records.JobStarted:
    return next(row for row in job.starts if (row.attempt, row.rank) == (attempt, rank))


def first_step_begin(job: JobRecords, attempt: int, rank: int = 0) -> float:
    first = next(step for step in steps_of(job, rank) if step.attempt == attempt)
    return first.time - first.wall_seconds


def test_a_restore_is_tied_to_its_save(job: JobRecords) -> None:
    saved = {row.reference for row in job.checkpoints}
    restored = [row.reference for row in sorted(job.restores, key=lambda row: row.time) if row.rank == 0]

    assert [Path(reference).name for reference in restored] == RESTORED_BY_PATH
    assert set(restored) <= saved


def test_a_restore_counts_before_the_first_step_of_its_attempt_and_data_is_none(job: JobRecords) -> None:
    assert {row.attempt for row in job.restores} == {1}
    assert max(row.time for row in job.restores if row.rank == 0) <= first_step_begin(job, 1)
    assert "data.pt" not in {Path(row.reference).name for row in job.restores}


def test_a_restore_has_the_size_of_what_was_read(job: JobRecords, folder: Path) -> None:
    (path,), (sharded,) = named(job.restores, "path.pt"), named(job.restores, "dcp", rank=1)

    assert path.bytes == (folder / "work" / "path.pt").stat().st_size
    assert sharded.bytes == 4 * (4 + 1)  # the tensors: 4 weights and a bias
    assert min(path.blocking_seconds, sharded.blocking_seconds) > 0


def test_a_step_that_the_job_says_is_recorded(job: JobRecords) -> None:
    (said,) = named(job.restores, "own.bin")

    assert (said.step, said.blocking_seconds) == (3, 0.25)
    assert {row.step for row in job.restores if row is not said} == {-1}


def test_what_an_attempt_began_from_is_in_its_start(job: JobRecords) -> None:
    assert [Path(parent).name for parent in own(job, 1).parents] == RESTORED_BY_PATH
    assert [Path(parent).name for parent in own(job, 1, rank=1).parents] == ["dcp"]
    assert own(job, 0).parents == []


def test_the_start_tells_when_the_process_was_started_and_how_long_the_rendezvous_took(job: JobRecords) -> None:
    for attempt in (0, 1):
        start = own(job, attempt)
        launched = next(row for row in job.starts if (row.attempt, row.rank) == (attempt, records.LAUNCHER_RANK))
        assert launched.time - 0.02 <= start.process_time < start.time
        assert 0 < start.rendezvous_seconds < first_step_begin(job, attempt) - start.process_time


def test_each_rank_says_what_it_wrote_of_a_distributed_checkpoint(job: JobRecords, folder: Path) -> None:
    for name, asynchronous in (("dcp", False), ("dcp-async", True)):
        for rank, files in ((0, [".metadata", "__0_0.distcp"]), (1, ["__1_0.distcp"])):
            (saved,), (manifest,) = named(job.checkpoints, name, rank), named(job.manifests, name, rank)
            assert saved.asynchronous is asynchronous
            assert (saved.background_seconds > 0) is asynchronous
            assert saved.blocking_seconds > 0
            assert saved.step == manifest.step == 2
            assert [shard.path for shard in manifest.shards] == files
            assert saved.bytes == sum((folder / "work" / name / file).stat().st_size for file in files)


def test_the_manifest_holds_the_sha256_of_what_is_on_disk(job: JobRecords) -> None:
    assert len(job.manifests) >= len({(row.reference, row.rank) for row in job.checkpoints}) == 12
    for manifest in job.manifests:
        for shard in manifest.shards:
            path = Path(manifest.reference, shard.path)
            if path.name != "overwritten.pt" or manifest is named(job.manifests, "overwritten.pt")[-1]:
                assert shard.checksum == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
                assert shard.bytes == path.stat().st_size


def test_a_file_that_is_renamed_when_it_is_whole_is_recorded_once_under_its_own_name(job: JobRecords) -> None:
    assert len(named(job.checkpoints, "atomic.pt")) == 1
    assert not named(job.checkpoints, "atomic.pt.tmp")


def test_a_save_by_a_thread_of_the_job_blocked_nothing(job: JobRecords) -> None:
    (saved,) = named(job.checkpoints, "thread.pt")

    assert saved.asynchronous
    assert saved.blocking_seconds == 0 < saved.background_seconds


def test_a_save_after_the_notice_is_marked(job: JobRecords) -> None:
    assert [Path(row.reference).name for row in job.checkpoints if row.after_notice] == ["emergency.pt"]


def test_waiting_for_an_asynchronous_checkpoint_is_checkpoint_time(job: JobRecords) -> None:
    third = next(step for step in steps_of(job) if (step.attempt, step.step) == (0, 3))
    sync, asynchronous = named(job.checkpoints, "dcp")[0], named(job.checkpoints, "dcp-async")[0]

    # Garbage that is collected while a checkpoint is written has a phase of its own.
    spent = third.phase_seconds["checkpoint"] + third.phase_seconds.get("gc", 0.0)
    assert spent >= 0.9 * (sync.blocking_seconds + asynchronous.blocking_seconds)


def framework(tmp_path: Path, name: str) -> JobRecords:
    done = run_watched(tmp_path, sys.executable, str(TRAININGS / "framework_checkpoint_scripts.py"), name)
    assert done.returncode == 0, done.stderr
    return records_of(tmp_path)


@pytest.mark.bar  # as the next two
def test_lightning_saves_and_restores_whole_and_in_the_background(tmp_path: Path) -> None:
    job = framework(tmp_path, "lightning")
    background, blocking = sorted(job.checkpoints, key=lambda row: row.time)
    (restored,) = job.restores

    assert Path(background.reference).name == "step=2.ckpt"
    assert (background.asynchronous, blocking.asynchronous) == (True, False)
    assert background.background_seconds > 0
    assert (background.step, blocking.step) == (2, 4)
    assert restored.reference == background.reference
    assert restored.bytes == background.bytes == Path(background.reference).stat().st_size
    assert {row.reference for row in job.manifests} == {background.reference, blocking.reference}


@pytest.mark.bar
def test_the_transformers_trainer_saves_and_restores_folders(tmp_path: Path) -> None:
    job = framework(tmp_path, "transformers")

    assert [Path(row.reference).name for row in job.checkpoints] == ["checkpoint-2", "checkpoint-4"]
    assert [row.step for row in job.checkpoints] == [2, 4]
    assert {Path(row.reference).name for row in job.restores} == {"checkpoint-2"}
    for manifest in job.manifests:
        assert {shard.path for shard in manifest.shards} >= {"model.safetensors", "optimizer.pt", "trainer_state.json"}
        assert {shard.path for shard in manifest.shards} == {path.name for path in Path(manifest.reference).iterdir()}


@pytest.mark.bar
def test_accelerate_saves_and_restores_its_state(tmp_path: Path) -> None:
    job = framework(tmp_path, "accelerate")
    (saved,), (restored,), (manifest,) = job.checkpoints, job.restores, job.manifests

    assert saved.reference == restored.reference == manifest.reference
    assert {shard.path for shard in manifest.shards} == {path.name for path in Path(saved.reference).iterdir()}
