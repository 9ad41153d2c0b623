"""What a process records of the shards that it reads, and what it leaves out."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import tachoscope
from tachoscope.data import shards
from tachoscope.data.shards import QuarantineList, ShardRecords, is_about_shard
from tachoscope.process import identity
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine, spool
from tachoscope_core.storage.shard_quarantine import Shard
from trying import each


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run's directory, as `tachoscope run` makes it known to its command."""
    directory = tmp_path / "spool" / "run-1"
    for name, value in {identity.RUN_DIR: str(directory), identity.JOB: "job", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shards, "RECORDS", ShardRecords())
    monkeypatch.setattr(shards, "LIST", QuarantineList())
    yield directory
    shards.RECORDS.close()


def written(directory: Path) -> list[records.AnyRecord]:
    return [records.decode(line) for path in spool.segments(directory) for line in path.read_bytes().splitlines()]


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_shard_left_in_order_was_read_and_one_that_raised_failed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(bytes(123))
    with tachoscope.shard(tmp_path / "good"):
        pass
    with pytest.raises(ValueError, match="broken"), tachoscope.shard("s3://bucket/bad?key=secret"):
        raise ValueError("broken: secret")
    read, failed = written(run)

    assert isinstance(read, records.ShardRead)
    assert (read.shard, read.bytes, read.rank, read.local_rank) == (str(tmp_path / "good"), 123, 3, 1)
    assert isinstance(failed, records.ShardFailed)
    assert (failed.shard, failed.error, failed.seq) == ("s3://bucket/bad", "ValueError", 1)
    assert not any(b"secret" in path.read_bytes() for path in spool.segments(run))


def test_a_reader_that_is_left_in_the_middle_says_nothing(run: Path) -> None:
    def samples() -> Iterator[int]:
        with tachoscope.shard("part-0"):
            yield from range(10)

    reading = samples()
    next(reading)
    reading.close()  # the epoch ends here

    assert written(run) == []


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        MemoryError(),
        BrokenPipeError(),
        OSError(errno.ENOSPC, "no space left"),
        OSError(errno.EMFILE, "too many open files"),
    ],
)
def test_what_ends_a_process_or_is_the_hosts_fault_is_no_failure_of_the_shard(run: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), tachoscope.shard("part-0"):
        raise error
    assert written(run) == []


@each("error", [ValueError("x"), EOFError(), OSError(errno.EIO, "input/output error"), FileNotFoundError()])
def test_what_reading_raises_is_a_failure_of_the_shard(error: BaseException) -> None:
    assert is_about_shard(raised(error))


def test_what_a_collective_raises_in_a_shards_block_is_not_its_fault() -> None:
    collective = {"__name__": "torch.distributed.distributed_c10d"}
    exec("def all_reduce(): raise RuntimeError('connection closed by peer')", collective)
    try:
        collective["all_reduce"]()  # type: ignore[operator]
    except RuntimeError as error:
        assert not is_about_shard(error)


def test_files_in_plenty_are_no_shards_but_each_failure_is_told(run: Path) -> None:
    now = [0.0]
    shards.RECORDS = ShardRecords(clock=lambda: now[0])
    for number in range(10_000):
        now[0] += 0.01
        with tachoscope.shard(f"image-{number}"):
            pass
    for number in range(200):
        with pytest.raises(ValueError), tachoscope.shard(f"bad-{number}"):
            raise ValueError
    kinds = [type(record) for record in written(run)]

    most = shards.READS_AT_ONCE + 100 * shards.READS_PER_SECOND
    assert most - 1 <= kinds.count(records.ShardRead) <= most
    assert kinds.count(records.ShardFailed) == 200


def test_a_shard_that_is_tried_again_and_again_is_one_failure_a_second(run: Path) -> None:
    now = [0.0]
    shards.RECORDS = ShardRecords(clock=lambda: now[0])
    for _ in range(100):
        now[0] += 0.0625
        with pytest.raises(ValueError), tachoscope.shard("bad"):
            raise ValueError
    assert len(written(run)) == 7


def test_a_forked_worker_writes_under_its_ranks_name_with_a_writer_of_its_own(run: Path) -> None:
    with tachoscope.shard("parent-0"):
        pass
    child = os.fork()
    if child == 0:
        with tachoscope.shard("child"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    with tachoscope.shard("parent-1"):
        pass

    by_writer = {
        tuple(record.shard for record in written(run) if record.writer == writer)  # type: ignore[union-attr]
        for writer in {record.writer for record in written(run)}
    }
    assert by_writer == {("parent-0", "parent-1"), ("child",)}
    assert {record.rank for record in written(run)} == {3}
    locked = {
        written_by: spool.is_locked(path) for path in spool.segments(run) for written_by in [path.read_bytes().count(b"child")]
    }
    assert locked == {0: True, 1: False}


def test_where_nobody_watches_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(identity.RUN_DIR, raising=False)
    monkeypatch.setenv(spool.ROOT_VARIABLE, str(tmp_path / "spool"))
    with tachoscope.shard("part-0"):
        pass
    assert not (tmp_path / "spool").exists()
    assert tachoscope.quarantined() == frozenset()


def test_a_spool_that_cannot_be_written_does_not_disturb_the_loader(run: Path, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file, where a directory should be")
    with tachoscope.shard("part-0"):
        pass
    with tachoscope.shard(object()):  # type: ignore[arg-type]
        pass


def test_a_loader_sees_the_list_beside_its_spool_and_its_changes(run: Path, tmp_path: Path) -> None:
    now = [0.0]
    shards.LIST = QuarantineList(clock=lambda: now[0])
    path = shard_quarantine.path_of(tmp_path / "spool", "job")
    assert tachoscope.quarantined() == frozenset()

    shard_quarantine.save(path, "job", {"s3://bucket/b": Shard(quarantined=1.0)})
    assert tachoscope.quarantined() == frozenset(), "it is looked at every two seconds"
    now[0] += 2.0
    assert tachoscope.without_quarantined(["s3://bucket/a", "s3://bucket/b?sig=1"]) == ["s3://bucket/a"]
    path.unlink()
    now[0] += 2.0
    assert tachoscope.quarantined() == frozenset()


def test_the_environment_says_which_list_counts(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard_quarantine.save(tmp_path / "mounted.json", "job", {"b": Shard(quarantined=1.0)})
    monkeypatch.setenv(shard_quarantine.PATH_VARIABLE, str(tmp_path / "mounted.json"))
    assert tachoscope.quarantined() == {"b"}


def test_a_broken_list_leaves_the_last_one_standing_and_is_told_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    shards.LIST = QuarantineList(clock=lambda: now[0])
    path = shard_quarantine.path_of(tmp_path / "spool", "job")
    shard_quarantine.save(path, "job", {"b": Shard(quarantined=1.0)})
    assert tachoscope.quarantined() == {"b"}
    path.write_text("{")
    for _ in range(3):
        now[0] += 2.0
        assert tachoscope.quarantined() == {"b"}
    assert capsys.readouterr().err.count("not a quarantine list") == 1


def test_one_string_is_no_list_of_shards() -> None:
    with pytest.raises(TypeError, match="expand it first"):
        tachoscope.without_quarantined("part-{000..099}.tar")
