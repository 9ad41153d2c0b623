"""Files of `torch.save` without a manifest, compared with the CRC-32 that they carry."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import pytest

from tachoscope_core.checkpoints import torch_zip
from tachoscope_core.checkpoints.torch_zip import verify_zip

torch = pytest.importorskip("torch")


def saved(tmp_path: Path, **options: object) -> Path:
    file = tmp_path / "model.pt"
    torch.save({"weights": torch.arange(5000.0), "step": 7}, file, **options)
    return file


def test_a_file_of_torch_save_is_sound(tmp_path: Path) -> None:
    file, seen = saved(tmp_path), []

    found = verify_zip(str(file), on_bytes=seen.append)

    assert (found.result, found.bytes) == ("sound", file.stat().st_size)
    assert sum(seen) > 5000 * 4


def test_a_flipped_byte_in_a_tensor_is_found_and_its_record_named(tmp_path: Path) -> None:
    file = saved(tmp_path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    found = verify_zip(str(file))

    assert found.result == "corrupt"
    assert "data/0" in found.fault


def test_a_file_that_is_cut_short_is_corrupt(tmp_path: Path) -> None:
    file = saved(tmp_path)
    file.write_bytes(file.read_bytes()[:9000])

    assert verify_zip(str(file)).result == "corrupt"


def test_a_file_written_without_crc_cannot_be_verified(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        file = saved(tmp_path)
    finally:
        torch.serialization.set_crc32_options(True)

    assert verify_zip(str(file)).result == "unverifiable"


def test_the_old_format_of_torch_save_cannot_be_verified(tmp_path: Path) -> None:
    assert verify_zip(str(saved(tmp_path, _use_new_zipfile_serialization=False))).result == "unverifiable"


def test_a_flipped_byte_in_the_table_of_contents_is_corrupt(tmp_path: Path) -> None:
    file = saved(tmp_path)
    content = bytearray(file.read_bytes())
    content[content.rindex(b"model/data/0")] ^= 0x80  # no letter any more in the name's encoding
    file.write_bytes(content)

    assert verify_zip(str(file)).result == "corrupt"


def test_a_data_file_of_a_distributed_checkpoint_is_not_judged(tmp_path: Path) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    dcp.save({"a": torch.arange(5000.0), "b": torch.ones(77)}, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    (file,) = (tmp_path / "checkpoint").glob("*.distcp")

    found = verify_zip(str(file))

    assert (found.result, found.fault) == ("unverifiable", "not verified: no manifest, and it is not a single zip archive")
    file.write_bytes(file.read_bytes()[:-100])
    assert verify_zip(str(file)).result == "unverifiable"


@pytest.mark.parametrize("length", [1, 22, 5000, 3_000_000])
def test_bytes_before_or_after_the_archive_are_not_called_sound(tmp_path: Path, length: int) -> None:
    file = saved(tmp_path)
    archive = file.read_bytes()

    for content in (archive + bytes(length), archive + b"PK\5\6" + bytes(length), b"PK\3\4" + bytes(length) + archive):
        file.write_bytes(content)
        assert verify_zip(str(file)).result == "unverifiable"


def test_of_two_archives_in_one_file_not_only_the_last_counts(tmp_path: Path) -> None:
    file = saved(tmp_path)
    first, second = bytearray(file.read_bytes()), saved(tmp_path).read_bytes()
    first[len(first) // 2] ^= 1
    file.write_bytes(first + second)

    assert verify_zip(str(file)).result == "unverifiable"


def test_bytes_between_two_records_are_not_called_sound(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with file.open("wb") as content, zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model/data.pkl", b"pickle")
        content.write(b"between")
        archive.start_dir = content.tell()
        archive.writestr("model/data/0", b"weights")

    assert verify_zip(str(file)).fault.endswith("it is not a single zip archive")


def test_what_a_save_left_that_failed_half_way_is_not_called_sound(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with pytest.raises((AttributeError, pickle.PicklingError)):
        torch.save({"weights": torch.ones(3), "unsavable": lambda: None}, file)

    assert verify_zip(str(file)).result == "unverifiable"


def test_many_and_empty_records_are_sound(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with file.open("wb") as opened:  # its records get other names than those of a path
        torch.save({number: torch.ones(number) for number in range(40)}, opened)

    assert verify_zip(str(file)).result == "sound"


def test_a_compressed_archive_is_not_unpacked(tmp_path: Path) -> None:
    bomb, read = tmp_path / "bomb.pt", []
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/0", bytes(10_000_000))

    assert verify_zip(str(bomb), on_bytes=read.append).result == "unverifiable"
    assert read == []


def test_records_that_overlap_are_not_read(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.pt"
    with zipfile.ZipFile(bomb, "w") as archive:
        archive.writestr("data/0", bytes(10_000))
        archive.filelist *= 100  # a hundred entries for the same bytes

    assert verify_zip(str(bomb)).fault.endswith("its records are longer than the file")


def test_a_long_table_of_contents_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_zip, "MAX_DIRECTORY_BYTES", 10_000)
    long = tmp_path / "long.pt"
    with zipfile.ZipFile(long, "w") as archive:
        for number in range(500):
            archive.writestr(f"data/{number}", b"x")

    assert verify_zip(str(long)).result == "unverifiable"


def test_what_is_not_there_is_unreachable(tmp_path: Path) -> None:
    assert verify_zip(str(tmp_path / "none.pt")).result == "unreachable"
