import gzip
import os
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import store as store_module
from tachoscope_core.storage.compacted import last_attempt
from tachoscope_core.storage.store import Store

WRITER = "01234567-89ab-4cde-8f01-23456789abcd"


def put(store: Store, lines: bytes = b'{"a":1}\n', offset: int = 0, attempt: int = 0, job: str = "job") -> str:
    return store.write(job, host="node/1", writer=WRITER, attempt=attempt, offset=offset, time=1.7e9, lines=lines)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store, b"one\n")
    put(store, b"two\n", offset=7, attempt=2)

    segments = list(store.segments("job"))

    assert [store.read(segment) for segment in segments] == [b"one\n", b"two\n"]
    assert [(s.host, s.writer, s.attempt, s.offset) for s in segments] == [("node_1", WRITER, 0, 0), ("node_1", WRITER, 2, 7)]
    assert last_attempt(store, "job") == 2
    assert store.jobs() == ["job"]


def test_an_object_of_several_parts_may_unpack_to_as_much_as_one_of_a_single_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_OBJECT_BYTES", 1 << 20)
    part = gzip.compress(bytes(400_000))

    assert store_module.unpacked(gzip.compress(b"a") + 2 * part) == b"a" + bytes(800_000)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        store_module.unpacked(gzip.compress(b"a") + 3 * part)


def test_shipping_the_same_bytes_twice_stores_them_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))

    assert put(store) == put(store)
    assert len(list(store.segments("job"))) == 1


def test_no_half_written_object_is_ever_seen(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    put(store)

    assert [name for _, _, names in os.walk(tmp_path) for name in names if "partial" in name] == []


def test_an_empty_store_has_no_jobs_and_makes_no_folders(tmp_path: Path) -> None:
    assert Store(str(tmp_path / "none")).jobs() == []
    assert not (tmp_path / "none").exists()


def test_a_store_below_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(TachoscopeError, match="could not write .*file"):
        put(Store(str(tmp_path / "file" / "store")))


def test_a_broken_object_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    Path(put(store)).write_bytes(b"not gzip")

    with pytest.raises(TachoscopeError, match=r"could not read .*\.jsonl\.gz"):
        store.read(next(store.segments("job")))


def test_without_an_address_the_store_is_in_the_users_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACHOSCOPE_STORE")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_module.default_url() == f"{tmp_path}/.local/share/tachoscope"

    monkeypatch.setenv("XDG_DATA_HOME", f"{tmp_path}/data")
    assert store_module.default_url() == f"{tmp_path}/data/tachoscope"


def test_an_unknown_scheme_names_the_way_out() -> None:
    with pytest.raises(TachoscopeError, match="could not open store 'nonsense://x'"):
        Store("nonsense://x")


def test_memory_store_stands_for_any_object_store() -> None:
    store = Store("memory://bucket/prefix")
    put(store, job="other")

    assert store.jobs() == ["other"]
    assert [store.read(segment) for segment in store.segments("other")] == [b'{"a":1}\n']
    assert store.job_times()["other"] >= 0


def test_traces_make_no_job_of_records_and_an_old_one_no_newer(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    os.utime(put(store), (1e9, 1e9))
    for job in ("job", "traces-only"):
        (tmp_path / "jobs" / job / "traces" / "first").mkdir(parents=True)
        (tmp_path / "jobs" / job / "traces" / "first" / "rank-0.json").write_text("[]")

    assert store.job_times() == {"job": 1e9}
    assert store.jobs() == ["job", "traces-only"]


def test_saved_reports_of_a_job_are_read_by_name_and_nothing_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "job" / "reports"
    folder.mkdir(parents=True)
    for name in ("2.json", "1.json", "notes.txt"):
        (folder / name).write_bytes(name.encode())
    store = Store(str(tmp_path))

    assert [(path.rsplit("/", 1)[-1], data) for path, data in store.reports("job")] == [
        ("1.json", b"1.json"),
        ("2.json", b"2.json"),
    ]
    assert store.reports("other") == []
    with pytest.raises(TachoscopeError, match="not usable"):
        store.reports("../job")
