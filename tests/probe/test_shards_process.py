"""Real processes that read real shards: the corrupt one is quarantined, the healthy one that dying ranks read is not."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

from helpers import REPOSITORY, records_of, run_watched
from shard_reading import CORRUPT, HEALTHY, LAST
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.shard_quarantine import from_store
from tachoscope_core.storage.store import Store


def write_shard(path: Path, *, samples: int = 20) -> None:
    with tarfile.open(path, "w") as tar:
        for number in range(samples):
            member = tarfile.TarInfo(f"{number:04d}.bin")
            member.size = 3000
            tar.addfile(member, io.BytesIO(os.urandom(member.size)))


def test_a_corrupt_shard_is_quarantined_after_the_second_rank_and_a_healthy_one_under_dying_ranks_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(4):
        write_shard(data / f"part-{number}.tar")
    os.truncate(data / CORRUPT, (data / CORRUPT).stat().st_size // 2 + 100)

    done = run_watched(tmp_path, sys.executable, str(REPOSITORY / "tests/trainings/shard_reading.py"), str(data))

    assert json.loads(done.stdout) == [0, -9, -9], done.stderr
    told = json.loads((data / "first.json").read_text())
    assert told["samples"][0] == told["samples"][1] > 20, "what can be read of the corrupt shard is read"
    assert told["listed"] == [], "one rank is not enough, however often it fails"
    assert json.loads((data / "third.json").read_text()) == ["part-0.tar", LAST]
    assert f"{CORRUPT}' failed on ranks 0, 1" in done.stderr

    job = records_of(tmp_path)
    (record,) = job.quarantined
    assert (record.shard, record.failures, record.ranks) == (str(data / CORRUPT), 2, [0, 1])
    assert {failure.shard for failure in job.shard_failures} == {str(data / CORRUPT)}
    assert {failure.rank for failure in job.shard_failures} == {0, 1}
    whole = {(read.rank, Path(read.shard).name, read.bytes) for read in job.shard_reads}
    size = (data / LAST).stat().st_size
    assert whole == {(0, "part-0.tar", size), (2, "part-0.tar", size), (2, LAST, size)}
    assert not job.starts[1:], "who reads shards is not a rank's process"
    assert not job.failures

    stored = from_store(Store(str(tmp_path / "store")), "job")
    beside_the_spool = shard_quarantine.load(shard_quarantine.path_of(tmp_path / "spool", "job"))
    assert shard_quarantine.listed_names(stored) == shard_quarantine.listed_names(beside_the_spool) == {str(data / CORRUPT)}
    assert str(data / HEALTHY) not in stored
