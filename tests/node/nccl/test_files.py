"""The files of the Inspector's folders: found, shared out, forgotten."""

from __future__ import annotations

import os
import time
from pathlib import Path

from inspecting import Inspector
from tachoscope_node.nccl import files as module
from tachoscope_node.nccl.files import GONE_SECONDS, IDLE_SECONDS, LOOK_SECONDS, Files


def files_of(*folders: Path, positions: dict[str, int] | None = None) -> tuple[Files, list[str]]:
    log: list[str] = []
    return Files([str(folder) for folder in folders], positions or {}, log.append), log


def read(files: Files, now: float, most_bytes: int = 1 << 30) -> dict[str, list[bytes]]:
    files.scan(now, time.time())
    found: dict[str, list[bytes]] = {}
    for tail, lines in files.read(most_bytes):
        found.setdefault(tail.name, []).extend(lines)
    return found


def test_files_of_a_folder_and_of_its_folders_are_found_from_their_start(tmp_path: Path) -> None:
    Inspector(tmp_path, name="a.log").write(b"1\n")
    Inspector(tmp_path / "job", name="b.jsonl").write(b"2\n")
    Inspector(tmp_path / "job" / "deep", name="c.log").write(b"3\n")
    Inspector(tmp_path, name="notes.txt").write(b"4\n")
    files, log = files_of(tmp_path, tmp_path / "not there yet")

    assert read(files, 0.0) == {"a.log": [b"1"], "b.jsonl": [b"2"]}
    Inspector(tmp_path / "job", name="later.log").write(b"5\n")
    assert read(files, LOOK_SECONDS) == {"later.log": [b"5"]}
    assert log == []
    files.close()


def test_a_restart_goes_on_where_the_files_were_read_to(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    inspector.write(b"1\n2\n")
    files, _ = files_of(tmp_path)
    read(files, 0.0)
    positions = files.positions()
    files.close()
    inspector.write(b"3\n")

    again, _ = files_of(tmp_path, positions=positions)
    assert read(again, 0.0) == {"a.log": [b"3"]}
    again.close()


def test_a_removed_file_is_read_to_its_end_and_then_let_go_of(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    files, _ = files_of(tmp_path)
    read(files, 0.0)
    inspector.path.unlink()
    inspector.write(b"1\nhalf a li")

    assert read(files, LOOK_SECONDS) == {"a.log": [b"1"]}
    read(files, LOOK_SECONDS + GONE_SECONDS + 1)
    assert files.tails == {}
    assert files.cut == 1


def test_an_idle_file_is_closed_and_taken_up_again_where_it_was(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    inspector.write(b"1\n")
    files, _ = files_of(tmp_path)
    read(files, 0.0)
    old = time.time() - 2 * IDLE_SECONDS
    os.utime(inspector.path, (old, old))
    read(files, IDLE_SECONDS + 1)
    assert files.tails == {}
    inspector.write(b"2\n")

    assert read(files, 2 * IDLE_SECONDS) == {"a.log": [b"2"]}
    files.close()


def test_a_file_that_nobody_wrote_for_long_is_none_of_a_running_job(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    inspector.write(b"1\n")
    old = time.time() - 2 * IDLE_SECONDS
    os.utime(inspector.path, (old, old))
    files, _ = files_of(tmp_path)

    assert read(files, 0.0) == {}


def test_one_file_that_grows_fast_does_not_keep_the_others_from_being_read(tmp_path: Path) -> None:
    Inspector(tmp_path, name="fast.log").write(b"x" * 99 + b"\n", *[b"x" * 99 + b"\n"] * 100_000)
    Inspector(tmp_path, name="slow.log").write(b"1\n")
    files, _ = files_of(tmp_path)
    found = [read(files, float(run), 300_000) for run in range(3)]

    assert found[0]["slow.log"] == [b"1"]
    assert all(len(part["fast.log"]) * 100 < 600_000 for part in found)
    files.close()


def test_links_in_the_folder_are_not_followed(tmp_path: Path) -> None:
    Inspector(tmp_path / "elsewhere", name="a.log").write(b"secret\n")
    folder = tmp_path / "inspector"
    folder.mkdir()
    (folder / "a.log").symlink_to(tmp_path / "elsewhere" / "a.log")
    (folder / "job").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe.log")
    files, _ = files_of(folder)

    assert read(files, 0.0) == {}


def test_more_files_than_the_limit_are_counted_and_not_opened(tmp_path: Path) -> None:
    for number in range(module.MAX_FILES + 3):
        Inspector(tmp_path, name=f"{number}.log").file.close()
    files, _ = files_of(tmp_path)
    read(files, 0.0)

    assert (len(files.tails), files.left_out) == (module.MAX_FILES, 3)
    files.close()


def test_a_file_that_cannot_be_read_any_more_is_given_up_and_the_others_go_on(tmp_path: Path) -> None:
    Inspector(tmp_path, name="a.log").write(b"1\n")
    Inspector(tmp_path, name="b.log").write(b"2\n")
    files, log = files_of(tmp_path)
    files.scan(0.0, time.time())
    broken = next(tail for tail in files.tails.values() if tail.name == "a.log")
    writable_only = os.open(tmp_path / "a.log", os.O_WRONLY)
    os.dup2(writable_only, broken._descriptor)
    os.close(writable_only)

    assert read(files, 1.0) == {"b.log": [b"2"]}
    assert log == ["collector nccl: could not read a.log: Bad file descriptor"]
    assert read(files, LOOK_SECONDS) == {"a.log": [b"1"]}, "the next look finds it again"
    files.close()
