from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import streamlit as st

import course_making
from exploring import WRITER, filled
from tachoscope_core.storage.store import Store
from tachoscope_explorer.sources import summary_cache
from tachoscope_explorer.sources.summary_cache import CachedSummary, cache_file, cached_summary, make, summaries

LINES = course_making.lines(steps=20, ranks=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))
    st.cache_resource.clear()


def started_anew() -> None:
    """Forget what the process remembers, as another start of the explorer does."""
    st.cache_resource.clear()


def store_of(tmp_path: Path, *names: str) -> tuple[str, dict[str, float]]:
    url = str(filled(tmp_path / "store", dict.fromkeys(names, LINES)))
    return url, Store(url).job_times()


def test_a_summary_is_found_again_by_another_start_until_the_job_writes(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    made = make(url, "one", times["one"], now=2e9)
    started_anew()

    assert cached_summary(url, "one", times["one"], now=2e9) == made
    assert cached_summary(url, "one", times["one"] + 1, now=2e9) is None


def test_a_damaged_file_is_as_if_it_were_not_there_and_is_written_anew(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    made = make(url, "one", times["one"], now=2e9)
    for damage in (b"", b"{", b"\xff\xfe", b'{"made_by":3}', cache_file(url, "one").read_bytes()[:-20]):
        cache_file(url, "one").write_bytes(damage)
        started_anew()

        assert cached_summary(url, "one", times["one"], now=2e9) is None
        assert summaries(url, ["one"], times, most=1, seconds=10) == {"one": made}
        assert msgspec.json.decode(cache_file(url, "one").read_bytes(), type=CachedSummary).summary == made


def test_what_another_version_kept_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, times = store_of(tmp_path, "one")
    make(url, "one", times["one"], now=2e9)
    started_anew()
    monkeypatch.setattr(summary_cache, "version", lambda _: "99")

    assert cached_summary(url, "one", times["one"], now=2e9) is None


def test_stores_that_hold_a_job_of_the_same_name_are_kept_apart(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    make(url, "one", times["one"], now=2e9)

    assert cached_summary(url + "-other", "one", times["one"], now=2e9) is None


def test_a_running_job_is_judged_anew_after_half_a_minute_and_not_before(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    now = 1.7e9 + 3
    assert make(url, "one", times["one"], now).status == "running"

    assert cached_summary(url, "one", times["one"] + 5, now + 20) is not None
    assert cached_summary(url, "one", times["one"] + 5, now + 31) is None


def test_the_newest_jobs_are_judged_first_and_no_more_than_asked_for(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one", "two", "three")
    told: list[tuple[int, int]] = []

    def on_progress(done: int, of: int) -> None:
        told.append((done, of))

    assert list(summaries(url, ["three", "one", "two"], times, most=2, seconds=60, on_progress=on_progress)) == ["three", "one"]
    assert told == [(0, 2), (1, 2)]
    assert list(summaries(url, ["three", "one", "two"], times, most=3, seconds=60)) == ["three", "one", "two"]


def test_nothing_in_the_store_is_written_and_no_name_is_in_a_path(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    before = sorted(Path(url).rglob("*"))

    make(url, "one", times["one"], now=2e9)
    make(url, "../../etc/passwd", 1.0, now=2e9)

    assert sorted(Path(url).rglob("*")) == before
    assert all(path.stem.isalnum() for path in (tmp_path / "cache").rglob("*.json"))


def test_a_disk_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, times = store_of(tmp_path, "one")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "file"))

    made = make(url, "one", times["one"], now=2e9)

    assert cached_summary(url, "one", times["one"], now=2e9) == made


def test_a_job_whose_records_cannot_be_read_has_a_line_that_says_so(tmp_path: Path) -> None:
    url, times = store_of(tmp_path, "one")
    (path,) = Path(url).rglob(f"{WRITER}*")
    path.write_bytes(b"no gzip")

    assert "could not read" in make(url, "one", times["one"], now=2e9).reason
