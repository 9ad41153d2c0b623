"""Checksums of what was just saved: taken of whole files only."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from pathlib import Path

import pytest

from left_behind import LeftBehind
from tachoscope.checkpoints.manifest import Manifests, SavedCheckpoint
from tachoscope.checkpoints.save_nesting import WrittenFile, json_files, written
from tachoscope_core.records.records import ShardSum

pytestmark = pytest.mark.alone  # checksums have the lowest priority, and wait for all that other tests do

WAIT_SECONDS = 120.0
"""Never reached where all is well; checksums are taken at the lowest priority, so beside other tests they take their time."""


class Emitted:
    """Collects manifests, and can keep the thread at the first."""

    def __init__(self) -> None:
        self.manifests: list[tuple[int, str, list[ShardSum]]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.at_first = threading.Event()

    def __call__(self, step: int, reference: str, shards: list[ShardSum], seconds: float) -> None:
        assert seconds >= 0
        self.manifests.append((step, reference, shards))
        self.at_first.set()
        self.go_on.wait(WAIT_SECONDS)


def saved(path: Path, content: bytes = b"x", step: int = 1) -> SavedCheckpoint:
    path.write_bytes(content)
    file = written(path)
    assert file is not None
    return SavedCheckpoint(step, file.path, [file])


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_a_manifest_holds_size_and_sha256_of_every_file(tmp_path: Path) -> None:
    emitted = Emitted()
    manifests = Manifests(emitted)
    (tmp_path / "model.pt").write_bytes(b"weights" * 1000)
    (tmp_path / "config.json").write_bytes(b"{}")
    (tmp_path / "of_another_rank.pt").write_bytes(b"-")
    file = written(tmp_path / "model.pt")
    assert file is not None
    manifests.put(SavedCheckpoint(7, str(tmp_path), [file, *json_files(str(tmp_path))]))
    manifests.close(WAIT_SECONDS)

    expected = [
        ShardSum(path="config.json", bytes=2, checksum=sha256(b"{}")),
        ShardSum(path="model.pt", bytes=7000, checksum=sha256(b"weights" * 1000)),
    ]
    assert emitted.manifests == [(7, str(tmp_path), expected)]


@pytest.mark.parametrize("fault", ["written to", "replaced", "removed"])
def test_a_file_that_is_not_what_was_saved_any_longer_has_no_manifest(tmp_path: Path, fault: str) -> None:
    emitted = Emitted()
    manifests = Manifests(emitted)
    late, other = saved(tmp_path / "late.pt"), saved(tmp_path / "sound.pt")
    if fault == "written to":
        with open(tmp_path / "late.pt", "ab") as file:
            file.write(b"more")
    elif fault == "replaced":
        (tmp_path / "next").write_bytes(b"y")
        os.replace(tmp_path / "next", tmp_path / "late.pt")
    else:
        (tmp_path / "late.pt").unlink()
    manifests.put(late)
    manifests.put(other)
    manifests.close(WAIT_SECONDS)

    assert [reference for _, reference, _ in emitted.manifests] == [str(tmp_path / "sound.pt")]


def test_of_saves_faster_than_checksums_the_newest_of_each_reference_has_one(tmp_path: Path) -> None:
    emitted = Emitted()
    emitted.go_on.clear()
    manifests = Manifests(emitted)
    manifests.put(saved(tmp_path / "first.pt"))
    assert emitted.at_first.wait(WAIT_SECONDS)
    for step in range(2, 12):
        manifests.put(saved(tmp_path / "latest.pt", str(step).encode(), step))
    manifests.put(saved(tmp_path / "other.pt", step=12))
    emitted.go_on.set()
    manifests.close(WAIT_SECONDS)

    assert [step for step, _, _ in emitted.manifests] == [1, 11, 12]
    assert emitted.manifests[1][2][0].checksum == sha256(b"11")


def test_a_file_that_is_still_open_is_waited_for(tmp_path: Path) -> None:
    emitted = Emitted()
    manifests = Manifests(emitted)
    with open(tmp_path / "open.pt", "wb") as file:
        file.write(b"all of it")  # and not on the disk yet
        manifests.put(
            SavedCheckpoint(1, str(tmp_path / "open.pt"), [WrittenFile(str(tmp_path / "open.pt"), None, weakref.ref(file))])
        )
        manifests.put(saved(tmp_path / "later.pt"))
        assert not emitted.at_first.wait(0.3)
    manifests.close(WAIT_SECONDS)

    assert emitted.manifests[0][2] == [ShardSum(bytes=9, checksum=sha256(b"all of it"))]


def test_nothing_is_read_when_manifests_are_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = LeftBehind()
    monkeypatch.setenv("TACHOSCOPE_MANIFESTS", "0")
    emitted = Emitted()
    manifests = Manifests(emitted)
    manifests.put(saved(tmp_path / "model.pt"))
    manifests.close(WAIT_SECONDS)

    assert not emitted.manifests
    assert not left.threads("tachoscope-manifests")


def test_the_end_of_the_process_does_not_wait_for_a_file_that_is_never_closed(tmp_path: Path) -> None:
    left = LeftBehind()
    emitted = Emitted()
    manifests = Manifests(emitted)
    with open(tmp_path / "open.pt", "wb") as file:
        manifests.put(
            SavedCheckpoint(1, str(tmp_path / "open.pt"), [WrittenFile(str(tmp_path / "open.pt"), None, weakref.ref(file))])
        )
        manifests.close(0.0)

    assert not emitted.manifests
    assert not left.threads("tachoscope-manifests")
