"""`tachoscope verify`: what it says of checkpoints that a job saved, and what it exits with."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointing import flip, save
from helpers import BIN, answer, execute, run_watched
from spool_writing import Process
from tachoscope.spool.ship import ship
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Plant a job with three checkpoints in a store; return them, the oldest first."""
    process = Process(tmp_path / "spool")
    process.start()
    files = [tmp_path / "out" / f"step-{step}.pt" for step in (10, 20, 30)]
    for number, file in enumerate(files):
        process.unix_clock = lambda number=number: 1.7e9 + 100 * number  # type: ignore[misc]
        save(process, file, os.urandom(1000), step=10 * (number + 1))
        process.step()
    process.end()
    ship(tmp_path / "spool", Store(str(tmp_path / "store")))
    monkeypatch.setenv("TACHOSCOPE_STORE", str(tmp_path / "store"))
    return files


def test_all_checkpoints_of_a_job_are_listed_the_newest_first(job: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["verify", "--job", "job"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]

    assert [line.split()[0] for line in lines if "sound" in line] == ["30", "20", "10"]


def test_a_corrupt_one_is_named_with_what_is_wrong(job: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    flip(job[1], 500)

    assert call(["verify"]) == 3
    out = capsys.readouterr().out
    assert "CORRUPT: another checksum than its manifest says" in " ".join(out.split())
    assert out.count("sound") == 2


def test_last_prints_the_path_of_the_newest_that_is_sound_and_nothing_else(
    job: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["verify", "--last"]) == 0
    assert capsys.readouterr().out == f"{job[2]}\n"

    flip(job[2])
    assert call(["verify", "--last"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{job[1]}\n"
    assert f"{job[2]} is corrupt" in told.err


def test_last_exits_with_1_if_none_is_sound(job: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for file in job:
        flip(file)

    assert call(["verify", "--last"]) == 1
    assert capsys.readouterr().out == ""


def test_checkpoints_that_the_job_removed_are_no_fault(job: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    job[0].unlink()

    assert call(["verify"]) == 0
    told = capsys.readouterr()
    assert told.out.count("sound") == 2
    assert "1 more were saved and no longer exist" in told.err


def test_on_a_machine_without_the_files_it_says_where_they_were(job: list[Path]) -> None:
    for file in job:
        file.unlink()

    with pytest.raises(TachoscopeError, match="none of the 3 checkpoints of job 'job' is on this machine") as raised:
        call(["verify"])
    assert raised.value.exit_code == 1


def test_named_files_are_looked_up_in_the_store_also_through_a_link(
    job: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latest").symlink_to(job[2])

    assert call(["verify", str(tmp_path / "latest")]) == 0
    assert "30" in capsys.readouterr().out
    flip(job[2])
    assert call(["verify", str(tmp_path / "latest"), str(job[0])]) == 3


def test_what_has_no_manifest_and_no_checksum_of_its_own_is_not_called_sound(
    job: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    (tmp_path / "folder").mkdir()

    assert call(["verify", str(tmp_path / "model.bin"), str(tmp_path / "folder"), str(tmp_path / "none")]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("not verified: no manifest") == 2
    assert "not there" in out
    assert "sound" not in out


def test_the_step_is_told_to_be_that_of_the_attempt(job: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    call(["verify"])

    assert capsys.readouterr().out.splitlines()[0].split("  ")[0] == "step of attempt"


def test_a_folder_of_files_that_can_be_verified_says_that_they_can_be_named(
    job: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted_zip(tmp_path / "models" / "model.pt")

    assert call(["verify", str(tmp_path / "models")]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "not verified: no manifest; files of torch.save in it can be named one by one" in out


def test_a_checkpoint_without_manifest_has_a_row_and_last_does_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "summed.pt", tmp_path / "silent.bin"]
    plant(tmp_path, monkeypatch, lambda process: [save(process, file, b"weights", manifest=file is files[0]) for file in files])

    assert call(["verify", "--job", "job"]) == 1
    told = capsys.readouterr()
    rows = {line.split()[-1]: line for line in told.out.splitlines()[1:]}
    assert "not verified: no manifest" in rows[str(files[1])]
    assert "sound" in rows[str(files[0])]
    assert "1 of 2 checkpoints have no manifest" in told.err
    assert "$TACHOSCOPE_MANIFESTS=0" in told.err

    assert call(["verify", "--job", "job", "--last"]) == 0
    assert capsys.readouterr().out == f"{files[0]}\n"


def test_a_checkpoint_of_torch_save_without_manifest_is_held_against_its_crc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = planted_zip(tmp_path / "model.pt")
    plant(tmp_path, monkeypatch, lambda process: save(process, file, file.read_bytes(), step=7, manifest=False))

    assert call(["verify", "--job", "job"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split()[0] == "7"
    assert "sound (by its CRC-32; no manifest)" in row
    flip(file, file.read_bytes().index(b"weights"))
    assert call(["verify", "--job", "job"]) == 3


def test_a_checkpoint_behind_a_url_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "s3://bucket/step-1"
    plant(
        tmp_path, monkeypatch, lambda process: process.write(records.CheckpointSaved, step=1, blocking_seconds=1.0, reference=url)
    )

    assert call(["verify", "--job", "job"]) == 1
    assert "not read: not a path on this machine" in capsys.readouterr().out


def test_a_job_without_checkpoints_is_told_from_one_that_the_store_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, monkeypatch, lambda process: process.step())

    with pytest.raises(TachoscopeError, match="job 'job' .* has not saved a checkpoint") as raised:
        call(["verify", "--job", "job"])
    assert raised.value.exit_code == 1
    with pytest.raises(TachoscopeError, match="has no records of job 'nope'"):
        call(["verify", "--job", "nope"])
    with pytest.raises(TachoscopeError, match="has no records of job 'nope'"):
        call(["verify", "--job", "nope", str(tmp_path)])


def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[Process], object]) -> None:
    """Put a job into a store, with what the function writes, and make that the store of `tachoscope`."""
    process = Process(tmp_path / "spool")
    process.start()
    said(process)
    process.end()
    ship(tmp_path / "spool", Store(str(tmp_path / "store")))
    monkeypatch.setenv("TACHOSCOPE_STORE", str(tmp_path / "store"))


def planted_zip(file: Path) -> Path:
    """Write a file of the kind that `torch.save` writes, without torch."""
    file.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", b"pickle")
        archive.writestr("model/data/0", b"weights")
    return file


def test_nothing_is_written_into_the_store(job: list[Path], tmp_path: Path) -> None:
    before = sorted(path for path in (tmp_path / "store").rglob("*"))
    call(["verify"])

    assert sorted(path for path in (tmp_path / "store").rglob("*")) == before


TRAINING = """
import os, pathlib
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

def main(rank):
    dist.init_process_group("gloo", init_method=pathlib.Path("rendezvous").absolute().as_uri(), rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 5):
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
        if step % 2 == 0:
            if rank == 0:
                torch.save({"weight": model.weight, "step": step}, f"step-{step}.pt")
            dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=os.path.abspath(f"step-{step}"))
    dist.destroy_process_group()

mp.start_processes(main, nprocs=2, start_method="fork")  # to import distributed checkpoints takes longer than all that it does
"""


@pytest.mark.alone  # what computes checksums has the lowest priority: beside other tests it may get no time before its job ends
def test_what_verify_last_names_can_be_restored_after_the_newest_was_damaged(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed.checkpoint as dcp

    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(TRAINING)
    done = run_watched(tmp_path, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    everything = [str(path) for path in work.iterdir() if path.name.startswith("step")]
    assert verify(tmp_path, *everything).returncode == 0

    flip(work / "step-4.pt", (work / "step-4.pt").stat().st_size // 2)
    shard = max((work / "step-4").glob("*.distcp"), key=lambda path: path.stat().st_size)
    flip(shard, shard.stat().st_size // 2)
    listed = verify(tmp_path, *everything)
    assert listed.returncode == 3
    assert listed.stdout.count("CORRUPT") == 2
    assert shard.name in listed.stdout

    last = execute(tmp_path, str(BIN / "tachoscope"), "verify", "--job", "job", "--last").stdout.strip()  # bytes
    assert last == str(work / "step-2")
    state = {"model": {"weight": torch.zeros(64, 64), "bias": torch.zeros(64)}, "step": 0}
    dcp.load(state, checkpoint_id=last, no_dist=True)
    assert state["step"] == 2
    assert torch.equal(state["model"]["weight"], torch.load(work / "step-2.pt")["weight"])


def verify(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return answer(tmp_path, "verify", *words, COLUMNS="200")
