"""What reading a checkpoint back says of it: sound, corrupt, not to be reached, or not to be verified."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointing import summed
from tachoscope_core.checkpoints.verification import Manifest, ReadBack, open_regular, verify
from tachoscope_core.records.records import ShardSum

LATER = time.time() + 10 * 365 * 86400
"""Not only an hour: this file may have been collected long before its tests run."""


def manifest_of(folder: Path, *names: str, at: float = LATER) -> Manifest:
    """Return a true manifest; taken later than anything that the test does to the files, as for a fault of the storage."""
    shards = []
    for name in names:
        found = summed(folder / name)
        shards.append(ShardSum(path=name, bytes=found.bytes, checksum=found.checksum))
    return Manifest(at, shards)


def distributed(tmp_path: Path, ranks: int = 2) -> tuple[Path, dict[int, Manifest]]:
    """Return a folder as torch.distributed.checkpoint leaves it, with the manifest of each rank."""
    folder = tmp_path / "step-7"
    folder.mkdir()
    for rank in range(ranks):
        (folder / f"__{rank}_0.distcp").write_bytes(os.urandom(5000 + rank))
    (folder / ".metadata").write_bytes(b"where each tensor lies")
    names = {rank: [f"__{rank}_0.distcp"] + [".metadata"] * (rank == 0) for rank in range(ranks)}
    return folder, {rank: manifest_of(folder, *names[rank]) for rank in range(ranks)}


def verdict(reference: Path | str, manifests: dict[int, Manifest], **options: Any) -> ReadBack:
    found = verify(str(reference), manifests, **options)
    assert found is not None
    return found


def test_a_checkpoint_that_is_as_it_was_saved_is_sound_and_was_read_whole(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path, ranks=3)
    seen: list[int] = []

    found = verdict(folder, manifests, on_bytes=seen.append)

    assert (found.result, found.fault) == ("sound", "")
    assert found.bytes == sum(seen) == sum(path.stat().st_size for path in folder.iterdir())


@given(rank=st.integers(0, 1), place=st.integers(0, 4999), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_and_its_file_named(
    tmp_path_factory: pytest.TempPathFactory, rank: int, place: int, bit: int
) -> None:
    folder, manifests = distributed(tmp_path_factory.mktemp("flip"))
    shard = folder / f"__{rank}_0.distcp"
    content = bytearray(shard.read_bytes())
    content[place] ^= 1 << bit
    shard.write_bytes(content)

    found = verdict(folder, manifests)

    assert found.result == "corrupt"
    assert not found.unsettled
    assert found.fault == f"{shard}: another checksum than its manifest says"


def test_a_file_that_is_cut_short_is_found_before_anything_is_read(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path)
    os.truncate(folder / "__1_0.distcp", 4000)

    found = verdict(folder, manifests)

    assert (found.result, found.bytes) == ("corrupt", 0)
    assert found.fault == f"{folder}/__1_0.distcp: 4000 bytes, its manifest says 5001"


def test_a_missing_file_of_a_folder_is_corrupt_and_may_be_a_removal_under_way(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path)
    (folder / "__1_0.distcp").unlink()

    found = verdict(folder, manifests)

    assert (found.result, found.fault, found.unsettled) == ("corrupt", f"{folder}/__1_0.distcp: missing", True)


def test_what_was_written_to_after_its_manifest_may_be_a_save_under_way(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    file.write_bytes(b"one")
    manifests = {0: manifest_of(tmp_path, "last.pt", at=time.time() - 100)}
    shards = [ShardSum(bytes=3, checksum=manifests[0].shards[0].checksum)]
    file.write_bytes(b"two")

    found = verdict(file, {0: Manifest(time.time() - 100, shards)})

    assert (found.result, found.unsettled) == ("corrupt", True)
    assert "written to after its manifest was taken" in found.fault


def test_a_path_that_is_not_there_is_unreachable_and_not_corrupt(tmp_path: Path) -> None:
    _, manifests = distributed(tmp_path)
    lone = {0: Manifest(LATER, [ShardSum(bytes=1, checksum="sha256:00")])}

    assert verdict(tmp_path / "elsewhere", manifests).result == "unreachable"
    assert verdict(tmp_path / "elsewhere.pt", lone).result == "unreachable"
    assert verdict("s3://bucket/step-7", manifests).result == "unreachable"


def test_where_a_checkpoint_lies_here_may_be_another_path_than_its_name(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path)
    (folder / "__1_0.distcp").write_bytes(b"")

    found = verdict("/in/the/job/step-7", manifests, place=str(folder))

    assert found.fault.startswith("/in/the/job/step-7/__1_0.distcp: ")


@pytest.mark.parametrize("path", ["../step-7/x", "/etc/passwd", "a/../../x", "a\0b", "."])
def test_a_manifest_names_only_files_below_its_checkpoint(tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_bytes(b"x")
    opened: list[str] = []

    found = verdict(tmp_path, {0: Manifest(LATER, [ShardSum(path=path, bytes=1, checksum="sha256:00")])}, open_file=opened.append)

    assert (found.result, opened) == ("unverifiable", [])


@pytest.mark.parametrize("reference", ["relative", "/a/../etc/passwd", "/a//b", "/a\0b", ""])
def test_a_reference_is_a_plain_absolute_path(reference: str) -> None:
    manifests = {0: Manifest(LATER, [ShardSum(bytes=1, checksum="sha256:00")])}

    assert verdict(reference, manifests).result == "unreachable"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "thing"
    (tmp_path / "real").write_bytes(b"x")
    make = {"link": lambda: place.symlink_to("real"), "pipe": lambda: os.mkfifo(place), "folder": place.mkdir}
    make[kind]()

    with pytest.raises(OSError):
        open_regular(str(place))


def test_without_a_manifest_nothing_is_said_to_be_sound(tmp_path: Path) -> None:
    folder, _ = distributed(tmp_path)

    assert verdict(folder, {}).result == "unverifiable"
    assert verdict(folder, {0: Manifest(LATER, [])}).result == "unverifiable"


def test_a_rank_without_a_manifest_makes_the_checkpoint_incomplete(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path)

    found = verdict(folder, manifests, expected_ranks=range(4))

    assert (found.result, found.fault) == ("unverifiable", "incomplete: no manifest of rank 2, 3")


@pytest.mark.parametrize(("forgotten", "named"), [(1, "__1_0.distcp"), (0, "__0_0.distcp")])
def test_a_shard_that_no_manifest_names_makes_the_checkpoint_incomplete(tmp_path: Path, forgotten: int, named: str) -> None:
    folder, manifests = distributed(tmp_path)
    del manifests[forgotten]

    found = verdict(folder, manifests)

    assert (found.result, found.fault) == ("unverifiable", f"incomplete: no manifest names {folder}/{named}")
    assert verdict(folder, manifests, whole=False).result == "sound"


def test_a_distributed_checkpoint_without_its_metadata_was_never_finished(tmp_path: Path) -> None:
    folder, manifests = distributed(tmp_path)
    manifests[0] = manifest_of(folder, "__0_0.distcp")

    assert verdict(folder, manifests).fault == f"incomplete: no manifest names {folder}/.metadata"


def test_a_checksum_of_an_unknown_kind_is_no_fault_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")

    found = verdict(tmp_path / "x", {0: Manifest(LATER, [ShardSum(bytes=1, checksum="xxh3:00")])})

    assert found.result == "unverifiable"
    assert "xxh3" in found.fault
