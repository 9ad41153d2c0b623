import fcntl
from pathlib import Path

import pytest

from making import envelope
from tachoscope.spool.ship import ship, ship_left_behind
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store

WRITER = "01234567-89ab-4cde-8f01-23456789abcd"


def record(seq: int, **changes: object) -> bytes:
    return records.encode(records.JobEnded(**envelope(seq=seq, **changes), status="left"))


def segment(directory: Path, data: bytes, number: int = 0) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / spool.segment_name(WRITER, number)
    path.write_bytes(data)
    return path


def stored(store: Store, job: str = "planted") -> bytes:
    return b"".join(store.read(part) for part in store.segments(job))


def test_every_whole_line_arrives_verbatim_and_the_spool_is_empty_after(tmp_path: Path) -> None:
    lines = b"".join(record(seq) for seq in range(23))
    segment(tmp_path / "run", lines)
    store = Store(str(tmp_path / "store"))

    shipped = ship(tmp_path / "run", store)

    assert stored(store) == lines
    assert (shipped.lines, shipped.segments, shipped.cut_lines) == (23, 1, 0)
    assert list(spool.segments(tmp_path)) == []


def test_a_line_cut_by_a_crash_is_counted_and_does_not_spoil_the_others(tmp_path: Path) -> None:
    segment(tmp_path / "run", record(0) + record(1)[:-10])
    store = Store(str(tmp_path / "store"))

    assert ship(tmp_path / "run", store).cut_lines == 1
    assert stored(store) == record(0)


def test_garbage_goes_along_so_that_a_reader_can_count_it(tmp_path: Path) -> None:
    segment(tmp_path / "run", record(0) + b"garbage\n" + record(1))
    store = Store(str(tmp_path / "store"))
    ship(tmp_path / "run", store)

    assert stored(store) == record(0) + b"garbage\n" + record(1)


def test_a_file_of_garbage_alone_is_left_where_it_is(tmp_path: Path) -> None:
    path = segment(tmp_path / "run", b"garbage\n")

    ship(tmp_path / "run", Store(str(tmp_path / "store")))

    assert path.exists()


def test_jobs_attempts_and_days_do_not_mix(tmp_path: Path) -> None:
    parts = [record(0), record(1, attempt=1), record(2, job="other"), record(3, time=1.8e9)]
    segment(tmp_path / "run", b"".join(parts))
    store = Store(str(tmp_path / "store"))
    ship(tmp_path / "run", store)

    assert stored(store, "other") == parts[2]
    assert sorted(part.attempt for part in store.segments("planted")) == [0, 0, 1]


def test_a_job_name_that_leaves_the_store_is_refused(tmp_path: Path) -> None:
    path = segment(tmp_path / "run", record(0, job="../../evil"))

    with pytest.raises(TachoscopeError, match="not usable"):
        ship(tmp_path / "run", Store(str(tmp_path / "store")))
    assert path.exists()
    assert not (tmp_path / "evil").exists()


def test_what_a_live_process_writes_is_not_touched(tmp_path: Path) -> None:
    path = segment(tmp_path / "run", record(0))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)

        assert ship(tmp_path / "run", Store(str(tmp_path / "store"))).segments == 0
    assert path.exists()


def test_what_a_dead_run_left_behind_is_shipped_and_a_live_one_is_not(tmp_path: Path) -> None:
    segment(tmp_path / "spool" / "dead", record(0))
    segment(tmp_path / "spool" / "live", record(1))
    store = Store(str(tmp_path / "store"))
    with (tmp_path / "spool" / "live" / spool.SHIPPER_LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        shipped = ship_left_behind(tmp_path / "spool", store)

    assert shipped.lines == 1
    assert stored(store) == record(0)
    assert not (tmp_path / "spool" / "dead").exists()
    assert (tmp_path / "spool" / "live").exists()


def test_one_run_that_cannot_be_stored_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    bad = segment(tmp_path / "spool" / "a-bad", record(0, job="../../evil"))
    segment(tmp_path / "spool" / "b-good", record(1))
    store = Store(str(tmp_path / "store"))

    assert ship_left_behind(tmp_path / "spool", store).lines == 1
    assert stored(store) == record(1)
    assert bad.exists()


def test_nothing_is_deleted_when_the_store_cannot_be_written(tmp_path: Path) -> None:
    path = segment(tmp_path / "run", record(0))
    (tmp_path / "file").write_text("")

    with pytest.raises(TachoscopeError):
        ship(tmp_path / "run", Store(str(tmp_path / "file" / "store")))
    assert path.read_bytes() == record(0)


def test_a_link_in_the_spool_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(record(0))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / spool.segment_name(WRITER, 0)).symlink_to(secret)

    assert ship(tmp_path / "run", Store(str(tmp_path / "store"))).segments == 0
    assert secret.exists()
