"""The agent with real segments and a real store, on a clock of its own: what goes in comes out once, and nothing stays behind."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path

import msgspec
import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, assert_once, pass_seconds, stored, value
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage import node_status, spool
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def processes(tmp_path: Path, clock: FakeClock, count: int = 2, **changes: object) -> list[Process]:
    made = [Process(tmp_path / "spool" / "run", rank=rank, world_size=count, **changes) for rank in range(count)]  # type: ignore[arg-type]
    for process in made:
        process.clock = clock
        process.start(pid=os.getpid())
    return made


def restarted(agent: Agent, tmp_path: Path, clock: FakeClock) -> Agent:
    """Return another agent after the first was killed: its files were closed by the kernel, nothing else was done."""
    agent.follower.close()
    agent.journal.close()
    return agent_of(tmp_path, clock=clock)


def test_every_record_is_in_the_store_once_and_the_spool_is_empty_after(tmp_path: Path, clock: FakeClock) -> None:
    agent, ranks = agent_of(tmp_path, clock=clock), processes(tmp_path, clock)
    for _ in range(23):
        for rank in ranks:
            rank.step(forward=0.5)
        pass_seconds(agent, clock, 1)
    for rank in ranks:
        rank.end()
    pass_seconds(agent, clock, 4)

    assert_once(tmp_path / "store", ranks)
    assert value(agent, "tachoscope_steps_total", "job", "1") == 23
    assert list((tmp_path / "spool").iterdir()) == []
    assert agent.journal.load() == []


def test_records_wait_for_the_flush_and_are_counted_as_backlog_and_lag(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock, flush={"seconds": 10.0})
    (rank,) = processes(tmp_path, clock, 1)
    pass_seconds(agent, clock, 9)

    assert stored(tmp_path / "store") == {}
    assert value(agent, "tachoscope_agent_lag_seconds") == 8.0
    assert value(agent, "tachoscope_agent_backlog_bytes") > 0
    pass_seconds(agent, clock, 3)
    assert_once(tmp_path / "store", [rank])
    pass_seconds(agent, clock, 2)  # until the agent's own record of the job has gone, which is younger
    assert value(agent, "tachoscope_agent_backlog_bytes") == 0


def test_much_that_waits_goes_before_its_time(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock, flush={"seconds": 1000.0, "bytes": 1 << 16})
    (rank,) = processes(tmp_path, clock, 1)
    while rank.spool._size < 1 << 16:
        rank.step()
    pass_seconds(agent, clock, 1)

    assert_once(tmp_path / "store", [rank])


def test_an_agent_that_is_killed_goes_on_where_it_was(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    for round_ in range(6):
        for _ in range(7):
            rank.step(forward=0.1)
        agent.tick()
        if round_ % 2:
            agent.ship()
        agent = restarted(agent, tmp_path, clock)
    rank.end()
    pass_seconds(agent, clock, 4)

    assert_once(tmp_path / "store", [rank])
    assert value(agent, "tachoscope_steps_total", "job", "0") == 42
    assert value(agent, "tachoscope_time_seconds_total", "job", "0", "compute") == pytest.approx(4.2)


def test_an_agent_killed_between_writing_to_the_store_and_noting_it_writes_the_same_object_again(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    rank.step()
    agent.tick()
    monkeypatch.setattr(agent.shipper, "_note", lambda *_: None)
    agent.ship()
    before = {path.name for path in (tmp_path / "store").rglob("*.gz")}
    rank.step()

    agent = restarted(agent, tmp_path, clock)
    pass_seconds(agent, clock, 3)

    assert before <= {path.name for path in (tmp_path / "store").rglob("*.gz")}
    assert_once(tmp_path / "store", [rank])


def test_a_store_is_read_only_for_the_first_range_of_a_segment_that_an_agent_ships(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    read: list[str] = []
    content = Store._content
    monkeypatch.setattr(Store, "_content", lambda store, path: read.append(path) or content(store, path))
    for _ in range(3):
        rank.step()
        pass_seconds(agent, clock, 2)
    assert sum(rank.writer in path for path in read) == 1

    agent = restarted(agent, tmp_path, clock)
    rank.step()
    pass_seconds(agent, clock, 2)

    assert sum(rank.writer in path for path in read) == 2
    assert_once(tmp_path / "store", [rank])


def test_counters_never_go_back_over_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    shown = 0.0
    for _ in range(10):
        rank.step(forward=0.25)
        agent.tick()
        now = value(agent, "tachoscope_time_seconds_total", "job", "0", "compute")
        assert now > shown
        shown = now
        agent = restarted(agent, tmp_path, clock)


def test_a_store_that_is_away_costs_nothing_but_time(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "store").write_text("in the way")
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    for _ in range(300):
        rank.step()
        pass_seconds(agent, clock, 1)

    assert 5 <= value(agent, "tachoscope_agent_errors_total", "store") <= 20  # not one try a second
    assert value(agent, "tachoscope_agent_lag_seconds") == pytest.approx(299, abs=2)
    assert value(agent, "tachoscope_steps_total", "job", "0") == 300
    (tmp_path / "store").unlink()
    pass_seconds(agent, clock, 70)
    assert_once(tmp_path / "store", [rank])
    assert agent.shipper.failing == ""


def test_a_spool_that_is_removed_and_made_again_loses_nothing_that_was_written(tmp_path: Path, clock: FakeClock) -> None:
    agent, ranks = agent_of(tmp_path, clock=clock), processes(tmp_path, clock)
    for rank in ranks:
        rank.step()
    agent.tick()
    for rank in ranks:
        rank.step()  # read by nobody yet
    shutil.rmtree(tmp_path / "spool")
    for rank in ranks:
        rank.spool._look_at = 0.0  # the second after which a writer looks for its file is over
        rank.step()
    pass_seconds(agent, clock, 3)
    for rank in ranks:
        rank.end()
    pass_seconds(agent, clock, 4)

    assert_once(tmp_path / "store", ranks)
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_clock_that_jumps_by_an_hour_changes_neither_lag_nor_ages(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    for jump in (0.0, 3600.0, -3600.0):
        rank.unix_clock = lambda jump=jump: 1.8e9 + jump  # type: ignore[misc]
        rank.step()
        pass_seconds(agent, clock, 2)
        assert value(agent, "tachoscope_heartbeat_age_seconds", "job", "0") == 2.0
        assert value(agent, "tachoscope_agent_lag_seconds") <= 1.0
    rank.end()
    pass_seconds(agent, clock, 4)

    assert_once(tmp_path / "store", [rank])


def test_records_of_another_version_are_shipped_verbatim_and_counted(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    newer = json.loads(records.encode(records.Heartbeat(**rank.envelope(), step=1)))
    lines = [
        newer | {"a_new_field": [1, 2]},
        newer | {"kind": "SomethingNew", "seq": newer["seq"] + 1},
        newer | {"step": "of another type", "seq": newer["seq"] + 2},
    ]
    for line in lines:
        rank.spool.append(json.dumps(line).encode() + b"\n")
    pass_seconds(agent, clock, 3)

    store = Store(str(tmp_path / "store"))
    text = b"".join(store.read(segment) for segment in store.segments("job"))
    assert [json.loads(line) for line in text.splitlines()[1:]] == lines
    assert value(agent, "tachoscope_agent_rejected_total", "unknown_kind") == 1
    assert value(agent, "tachoscope_agent_rejected_total", "malformed") == 1


def test_series_of_an_ended_job_disappear_after_a_while_and_those_of_a_running_one_stay(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock, retention_seconds=60.0)
    (ended,) = processes(tmp_path, clock, 1)
    running = Process(tmp_path / "spool" / "other", job="other")
    running.clock = clock
    running.start()
    ended.end()
    pass_seconds(agent, clock, 50)
    assert set(agent.live.jobs) == {"job", "other"}
    pass_seconds(agent, clock, 20)

    assert set(agent.live.jobs) == {"other"}


def test_what_a_dead_run_left_behind_is_shipped_but_is_no_news(tmp_path: Path, clock: FakeClock) -> None:
    ranks = processes(tmp_path, clock)
    for rank in ranks:
        rank.step()
        rank.end()
    for path in spool.segments(tmp_path / "spool"):
        os.utime(path, (1e9, 1e9))
    agent = agent_of(tmp_path, clock=clock)
    pass_seconds(agent, clock, 5)

    assert_once(tmp_path / "store", ranks)
    assert agent.live.jobs == {}


def test_all_that_a_live_process_wrote_while_no_agent_was_there_is_counted(tmp_path: Path, clock: FakeClock) -> None:
    rank = Process(tmp_path / "spool" / "run", segment_bytes=1000)
    rank.clock = clock
    rank.start()
    for _ in range(20):
        clock.now += 1.0
        rank.step()
    paths = list(spool.segments(tmp_path / "spool"))
    for path in paths:
        os.utime(path, (1e9, 1e9))  # longer ago than a dead run's last words
    agent = agent_of(tmp_path, clock=clock)
    pass_seconds(agent, clock, 5)

    assert len(paths) > 3
    assert value(agent, "tachoscope_steps_total", "job", "0") == 20
    rank.end()


def test_a_run_that_ships_for_itself_is_watched_and_not_shipped(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    lock = spool.try_lock(tmp_path / "spool" / "run" / spool.SHIPPER_LOCK)
    assert lock is not None
    rank.step()
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_steps_total", "job", "0") == 1
    assert stored(tmp_path / "store") == {}
    os.close(lock)
    rank.end()
    pass_seconds(agent, clock, 4)
    assert_once(tmp_path / "store", [rank])


def test_a_killed_process_is_a_failed_worker_and_its_cut_line_is_counted(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    rank.step()
    os.write(rank.spool._descriptor, b'{"kind":"StepDo')
    rank.spool.close()
    pass_seconds(agent, clock, 4)

    assert value(agent, "tachoscope_worker_failures_total", "job", "node-1") == 1
    assert value(agent, "tachoscope_agent_rejected_total", "cut") == 1
    assert_once(tmp_path / "store", [rank])


def test_a_journal_that_is_garbage_is_set_aside_and_records_go_again(tmp_path: Path, clock: FakeClock) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)
    rank.step()
    pass_seconds(agent, clock, 2)
    agent.follower.close()
    agent.journal.close()
    for name in ("journal.sqlite-wal", "journal.sqlite-shm"):
        (tmp_path / "state" / name).unlink(missing_ok=True)
    (tmp_path / "state" / "journal.sqlite").write_bytes(b"garbage" * 1000)
    agent = agent_of(tmp_path, clock=clock)
    pass_seconds(agent, clock, 3)

    assert set(stored(tmp_path / "store")) == {(rank.writer, seq) for seq in range(rank.seq)}
    assert list((tmp_path / "state").glob("journal.sqlite.broken-*"))


def test_a_state_that_cannot_be_written_stops_nothing(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, (rank,) = agent_of(tmp_path, clock=clock), processes(tmp_path, clock, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    rank.step()
    pass_seconds(agent, clock, 3)
    assert value(agent, "tachoscope_agent_errors_total", "state") > 0
    assert value(agent, "tachoscope_steps_total", "job", "0") == 1
    monkeypatch.undo()
    pass_seconds(agent, clock, 70)
    assert_once(tmp_path / "store", [rank])


def test_ranks_are_told_with_their_time_by_state(tmp_path: Path, clock: FakeClock) -> None:
    agent, ranks = agent_of(tmp_path, clock=clock), processes(tmp_path, clock)
    for rank in ranks:
        rank.step(data_wait=0.75, forward=0.25)
    pass_seconds(agent, clock, 1)

    first, second = agent.ranks.page()
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["seconds"] == {"data_wait": 0.75, "compute": 0.25}
    assert msgspec.json.encode(first)
    assert agent.ranks.pids() == {("job", "0"): os.getpid(), ("job", "1"): os.getpid()}


def test_a_job_name_that_would_leave_the_store_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    agent = agent_of(tmp_path, clock=clock)
    evil = Process(tmp_path / "spool" / "run", job="../../evil")
    evil.start()
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_agent_rejected_total", "name") == 1
    assert not list(tmp_path.rglob("evil*"))


def test_a_link_in_the_spool_is_not_followed(tmp_path: Path, clock: FakeClock) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    outside = Process(secret)
    outside.start()
    agent = agent_of(tmp_path, clock=clock)
    (tmp_path / "spool" / "run").mkdir(parents=True)
    (tmp_path / "spool" / "linked").symlink_to(secret)
    (tmp_path / "spool" / "run" / spool.segment_name(str(uuid.uuid4()), 0)).symlink_to(next(spool.segments(secret)))
    pass_seconds(agent, clock, 3)

    assert agent.live.records == 0
    assert value(agent, "tachoscope_agent_rejected_total", "no_file") >= 1


def test_a_state_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(TachoscopeError, match="could not open the journal .*state"):
        agent_of(tmp_path)


def test_the_status_of_the_node_is_written_every_thirty_seconds_while_it_has_jobs(tmp_path: Path, clock: FakeClock) -> None:
    agent, store = agent_of(tmp_path, clock=clock, flush={"seconds": 300.0}), Store(str(tmp_path / "store"))

    def said() -> list[tuple[str, list[int]]]:
        (node,) = node_status.read_all(store, since=0.0, owner_of=lambda _: None).nodes
        return [(job.job, [rank.step for rank in job.ranks]) for job in node.jobs]

    pass_seconds(agent, clock, 1)
    assert said() == [], "what an agent before this one said is replaced"
    (status,) = (tmp_path / "store" / "nodes").iterdir()
    written = status.stat().st_ino  # each is another file
    pass_seconds(agent, clock, 100)
    assert status.stat().st_ino == written, "without jobs there is nothing new to say"

    ranks = processes(tmp_path, clock)
    for rank in ranks:
        rank.step(forward=0.5)
    pass_seconds(agent, clock, 31)
    assert said() == [("job", [1, 1])]
    assert stored(store) == {}, "its records come later"
    for rank in ranks:
        rank.step(forward=0.5)
    pass_seconds(agent, clock, 31)
    assert said() == [("job", [2, 2])]
