"""Two processes read the same as one."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from recorded import recorded
from tachoscope_analyzers.trace import chunk_tables, read, second_process, split
from tachoscope_analyzers.trace.trace import TABLES, Trace


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "CHUNK_BYTES", 1 << 16)


def opened(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, *, two: bool) -> Trace:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(cache / str(two)))
    monkeypatch.setattr(read, "worth_two", lambda _: two)
    return read.read(path)


def same(one: Trace, other: Trace) -> None:
    for name in TABLES:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.table.column_names == theirs.table.column_names
        for column in mine.table.column_names:
            if column in {"name", "grid", "block", "shapes", "types", "concrete", "stack", "collective", "group", "dtype"}:
                assert (one.strings[mine[column]] == other.strings[theirs[column]]).all(), column
            elif column not in {"track", "category", "group_description", "group_ranks"}:
                np.testing.assert_array_equal(mine[column], theirs[column], column)
    tracks = [[trace.meta.tracks[code] for code in trace.events["track"].tolist()] for trace in (one, other)]
    assert tracks[0] == tracks[1]
    np.testing.assert_array_equal(one.kind, other.kind)
    assert one.meta.quality == other.meta.quality
    assert one.meta.digest == other.meta.digest


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["hta/v100_ns_resolution", "hta/a100_nccl_2rank_rank0", "tracelens/h100_qwen1.5_0.5b"])
def test_a_real_trace_is_the_same_whether_one_process_reads_it_or_two(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    give = second_process.SecondProcess.give
    monkeypatch.setattr(second_process.SecondProcess, "give", lambda self, chunk: (given.append(len(chunk)), give(self, chunk))[1])

    two = opened(recorded(name), tmp_path, monkeypatch, two=True)

    assert given
    same(opened(recorded(name), tmp_path, monkeypatch, two=False), two)


@pytest.mark.usefixtures("small_chunks")
def test_a_trace_with_an_unsound_event_is_read_again_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Planted()
    for number in range(3000):
        job.op(f"aten::op{number % 7}", 1_000 + number * 2_000, 1_000)
    job.events[2000] = job.events[2000].replace('"dur": 1.000', '"dur": NaN')
    path = job.write(tmp_path / "trace.json")

    two = opened(path, tmp_path, monkeypatch, two=True)

    assert two.meta.quality.counts["chunks_read_event_by_event"] == 1
    same(opened(path, tmp_path, monkeypatch, two=False), two)


@pytest.mark.usefixtures("small_chunks")
def test_begins_and_ends_in_different_chunks_are_paired_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = [f'{{"ph": "B", "name": "op{number}", "pid": 1, "tid": 1, "ts": {number}}}' for number in range(2000)]
    halves += [f'{{"ph": "E", "pid": 1, "tid": 1, "ts": {5000 + number}}}' for number in range(2000)]
    path = tmp_path / "trace.json"
    path.write_text("[\n" + ",\n".join(halves) + "\n]")

    two = opened(path, tmp_path, monkeypatch, two=True)

    assert len(two.events) == 2000
    same(opened(path, tmp_path, monkeypatch, two=False), two)


@pytest.mark.usefixtures("small_chunks")
def test_a_second_process_that_is_killed_costs_time_but_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give = second_process.SecondProcess.give

    def give_and_kill(self: second_process.SecondProcess, chunk: bytes) -> None:
        give(self, chunk)
        os.kill(self._process.pid, signal.SIGKILL)

    monkeypatch.setattr(second_process.SecondProcess, "give", give_and_kill)
    path = recorded("tracelens/h100_qwen1.5_0.5b")

    two = opened(path, tmp_path, monkeypatch, two=True)

    same(opened(path, tmp_path, monkeypatch, two=False), two)


def test_only_large_files_are_worth_a_second_process(tmp_path: Path) -> None:
    small, large = tmp_path / "small.json.gz", tmp_path / "large.json.gz"
    small.write_bytes(b"")
    with large.open("wb") as file:
        file.truncate(64 << 20)

    assert not chunk_tables.worth_two(small)
    assert chunk_tables.worth_two(large) == (len(os.sched_getaffinity(0)) > 1)
