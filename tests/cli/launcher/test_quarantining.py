"""The quarantine list from the command line: it is listed, a shard is released, and a run begins with what the store knows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tachoscope_cli.app import call
from tachoscope_cli.launcher.shard_quarantine import Quarantining, release, rows
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.shard_quarantine import Failure, Shard
from tachoscope_core.storage.store import Store


def store_with_a_list(tmp_path: Path, now: float) -> Store:
    store = Store(str(tmp_path / "store"))
    failures = tuple(Failure(rank=rank, attempt=0, time=now - 60.0, error="ReadError") for rank in (0, 4))
    shards = {name: Shard(failures=failures, quarantined=now - 60.0) for name in ("s3://bucket/a.tar", "s3://bucket/b.tar")}
    store.write_quarantine("resnet", "node-1", shard_quarantine.encode("resnet", shards))
    return store


def test_the_list_is_shown_and_a_shard_released_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = store_with_a_list(tmp_path, time.time())
    words = ["store", "quarantine", "resnet", "--store", store.url]
    assert call(words) == 0
    shown = capsys.readouterr().out
    assert "s3://bucket/a.tar" in shown
    assert "0, 4" in shown

    assert call([*words, "--release", "s3://bucket/a.tar?signature=1", "--release", "s3://bucket/b.tar"]) == 0
    assert "no shard of job resnet is quarantined" in capsys.readouterr().out


def test_one_release_does_not_undo_another(tmp_path: Path) -> None:
    now = time.time()
    store = store_with_a_list(tmp_path, now)
    for name in ("s3://bucket/a.tar", "s3://bucket/b.tar"):
        release(store, "resnet", [name], now)
    assert rows(store, "resnet", now) == []


def test_a_shard_that_is_not_listed_cannot_be_released(tmp_path: Path) -> None:
    store = store_with_a_list(tmp_path, 1000.0)
    with pytest.raises(TachoscopeError, match="'s3://bucket/c.tar' is not on the quarantine list of job 'resnet' .*bucket/a.tar"):
        release(store, "resnet", ["s3://bucket/c.tar"], 2000.0)


def test_a_release_holds_although_clocks_differ(tmp_path: Path) -> None:
    store = store_with_a_list(tmp_path, 1000.0)
    release(store, "resnet", ["s3://bucket/a.tar"], 0.0)
    assert [row[0] for row in rows(store, "resnet", 1000.0)] == ["s3://bucket/b.tar"]


def test_an_unknown_job_is_named(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="no records of job 'resnet'"):
        rows(Store(str(tmp_path / "store")), "resnet", 0.0)


def test_a_run_begins_with_what_the_store_knows_and_leaves_there_what_it_learnt(tmp_path: Path) -> None:
    store = store_with_a_list(tmp_path, 1000.0)
    run = Quarantining(tmp_path / "spool", "resnet")
    run.fetch(store)
    assert shard_quarantine.listed_names(shard_quarantine.load(run.path)) == {"s3://bucket/a.tar", "s3://bucket/b.tar"}

    kept_by_an_agent = shard_quarantine.load(run.path) | {"s3://bucket/c.tar": Shard(quarantined=1500.0)}
    shard_quarantine.save(run.path, "resnet", kept_by_an_agent)
    run.store(store)
    assert "s3://bucket/c.tar" in [row[0] for row in rows(store, "resnet", 2000.0)]


def test_a_run_whose_job_has_no_failing_shard_leaves_no_list_behind(tmp_path: Path) -> None:
    run = Quarantining(tmp_path / "spool", "resnet")
    run.fetch(Store(str(tmp_path / "store")))
    run.store(Store(str(tmp_path / "store")))
    assert not (tmp_path / "spool").exists()
    assert not (tmp_path / "store").exists()
