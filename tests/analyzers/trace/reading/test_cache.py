from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from planting import Planted
from tachoscope_analyzers.trace.reading import cache
from tachoscope_analyzers.trace.reading import read as reader
from tachoscope_analyzers.trace.reading.read import begin_reading, read
from tachoscope_core.errors import TachoscopeError


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    planted = Planted()
    planted.kernel("gemm", 5000, 1000, launched=1000)
    return planted.write(tmp_path / "one.json")


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were not opened but read."""
    found: list[Path] = []
    convert: Callable[..., object] = reader.converted
    monkeypatch.setattr(reader, "converted", lambda path, *rest: (found.append(path), convert(path, *rest))[1])
    return found


def write_later(path: Path, text: str) -> None:
    """Write to a file a second after it was written: a system's times of files may be 10 ms apart, and reading takes less."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_a_file_is_read_once(trace_file: Path, readings: list[Path]) -> None:
    starts = [read(trace_file).start.tolist() for _ in range(3)]
    assert len(readings) == 1
    assert starts == [[1000, 5000]] * 3


def test_the_same_content_under_another_name_is_not_read_again(trace_file: Path, readings: list[Path], tmp_path: Path) -> None:
    read(trace_file)
    copy = tmp_path / "copy.json"
    shutil.copy(trace_file, copy)
    trace = read(copy)
    assert len(readings) == 1
    assert trace.path == copy


def test_a_changed_file_is_read_again(trace_file: Path, readings: list[Path]) -> None:
    read(trace_file)
    write_later(trace_file, trace_file.read_text().replace('"ts": 5.000', '"ts": 6.000'))
    assert read(trace_file).start.tolist() == [1000, 6000]
    assert len(readings) == 2


def test_a_file_that_changes_while_it_is_read_is_not_taken_for_the_old_one(
    trace_file: Path, monkeypatch: pytest.MonkeyPatch, readings: list[Path]
) -> None:
    text = trace_file.read_text()
    convert = reader.converted

    def changing(path: Path, *rest: object) -> object:
        meta = convert(path, *rest)  # type: ignore[arg-type]
        write_later(trace_file, text.replace('"ts": 5.000', '"ts": 6.000'))
        return meta

    monkeypatch.setattr(reader, "converted", changing)
    read(trace_file)
    monkeypatch.setattr(reader, "converted", convert)
    assert read(trace_file).start.tolist() == [1000, 6000]


def test_a_cache_that_cannot_be_written_costs_only_time(trace_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file, so no folder can be made in it")
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(blocked))
    for _ in range(2):
        trace = read(trace_file)
        assert trace.start.tolist() == [1000, 5000]
        assert trace.names(trace.device["row"]).tolist() == ["gemm"]


@pytest.mark.parametrize("name", ["events.start", "device.row", "strings.msgpack", "columns.json", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "missing"])
def test_damaged_columns_are_read_again(name: str, damage: str, trace_file: Path, readings: list[Path]) -> None:
    file = read(trace_file).folder / name
    data = file.read_bytes()
    file.unlink()
    if damage != "missing":
        file.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "garbage": b"\xff" * len(data)}[damage])
    trace = read(trace_file)
    assert trace.start.tolist() == [1000, 5000]
    assert trace.strings.tolist()
    assert len(readings) == 2
    read(trace_file)
    assert len(readings) == 2


def test_foreign_files_in_the_cache_do_no_harm(trace_file: Path, own_cache: Path, readings: list[Path]) -> None:
    read(trace_file)
    (cache.folder() / "by-file" / ".DS_Store").write_text("x")
    (cache.folder() / "by-file" / cache.signature(trace_file)).write_text("../../../etc")
    (cache.folder() / "README").write_text("x")
    assert read(trace_file).start.tolist() == [1000, 5000]
    cache.prune()


def test_threads_that_read_one_file_at_the_same_time_all_get_it(trace_file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: read(trace_file).start.tolist(), range(24)))
    assert found == [[1000, 5000]] * 24
    assert not list(cache.folder().glob("unfinished-*"))


def test_processes_that_read_one_file_at_the_same_time_all_get_it(trace_file: Path) -> None:
    code = (
        "import sys, pathlib; from tachoscope_analyzers.trace.reading.read import read;"
        "print(len(read(pathlib.Path(sys.argv[1])).events))"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(trace_file)], stdout=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate(timeout=300)[0].strip() for process in running] == [b"2"] * 3


def test_a_reader_that_is_killed_leaves_nothing_that_breaks_the_next(trace_file: Path, readings: list[Path]) -> None:
    code = (
        "import sys, os, pathlib; from tachoscope_analyzers.trace.reading import cache;"
        "from tachoscope_analyzers.trace.reading.read import read;"
        "cache.keep = lambda *a: os.kill(os.getpid(), 9); read(pathlib.Path(sys.argv[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(trace_file)], timeout=300, check=False).returncode == -9
    (left,) = cache.folder().glob("unfinished-*")
    assert read(trace_file).start.tolist() == [1000, 5000]
    assert left.is_dir(), "it might belong to a living process"
    os.utime(left, (0, time.time() - 2 * 86_400))
    cache.prune()
    assert not left.exists()


def test_the_columns_that_were_used_longest_ago_are_removed_first(tmp_path: Path, readings: list[Path]) -> None:
    files = []
    for number in range(4):
        planted = Planted()
        planted.kernel("gemm", 5000 + number, 1000)
        files.append(planted.write(tmp_path / f"{number}.json"))
    traces = [read(file) for file in files]
    for age, trace in zip((40, 10, 30, 20), traces, strict=True):
        os.utime(trace.folder, (0, time.time() - age * 1000))
    read(files[0])  # used just now
    size = sum(file.stat().st_size for file in traces[0].folder.iterdir())
    cache.prune(limit_bytes=2 * size + size // 2)
    assert [trace.folder.is_dir() for trace in traces] == [True, True, False, False]
    assert len(list((cache.folder() / "by-file").iterdir())) == 2
    assert traces[2].start.tolist() == [5002], "an open trace lives on"
    assert traces[2].names(traces[2].device["row"]).tolist() == ["gemm"]


def test_a_failed_reading_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    with pytest.raises(Exception, match="not a trace"):
        read(path)
    assert [entry.name for entry in cache.folder().iterdir()] == []


def test_a_reading_that_was_begun_is_the_one_whose_trace_is_returned(trace_file: Path, readings: list[Path]) -> None:
    begin_reading(trace_file)
    assert read(trace_file).start.tolist() == [1000, 5000]
    assert read(trace_file).start.tolist() == [1000, 5000]
    assert readings == [trace_file]


def test_what_is_wrong_with_a_file_whose_reading_was_begun_is_raised_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    begin_reading(path)
    with pytest.raises(TachoscopeError, match="not a trace"):
        read(path)


def test_a_process_that_ends_during_a_reading_that_it_began_leaves_nothing_unfinished(tmp_path: Path) -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.000, "dur": 1.000}'
    path = tmp_path / "large.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join([event] * 400_000) + "]}")
    code = """
import pathlib, sys, time
from tachoscope_analyzers.trace.reading import cache, read
read.begin_reading(pathlib.Path(sys.argv[1]))
while not [*cache.folder().glob("*/events.start")]:
    time.sleep(0.001)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=300, check=True)
    assert not list(cache.folder().glob("unfinished-*"))
