"""Recordings of a job: of the store, of an object store, of the command line and of an upload."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import streamlit as st

from processes import free_port, s3_environment, s3_server
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.store import Store
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.sources import traces as trace_sources
from tachoscope_explorer.sources.traces import GIVEN, UPLOADED


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))
    st.cache_data.clear()
    st.cache_resource.clear()


def trace(path: Path, rank: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": [event]}))
    return path


def put(url: str, folder: Path, job: str = "job", recording: str = "first", at: float = 0.0) -> None:
    for rank in range(2):
        found = stored_traces.write(Store(url), job, recording, trace(folder / f"rank-{rank}.json", rank))
        if at:
            os.utime(found.path, (at, at))


def test_recordings_of_a_job_stand_the_newest_first_with_a_file_for_each_rank(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "store"))
    put(settings.store_url, tmp_path, recording="older", at=1e9)
    put(settings.store_url, tmp_path, recording="newer", at=2e9)

    found = trace_sources.recordings(settings, "job")

    assert [(one.name, [file.name for file in one.files]) for one in found] == [
        ("newer", ["rank-0.json", "rank-1.json"]),
        ("older", ["rank-0.json", "rank-1.json"]),
    ]
    assert trace_sources.view_of_file(found[0].files[1]).trace.meta.rank == 1
    assert trace_sources.report_of(found[0]).ranks == 2


def test_what_has_no_traces_has_no_recordings(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "store"))

    for job in ("job", GIVEN, UPLOADED, "../other", "", "<script>"):
        assert trace_sources.recordings(settings, job) == []
    assert trace_sources.jobs(settings) == []


def test_all_that_has_traces_can_be_chosen(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "store"), traces=(str(trace(tmp_path / "given" / "a.json")),))
    put(settings.store_url, tmp_path, job="resnet")
    (tmp_path / "store" / "jobs" / "without").mkdir()

    assert trace_sources.jobs(settings) == [GIVEN, "resnet"]
    (given,) = trace_sources.recordings(settings, GIVEN)
    assert [file.name for file in given.files] == ["a.json"]


def test_a_link_out_of_the_store_is_refused_in_clear_words(tmp_path: Path) -> None:
    settings = Settings(str(tmp_path / "store"))
    put(settings.store_url, tmp_path)
    (tmp_path / "store/jobs/job/traces/first/rank-2.json").symlink_to(trace(tmp_path / "elsewhere" / "secret.json"))

    with pytest.raises(TachoscopeError, match=r"rank-2\.json leads out of the store"):
        trace_sources.recordings(settings, "job")


def test_files_of_an_object_store_are_fetched_only_when_they_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    with s3_server(port):
        settings = Settings("s3://bucket/tachoscope")
        put(settings.store_url, tmp_path)

        (found,) = trace_sources.recordings(settings, "job")
        assert not any(file.exists() for file in found.files)
        assert trace_sources.view_of_file(found.files[1]).trace.meta.rank == 1
        assert [file.exists() for file in found.files] == [False, True]
        assert trace_sources.report_of(found).ranks == 2
