import os
from pathlib import Path

import pytest

from processes import free_port, s3_environment, s3_server
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.store import Store
from tachoscope_core.storage.traces import StoredTrace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def trace_file(folder: Path, name: str = "rank-0.json.gz", data: bytes = b"trace") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def put(store: Store, folder: Path, name: str = "rank-0.json.gz", *, recording: str = "first", at: float = 1e9) -> StoredTrace:
    found = stored_traces.write(store, "job", recording, trace_file(folder, name, data=f"{recording}/{name}".encode()))
    os.utime(found.path, (at, at))
    return found


def test_traces_are_listed_by_recording_the_newest_first_and_by_file(tmp_path: Path, store: Store) -> None:
    for recording, at in (("older", 1e9), ("newer", 2e9)):
        for rank in (1, 0):
            put(store, tmp_path, f"rank-{rank}.json.gz", recording=recording, at=at + rank)

    found = stored_traces.traces(store, "job")

    assert [(one.recording, one.file, one.written) for one in found] == [
        ("newer", "rank-0.json.gz", 2e9),
        ("newer", "rank-1.json.gz", 2e9 + 1),
        ("older", "rank-0.json.gz", 1e9),
        ("older", "rank-1.json.gz", 1e9 + 1),
    ]
    assert {one.bytes for one in found} == {len(b"newer/rank-0.json.gz")}
    assert store.jobs() == ["job"]


def test_a_job_or_a_store_without_traces_has_none(store: Store) -> None:
    assert stored_traces.traces(store, "job") == []


def test_a_trace_of_a_directory_is_the_file_itself(tmp_path: Path, store: Store) -> None:
    found = put(store, tmp_path)

    assert stored_traces.local(store, found) == Path(found.path)
    assert not (Path(found.path).parent / f".{found.file}.partial").exists()


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path, store: Store) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored_traces.write(store, "job", "first", trace_file(tmp_path), progress=interrupt)

    assert [name for _, _, names in os.walk(tmp_path / "store") for name in names] == []


@pytest.mark.parametrize("recording", ["", "..", "../other", "a/b", "/etc", ".hidden", "a b"])
def test_a_recording_whose_name_is_a_path_is_refused(tmp_path: Path, store: Store, recording: str) -> None:
    with pytest.raises(TachoscopeError, match="a recording's name .* is not usable"):
        stored_traces.write(store, "job", recording, trace_file(tmp_path))


def test_the_name_of_a_file_becomes_one_that_a_store_can_hold(tmp_path: Path, store: Store) -> None:
    found = stored_traces.write(store, "job", "first", trace_file(tmp_path, "rank 0<script>.json"))

    assert found.file == "rank_0_script_.json"


def test_what_is_not_named_as_a_trace_is_neither_written_nor_listed(tmp_path: Path, store: Store) -> None:
    with pytest.raises(TachoscopeError, match=r"notes\.txt does not have the name of a trace"):
        stored_traces.write(store, "job", "first", trace_file(tmp_path, "notes.txt"))
    folder = Path(put(store, tmp_path).path).parent
    trace_file(folder, "notes.txt")
    trace_file(folder / "deeper", "rank-1.json")

    assert [one.file for one in stored_traces.traces(store, "job")] == ["rank-0.json.gz"]


def test_a_link_out_of_the_store_is_refused(tmp_path: Path, store: Store) -> None:
    folder = Path(put(store, tmp_path).path).parent
    secret = trace_file(tmp_path / "elsewhere", "secret.json")
    (folder / "file.json").symlink_to(secret)
    (folder.parent / "folder").symlink_to(secret.parent)

    outside = [one for one in stored_traces.traces(store, "job") if one.file != "rank-0.json.gz"]
    assert outside
    for one in outside:
        with pytest.raises(TachoscopeError, match="leads out of the store"):
            stored_traces.local(store, one)


def test_nothing_is_written_through_a_folder_that_is_a_link_out_of_the_store(tmp_path: Path, store: Store) -> None:
    folder = Path(put(store, tmp_path).path).parent.parent
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(TachoscopeError, match="a link, which a store does not follow"):
        put(store, tmp_path, recording="linked")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_trace_that_is_gone_is_one_clear_error(tmp_path: Path, store: Store) -> None:
    found = put(store, tmp_path)
    Path(found.path).unlink()

    with pytest.raises(TachoscopeError, match=r"could not read .*rank-0\.json\.gz in store"):
        stored_traces.local(store, found)


def test_an_object_store_is_written_listed_and_copied_once_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    for name, value in (s3_environment(port) | {"TACHOSCOPE_CACHE": str(tmp_path / "cache")}).items():
        monkeypatch.setenv(name, value)
    large = os.urandom(60 << 20)  # in several parts
    told: list[tuple[int, int]] = []
    with s3_server(port):
        store = Store("s3://bucket/tachoscope")
        first = stored_traces.write(
            store, "job", "one", trace_file(tmp_path, data=large), progress=lambda done, total: told.append((done, total))
        )
        second = stored_traces.write(store, "job", "two", trace_file(tmp_path, "rank-1.json.gz"))
        assert told[-1] == (len(large), len(large))
        assert {one.path for one in stored_traces.traces(store, "job")} == {first.path, second.path}

        copy = stored_traces.local(store, first)
        assert copy.read_bytes() == large
        assert copy.name == "rank-0.json.gz"
        inode = copy.stat().st_ino
        assert stored_traces.local(store, first).stat().st_ino == inode

        other = stored_traces.local(store, second, most_bytes=10 << 20)
        assert other.read_bytes() == b"trace"
        assert not copy.exists()

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stored_traces.write(store, "job", "three", trace_file(tmp_path), progress=interrupt)
        assert {one.recording for one in stored_traces.traces(store, "job")} == {"one", "two"}
    with pytest.raises(TachoscopeError, match="could not list"):
        stored_traces.traces(store, "job")
