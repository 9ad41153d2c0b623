"""Samples as Parquet are the same samples; the cache opens no object twice and never gives anything but what the store holds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from slo_making import BEGIN, Planted, series, ticks, write_store
from tachoscope_alerts.measure import parquet_cache
from tachoscope_alerts.measure.stored_samples import Samples
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.serving import REQUESTS
from tachoscope_core.storage.store import Store

HOST = "node-1"
LABELS = {"service": "chat", "model": "m", "version": "v", "outcome": "ok"}
WANTED = {REQUESTS.name: frozenset[float]()}


def told(samples: Samples) -> list[tuple[object, ...]]:
    return [
        (one.metric, one.labels, one.times_ms.tolist(), np.nan_to_num(one.values, nan=-1.0).tolist(), one.ends_ms.tolist())
        for one in samples.series()
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(str(tmp_path / "store"))
    times = ticks(3600.0, random.Random(1))
    write_store(made, [Planted(REQUESTS, LABELS, HOST, dict.fromkeys(times, 1.0))])
    return made


def cached(store: Store, cache: Path | None, *, end: float = BEGIN + 3600) -> Samples:
    return parquet_cache.cached(store, HOST, WANTED, start=BEGIN, end=end, cache=cache)


def test_what_is_written_is_read_back_ends_and_missing_numbers_too(tmp_path: Path) -> None:
    samples = Samples(
        {
            "a": [series("a", [(1.5, 1.0), (2.5, float("nan"))], ends=[3.5], x="1"), series("a", [(1.0, 0.1)], x="2", y="ü\n")],
            "b": [series("b", [], ends=[])],
            "c": [series("c", [(9.0, 1e300)])],
        },
        lines=7,
        garbage=2,
    )
    parquet_cache.write(tmp_path / "folder" / "one.parquet", samples)
    back = parquet_cache.read(tmp_path / "folder" / "one.parquet")

    assert told(back) == [row for row in told(samples) if row[0] != "b"], "a series without samples is none"
    assert np.isnan(back.by_metric["a"][0].values[1])
    assert (back.lines, back.garbage) == (7, 2)
    assert os.listdir(tmp_path / "folder") == ["one.parquet"]


def test_no_samples_are_no_error(tmp_path: Path) -> None:
    parquet_cache.write(tmp_path / "none.parquet", Samples())
    assert told(parquet_cache.read(tmp_path / "none.parquet")) == []


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    for path in (tmp_path / "bad.parquet", tmp_path / "gone.parquet"):
        with pytest.raises(TachoscopeError, match=f"{path.name} contains no metric samples"):
            parquet_cache.read(path)


def test_the_second_time_no_object_is_opened(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = cached(store, tmp_path / "cache")

    def opened(*_: object) -> bytes:
        raise AssertionError("an object was opened")

    monkeypatch.setattr(Store, "read", opened)
    assert told(cached(store, tmp_path / "cache")) == told(first)
    assert len(told(first)) == 1
    with pytest.raises(AssertionError, match="opened"):
        cached(store, None)


def test_a_new_object_or_other_metrics_are_not_answered_from_the_cache(store: Store, tmp_path: Path) -> None:
    before = cached(store, tmp_path / "cache")
    write_store(store, [Planted(REQUESTS, LABELS, HOST, {round((BEGIN + 3590.5) * 1000): 2.0})])

    after = cached(store, tmp_path / "cache")

    assert len(after.by_metric[REQUESTS.name][0].times_ms) == len(before.by_metric[REQUESTS.name][0].times_ms) + 1
    other = parquet_cache.cached(store, HOST, {"none": frozenset()}, start=BEGIN, end=BEGIN + 3600, cache=tmp_path / "cache")
    assert told(other) == []


def test_what_could_not_be_read_whole_is_not_kept(store: Store, tmp_path: Path) -> None:
    broken = Path(store.samples(HOST, start=BEGIN, end=BEGIN + 3600)[0].path)
    content = broken.read_bytes()
    broken.write_bytes(b"broken")
    assert cached(store, tmp_path / "cache").unread
    broken.write_bytes(content)

    assert not cached(store, tmp_path / "cache").unread
    assert len(cached(store, tmp_path / "cache").by_metric[REQUESTS.name][0].times_ms) == 240


def test_a_damaged_file_and_a_place_that_cannot_be_written_only_cost_time(store: Store, tmp_path: Path) -> None:
    whole = told(cached(store, tmp_path / "cache"))
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(b"PAR1")
    assert told(cached(store, tmp_path / "cache")) == whole

    (tmp_path / "file").write_text("")
    assert told(cached(store, tmp_path / "file" / "cache")) == whole


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for age, name in ((300, "old"), (200, "older-but-large"), (100, "new")):
        path = tmp_path / name
        path.write_bytes(b"x" * 100)
        os.utime(path, (1e9 - age, 1e9 - age))

    parquet_cache.prune(tmp_path, limit_bytes=150)

    assert os.listdir(tmp_path) == ["new"]
    parquet_cache.prune(tmp_path / "none")


def test_the_cache_lies_where_all_of_ours_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path))
    assert parquet_cache.folder() == tmp_path / "samples" / "v1"
