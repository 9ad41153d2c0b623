"""What is old goes and what is held stays; a dry run removes nothing, and what is left is whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tachoscope_cli.app import app
from tachoscope_core.owner import Owner
from tachoscope_core.storage import profile_requests, retention
from tachoscope_core.storage.store import Store

DAY = 86400.0
NOW = time.time()
RECORDING = "20260101T000000Z-steps-1-2"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Jobs that wrote last 100, 10 and 0 days ago; each with a trace of 1000 bytes; samples of each of the last 5 days."""
    store = Store(str(tmp_path))
    for name, age in (("old", 100), ("recent", 10), ("running", 0)):
        at = NOW - age * DAY
        for offset, earlier in ((0, 200), (1, 0)):
            path = store.write(name, host="n", writer="a", attempt=0, offset=offset, time=at - earlier * DAY, lines=b"{}\n")
            os.utime(path, (at - earlier * DAY, at - earlier * DAY))
        trace = tmp_path / "jobs" / name / "traces" / RECORDING / "rank0.json"
        trace.parent.mkdir(parents=True)
        trace.write_bytes(b"x" * 1000)
        os.utime(trace, (at, at))
    for days in range(5):
        store.write_samples(host="n", name=f"{int(NOW - days * DAY)}-x", time=NOW - days * DAY, lines=b"{}\n")
    os.utime(store.write_node("gone", b"{}"), (NOW - 3 * DAY, NOW - 3 * DAY))
    store.write_node("there", b"{}")
    return store


def prune(store: Store, *options: str) -> Result:
    done = CliRunner().invoke(app, ["store", "prune", "--store", store.url, "--format", "json", *options])
    assert done.exit_code == 0, done.output
    return done


def removed(store: Store, *options: str) -> list[tuple[str, str]]:
    return [(one["what"], one["name"]) for one in json.loads(prune(store, *options).stdout)["removed"]]


def files(store: Store) -> set[str]:
    return {path.removeprefix(f"{store.root}/") for path in store.files.find(store.root)}


def test_a_dry_run_says_what_the_same_command_then_removes(store: Store) -> None:
    options = ("--records", "30d", "--metrics", "2d", "--traces", "2KB", "--nodes", "1d")
    before = files(store)

    announced = removed(store, *options, "--dry-run")

    assert files(store) == before
    assert announced == removed(store, *options)
    assert [what for what, _ in announced] == ["records", "metrics", "metrics", "traces", "nodes"]
    assert removed(store, *options) == []
    assert len(before) - len(files(store)) == 2 + 2 + 1 + 1


def test_records_go_by_whole_jobs_and_one_that_writes_keeps_all_of_them(store: Store) -> None:
    assert removed(store, "--records", "30d") == [("records", "old")]
    assert len([path for path in files(store) if path.startswith(("jobs/recent/records", "jobs/running/records"))]) == 4
    assert [path for path in files(store) if path.startswith("jobs/old")] == [f"jobs/old/traces/{RECORDING}/rank0.json"]


def test_the_oldest_traces_go_until_the_others_fit(store: Store) -> None:
    assert removed(store, "--traces", "1.5kB") == [
        ("traces", f"old/{RECORDING}"),
        ("traces", f"recent/{RECORDING}"),
    ]


def test_a_job_that_is_held_stays_with_its_traces_until_it_is_released(store: Store) -> None:
    def hold(*options: str) -> Result:
        return CliRunner().invoke(app, ["store", "hold", "old", "--store", store.url, *options])

    assert hold("--reason", "baseline").exit_code == 0
    assert removed(store, "--records", "30d", "--traces", "0") == [
        ("traces", f"recent/{RECORDING}"),
        ("traces", f"running/{RECORDING}"),
    ]
    assert hold("--release").exit_code == 0
    assert removed(store, "--records", "30d") == [("records", "old")]


def test_a_job_that_is_not_there_cannot_be_held_and_nothing_is_removed_unasked(store: Store) -> None:
    missing = CliRunner().invoke(app, ["store", "hold", "missing", "--store", store.url])
    nothing = CliRunner().invoke(app, ["store", "prune", "--store", store.url])

    assert missing.exit_code != 0 and nothing.exit_code != 0


def test_a_link_that_somebody_puts_into_a_directory_leads_no_removal_elsewhere(store: Store, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "precious.jsonl.gz").write_bytes(b"data")
    old = next(one for one in retention.old_records(store, before=NOW - 30 * DAY))
    folder = Path(old.paths[0]).parent
    (outside / Path(old.paths[0]).name).write_bytes(b"data")
    folder.rename(tmp_path / "moved")
    folder.symlink_to(outside)

    with pytest.raises(Exception, match="link"):
        retention.remove(store, [old])

    assert len(list(outside.iterdir())) == 2


class Died(BaseException):
    """As if the process were killed."""


def test_killed_after_any_removal_the_next_run_removes_the_rest_and_until_then_the_owner_keeps_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = NOW - 100 * DAY
    store.claim("old", Owner(1000))
    store.write_report("old", "watch", b"{}")
    profile_requests.write_request(store, profile_requests.new_request("old", 5, now=old, asked_by="somebody"))
    for path in files(store):
        if path.startswith("jobs/old/"):
            os.utime(f"{store.root}/{path}", (old, old))
    count = sum(path.startswith("jobs/old/") and "/traces/" not in path for path in files(store))
    assert count == 5
    real = store.files.rm_file
    for left in range(count - 1, 0, -1):

        def die_after_one(path: str) -> None:
            real(path)
            raise Died

        with monkeypatch.context() as patch, pytest.raises(Died):
            patch.setattr(store.files, "rm_file", die_after_one)
            retention.remove(store, retention.old_records(store, before=NOW - 30 * DAY))
        kept = [path for path in files(store) if path.startswith("jobs/old/") and "/traces/" not in path]
        assert len(kept) == left and "jobs/old/owner.json" in kept
    retention.remove(store, retention.old_records(store, before=NOW - 30 * DAY))
    assert [path for path in files(store) if path.startswith("jobs/old/")] == [f"jobs/old/traces/{RECORDING}/rank0.json"]


def test_of_a_job_that_is_removed_nothing_is_listed_any_more(store: Store) -> None:
    removed(store, "--records", "30d", "--traces", "2KB")

    assert store.jobs() == ["recent", "running"]


def test_to_hold_a_job_is_no_record_of_it_and_a_hold_is_said_with_its_reason(store: Store) -> None:
    before = store.job_times()
    retention.hold(store, "old", "the baseline", NOW)

    done = prune(store, "--records", "30d", "--dry-run")

    assert store.job_times() == before
    assert "job old is held: the baseline" in done.stderr
    (line,) = [
        line
        for line in CliRunner().invoke(app, ["store", "ls", "--store", store.url]).stdout.splitlines()
        if line.startswith("old")
    ]
    assert line.rstrip().endswith("held: the baseline")
    assert retention.hold_of(store, "recent") is None


def test_a_store_that_is_not_there_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    for command in (("compact",), ("prune", "--records", "1d")):
        done = CliRunner().invoke(app, ["store", *command, "--store", str(tmp_path / "missing")])
        assert done.exit_code != 0


def test_one_job_that_cannot_be_compacted_does_not_keep_the_others_from_it(store: Store) -> None:
    broken = Path(store.root) / "jobs" / "old" / "compacted" / "date=2026-01-01" / "1_a.json.gz"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no list")

    done = CliRunner().invoke(app, ["store", "compact", "--at-rest", "1d", "--store", store.url])

    assert done.exit_code != 0 and "recent" in done.stdout
