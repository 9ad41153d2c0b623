"""What is seen of the libraries that stream shards: webdataset itself, and what mosaicml-streaming calls."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import webdataset as wds
import webdataset.cache
import webdataset.tariterators
from torch.utils.data import DataLoader

from tachoscope.data import shards
from tachoscope.data.shards import ShardRecords
from tachoscope.patches import shard_readers as shard_adapters
from tachoscope.process import identity
from tachoscope_core.records import records
from tachoscope_core.storage import spool


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "spool" / "run-1"
    for name, value in {identity.RUN_DIR: str(directory), identity.JOB: "job", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shards, "RECORDS", ShardRecords())
    owners: list[tuple[Any, str]] = [
        (webdataset.tariterators, "tarfile"),
        (webdataset.tariterators, "url_opener"),
        (webdataset.tariterators, "tar_file_iterator"),
        (webdataset.cache.StreamingOpen, "__call__"),
        (webdataset.cache.FileCache, "__call__"),
    ]
    for owner, name in owners:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back afterwards
    shard_adapters._webdataset(webdataset.tariterators)
    shard_adapters._webdataset_openers(webdataset.cache)
    yield directory
    shards.RECORDS.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four shards: the second is cut off, the third is not a tar, the fourth is not there."""
    for number in range(3):
        with tarfile.open(tmp_path / f"part-{number}.tar", "w") as tar:
            for sample in range(8):
                member = tarfile.TarInfo(f"{number}{sample:03d}.bin")
                member.size = 2000
                tar.addfile(member, io.BytesIO(os.urandom(member.size)))
    os.truncate(tmp_path / "part-1.tar", 9000)
    (tmp_path / "part-2.tar").write_bytes(os.urandom(5000))
    return tmp_path


def urls(data: Path) -> list[str]:
    return [str(data / f"part-{number}.tar") for number in range(4)]


def seen(directory: Path) -> tuple[list[str], dict[str, str]]:
    """Return the shards that were read, and the errors of those that failed, by the name of the file."""
    found = [records.decode(line) for path in spool.segments(directory) for line in path.read_bytes().splitlines()]
    read = [Path(record.shard).name for record in found if isinstance(record, records.ShardRead)]
    return read, {Path(record.shard).name: record.error for record in found if isinstance(record, records.ShardFailed)}


def samples_of(made: Any) -> int:
    return sum(1 for _ in made)


def with_class(given: list[str], handler: Callable[[Exception], bool]) -> Any:
    return wds.WebDataset(given, handler=handler, shardshuffle=False)


def with_pipeline(given: list[str], handler: Callable[[Exception], bool]) -> Any:
    return wds.DataPipeline(wds.SimpleShardList(given), wds.tarfile_to_samples(handler=handler))


@pytest.mark.parametrize("dataset", [with_class, with_pipeline])
def test_errors_that_a_handler_swallows_are_failures_all_the_same(run: Path, data: Path, dataset: Callable[..., Any]) -> None:
    count = samples_of(dataset(urls(data), wds.ignore_and_continue))
    read, failed = seen(run)

    assert count >= 8
    assert read == ["part-0.tar"]
    assert failed == {"part-1.tar": "ReadError", "part-2.tar": "ReadError", "part-3.tar": "FileNotFoundError"}


@pytest.mark.parametrize("dataset", [with_class, with_pipeline])
@pytest.mark.parametrize("broken", [1, 2, 3])
def test_an_error_that_ends_the_job_is_one_failure_and_reaches_it(
    run: Path, data: Path, dataset: Callable[..., Any], broken: int
) -> None:
    with pytest.raises((tarfile.TarError, OSError)):
        samples_of(dataset([urls(data)[0], urls(data)[broken]], wds.reraise_exception))
    read, failed = seen(run)

    assert read == ["part-0.tar"]
    assert list(failed) == [f"part-{broken}.tar"]


MEMBER = 512 + 2048
"""Bytes of a sample in the tar files of these tests: its header, and its data in whole blocks."""


@pytest.mark.parametrize("piped", [False, True])
def test_a_shard_that_is_cut_or_damaged_in_a_later_header_failed_although_python_takes_that_for_its_end(
    run: Path, data: Path, piped: bool
) -> None:
    whole = (data / "part-0.tar").read_bytes()
    broken = {"cut.tar": whole[: 3 * MEMBER + 100], "damaged.tar": whole[: 3 * MEMBER] + b"x" * 512 + whole[3 * MEMBER + 512 :]}
    for name, content in broken.items():
        (data / name).write_bytes(content)
    given = [f"pipe:cat {data / name}" if piped else str(data / name) for name in broken]

    assert samples_of(with_class(given, wds.reraise_exception)) == 6, "the job itself goes on as it would"
    assert seen(run) == ([], {"cut.tar": "TruncatedHeaderError", "damaged.tar": "InvalidHeaderError"})


def test_a_shard_without_an_end_marker_one_with_something_behind_it_and_one_without_samples_are_whole(
    run: Path, data: Path
) -> None:
    whole = (data / "part-0.tar").read_bytes()
    with tarfile.open(data / "empty.tar", "w"):
        pass
    (data / "without.tar").write_bytes(whole[: 8 * MEMBER])
    (data / "followed.tar").write_bytes(whole + b"x" * 100)
    names = ["without.tar", "followed.tar", "empty.tar"]
    samples_of(with_class([str(data / name) for name in names], wds.reraise_exception))

    assert seen(run) == (names, {})


def test_a_signed_url_through_a_pipe_is_named_without_its_key(run: Path, data: Path) -> None:
    good, cut = (f"pipe:cat {url} && true s3://bucket/{Path(url).name}?key=secret" for url in urls(data)[:2])
    samples_of(with_class([good, cut], wds.ignore_and_continue))
    read, failed = seen(run)

    assert (read, list(failed)) == (["part-0.tar"], ["part-1.tar"])
    assert not any(b"secret" in path.read_bytes() for path in spool.segments(run))


def test_a_cached_shard_has_the_name_of_its_url_not_of_the_copy(run: Path, data: Path) -> None:
    (data / "cache").mkdir()
    cached = wds.WebDataset(f"pipe:cat {urls(data)[0]}", cache_dir=str(data / "cache"), shardshuffle=False)
    assert samples_of(cached) == 8
    assert seen(run)[0] == ["part-0.tar"]


def test_a_users_own_function_that_raises_is_not_the_shards_fault(run: Path, data: Path) -> None:
    def select(name: str) -> bool:
        raise KeyError(name)

    made = wds.WebDataset(urls(data)[:1], handler=wds.ignore_and_continue, shardshuffle=False, select_files=select)
    with pytest.raises(ValueError, match="No samples"):
        samples_of(made)
    assert seen(run) == ([], {})


def test_an_epoch_that_stops_within_a_shard_says_nothing_of_it(run: Path, data: Path) -> None:
    samples = iter(with_class(urls(data)[:1], wds.reraise_exception))
    next(samples)
    samples.close()
    assert seen(run) == ([], {})


def test_a_data_set_can_be_pickled_for_workers_that_are_spawned(run: Path, data: Path) -> None:
    assert samples_of(pickle.loads(pickle.dumps(with_class(urls(data)[:1], wds.reraise_exception)))) == 8


def test_what_loader_workers_read_and_fail_on_is_recorded(run: Path, data: Path) -> None:
    made = with_class(urls(data), wds.ignore_and_continue)
    samples_of(DataLoader(made, num_workers=2, batch_size=None))
    read, failed = seen(run)

    assert read == ["part-0.tar"]
    assert set(failed) == {"part-1.tar", "part-2.tar", "part-3.tar"}
    writers = {spool.writer_and_number(path)[0] for path in spool.segments(run)}
    assert len(writers) == 2


# --- mosaicml-streaming: a fake of the four names that are wrapped -----------------------------------------------------------


class FakeFile:
    def __init__(self, basename: str, size: int) -> None:
        self.basename, self.bytes = basename, size


class FakeReader:
    """What `streaming.base.format.base.reader.Reader` is to the adapter."""

    def __init__(self, dirname: str, basename: str) -> None:
        self.dirname, self.split = dirname, "train"
        self.file_pairs = [(FakeFile(basename, 300), FakeFile(f"{basename}.zstd", 100))]

    def get_item(self, index: int) -> int:
        if index == 2:
            raise FileNotFoundError(self.dirname)
        return 10 // index


class FakeStream:
    """What `streaming.base.stream.Stream` is to the adapter."""

    def __init__(self, remote: str | None, local: str) -> None:
        self.remote, self.local, self.split = remote, local, "train"
        self.broken = False

    def get_shards(self, world: object, allow_unsafe_types: bool) -> list[FakeReader]:
        return [FakeReader(self.local, f"shard.{number:05d}.mds") for number in range(2)]

    def prepare_shard(self, shard: FakeReader) -> int:
        if self.broken:
            raise ValueError("Checksum failure")
        return 0 if shard.file_pairs[0][0].basename == "shard.00001.mds" else 300


def fake_module(**names: Any) -> ModuleType:
    module = ModuleType("fake_streaming")
    module.__dict__.update({name: type(name, (cls,), dict(cls.__dict__)) for name, cls in names.items()})
    return module


def test_streaming_shards_are_named_by_their_remote_wherever_they_fail(run: Path) -> None:
    stream_module, reader_module = fake_module(Stream=FakeStream), fake_module(Reader=FakeReader)
    shard_adapters._streaming(stream_module)
    shard_adapters._streaming_reader(reader_module)
    stream = stream_module.Stream("s3://bucket/data", "/local")
    first, second = stream.get_shards(None, False)
    stream.prepare_shard(first)
    stream.prepare_shard(second)
    stream.broken = True
    with pytest.raises(ValueError, match="Checksum"):
        stream.prepare_shard(second)
    reader = reader_module.Reader("/local", "shard.00000.mds")
    for index, error in ((0, ZeroDivisionError), (2, FileNotFoundError)):
        with pytest.raises(error):
            reader.get_item(index)
    found = [records.decode(line) for path in spool.segments(run) for line in path.read_bytes().splitlines()]

    assert [(type(one).__name__, one.shard) for one in found] == [  # type: ignore[union-attr]
        ("ShardRead", "s3://bucket/data/train/shard.00000.mds"),
        ("ShardFailed", "s3://bucket/data/train/shard.00001.mds"),
        ("ShardFailed", "/local/train/shard.00000.mds"),
    ]
    assert found[0].bytes == 100  # type: ignore[union-attr]
    assert getattr(first, shard_adapters.NAME) == "s3://bucket/data/train/shard.00000.mds"
    assert reader.get_item(5) == 2
