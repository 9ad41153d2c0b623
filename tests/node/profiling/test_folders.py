"""The folders for traces: whole files of the right user are taken, everything else a process could put there is not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.profiling import folders

ME = os.geteuid()
WHOLE = b'{"traceEvents": [\n],"traceName": "/x/trace_7.json" }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folders.make_root(tmp_path / "root")
    return folders.make(tmp_path / "root", "one", ME)


def whole(folder: Path, most_bytes: int = 1 << 20) -> bytes | None:
    descriptor = folders.whole_trace(folder, ME, most_bytes=most_bytes)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def test_a_trace_is_there_once_it_is_written_to_its_end(folder: Path) -> None:
    assert whole(folder) is None
    for end in (0, 1, 10, len(WHOLE) // 2, len(WHOLE) - 1):
        (folder / "trace_7.json").write_bytes(WHOLE[:end])
        assert whole(folder) is None
    (folder / "trace_7.json").write_bytes(WHOLE)

    assert whole(folder) == WHOLE


def test_other_names_are_no_traces(folder: Path) -> None:
    for name in ("trace.json", "trace_7.json.partial", "other_7.json", "trace_x.json"):
        (folder / name).write_bytes(WHOLE)

    assert whole(folder) is None


def test_a_link_to_another_file_is_not_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WHOLE)
    (folder / "trace_7.json").symlink_to(tmp_path / "secret")
    with pytest.raises(TachoscopeError, match="could not open"):
        whole(folder)
    (folder / "trace_7.json").unlink()
    os.link(tmp_path / "secret", folder / "trace_7.json")
    with pytest.raises(TachoscopeError, match="is not a private file of user"):
        whole(folder)


def test_a_folder_that_became_a_link_is_not_read(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "trace_7.json").write_bytes(WHOLE)
    folder.rmdir()
    folder.symlink_to(elsewhere)

    with pytest.raises(OSError, match="Not a directory"):
        whole(folder)


def test_a_pipe_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "trace_7.json")

    with pytest.raises(TachoscopeError, match="is not a private file of user"):
        whole(folder)


def test_a_file_that_is_too_large_is_refused(folder: Path) -> None:
    (folder / "trace_7.json").write_bytes(WHOLE)

    with pytest.raises(TachoscopeError, match=r"more than profiles\.trace_bytes"):
        whole(folder, most_bytes=len(WHOLE) - 1)


def test_a_folder_is_its_users_alone_and_the_root_is_only_gone_through(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o711


@pytest.mark.skipif(ME != 0, reason="only root may give a folder away")
def test_the_folder_belongs_to_the_jobs_user_and_its_files_have_to(tmp_path: Path) -> None:
    folder = folders.make(tmp_path, "one", 4711)
    assert folder.stat().st_uid == 4711
    (folder / "trace_7.json").write_bytes(WHOLE)  # root's

    with pytest.raises(TachoscopeError, match="is not a private file of user 4711"):
        folders.whole_trace(folder, 4711, most_bytes=1 << 20)


@pytest.mark.skipif(ME != 0, reason="needs another user's directory")
def test_a_root_that_another_user_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    os.chown(tmp_path / "root", 4711, -1)

    with pytest.raises(TachoscopeError, match="not owned by the agent"):
        folders.make_root(tmp_path / "root")


def test_what_an_earlier_pass_left_is_gone(folder: Path) -> None:
    (folder / "trace_7.json").write_bytes(WHOLE)

    assert list(folders.make(folder.parent, folder.name, ME).iterdir()) == []


def test_a_file_system_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No such file" in folders.room(tmp_path / "nowhere")
    monkeypatch.setattr(folders, "_LEAST_FREE_BYTES", 1 << 60)
    assert "GiB free" in folders.room(tmp_path)
