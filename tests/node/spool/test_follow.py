"""A hostile spool: the agent goes on, its caps hold, a counter and one line of the log tell."""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, assert_once, pass_seconds, value
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from tachoscope_node.spool import follower
from tachoscope_node.spool.segment import CHUNK_BYTES, Segment
from tachoscope_service.metrics.prometheus_text import Exposition


def honest(tmp_path: Path, clock: FakeClock) -> Process:
    process = Process(tmp_path / "spool" / "honest", job="honest")
    process.clock = clock
    process.start()
    return process


def mutated(line: bytes, chance: random.Random) -> bytes:
    data = bytearray(line)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randint(1, 20)]
            case 2:
                data[place:place] = chance.randbytes(chance.randint(1, 20))
            case _:
                data[place:place] = chance.choice([b"1e999", b"-1", b'"', b"[[[[", b"\\ud800", b"null", b"9" * 400])
        if not data:
            break
    return bytes(data).replace(b"\n", b"") + b"\n"


def test_thousands_of_mutated_lines_do_no_harm(tmp_path: Path) -> None:
    clock, chance = FakeClock(), random.Random(23)
    agent = agent_of(tmp_path, clock=clock)
    victim = honest(tmp_path, clock)
    sound = [
        records.encode(records.StepDone(**victim.envelope(), step=1, wall_seconds=0.5, phase_seconds={"forward": 0.5})),
        records.encode(records.Heartbeat(**victim.envelope(), step=1, signals={"read_bytes": 1.0})),
        records.encode(records.CheckpointSaved(**victim.envelope(), step=1, blocking_seconds=1.0)),
        records.encode(records.JobStarted(**victim.envelope(), world_size=2, pid=1)),
    ]
    victim.seq = 1
    directory = tmp_path / "spool" / "hostile"
    directory.mkdir()
    lines = [sound[0], *(mutated(chance.choice(sound), chance) for _ in range(20_000))]
    (directory / spool.segment_name(str(uuid.uuid4()), 0)).write_bytes(b"".join(lines))
    victim.step(forward=0.25)
    pass_seconds(agent, clock, 20)

    assert value(agent, "tachoscope_agent_records_total") + sum(agent.live.rejected.values()) >= 20_000
    assert value(agent, "tachoscope_steps_total", "honest", "0") == 1
    assert value(agent, "tachoscope_time_seconds_total", "honest", "0", "compute") == 0.25
    page = Exposition(agent.families, lambda: agent.ticks).page()
    assert page.count(b"\n") < 2000
    assert b"NaN" not in page


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_hundreds_of_job_names_stay_below_the_budget_of_series(tmp_path: Path, logged: list[str]) -> None:
    clock = FakeClock()
    agent, open_before = agent_of(tmp_path, clock=clock, limits={"jobs": 32, "ranks": 64, "segments": 64}), open_files()
    victim = honest(tmp_path, clock)
    pass_seconds(agent, clock, 1)
    for number in range(600):
        forger = Process(tmp_path / "spool" / f"pod-{number % 6}", job=f"job-{number}", rank=number)
        forger.clock = clock
        forger.start()
        forger.spool.close()
    pass_seconds(agent, clock, 3)
    victim.step(forward=0.25)
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_steps_total", "honest", "0") == 1
    assert_once(tmp_path / "store", [victim], "honest")
    series = sum(len(family.points) for family in agent.families())
    assert series < 60 * 64 + 500
    assert value(agent, "tachoscope_agent_rejected_total", "over_limit") > 0
    assert sum("over_limit" in line for line in logged) == 1
    assert len(agent.follower.segments()) <= 6 * 64 + 1
    assert open_files() - open_before < 6 * 64 + 200


def test_a_line_longer_than_what_is_read_in_a_second_is_passed_over_and_told(tmp_path: Path, logged: list[str]) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, limits={"bytes_per_second": 16 << 20})
    victim = honest(tmp_path, clock)
    hostile = Process(tmp_path / "spool" / "hostile", job="hostile")
    hostile.clock = clock
    hostile.step(forward=0.1)
    path = next(spool.segments(tmp_path / "spool" / "hostile"))
    os.truncate(path, 1 << 26)  # a hole of zeros
    with path.open("ab") as file:
        file.write(b"\n")
        file.write(records.encode(records.StepDone(**hostile.envelope(), step=2, wall_seconds=0.1, phase_seconds={"forward": 0.1})))
    victim.step()
    pass_seconds(agent, clock, 40)

    assert value(agent, "tachoscope_agent_rejected_total", "oversized") == 1
    assert value(agent, "tachoscope_steps_total", "hostile", "0") == 2
    assert_once(tmp_path / "store", [victim], "honest")
    assert_once(tmp_path / "store", [hostile], "hostile")
    assert sum("oversized" in line for line in logged) == 1


def test_forged_hosts_make_neither_series_nor_places_in_the_store(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    forger = Process(tmp_path / "spool" / "forger", job="forger")
    forger.clock = clock
    for number in range(1000):
        failed = records.WorkerFailed(**forger.envelope(host=f"../../host-{number}"), reason="")
        forger.spool.append(records.encode(failed))
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_worker_failures_total", "forger", "node-1") == 1000
    assert {path.name for path in (tmp_path / "store").rglob("host=*")} == {"host=node-1"}
    assert_once(tmp_path / "store", [forger], "forger")


@pytest.mark.parametrize("forged", [{"time": 1e300}, {"time": -1e18}, {"attempt": -3}, {"attempt": 1 << 62}, {"job": "x" * 500}])
def test_a_forged_address_stops_nobody_from_being_shipped(tmp_path: Path, forged: dict[str, object]) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    forger = Process(tmp_path / "spool" / "forger")
    forger.spool.append(records.encode(records.WorkerFailed(**forger.envelope(**forged), reason="")))
    victim = honest(tmp_path, clock)
    pass_seconds(agent, clock, 3)

    assert_once(tmp_path / "store", [victim], "honest")
    assert (
        value(agent, "tachoscope_agent_rejected_total", "implausible") + value(agent, "tachoscope_agent_rejected_total", "name")
        == 1
    )


def test_numbers_without_bounds_do_not_stop_the_state_from_being_saved(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    for attempt in range(4):
        forger = Process(tmp_path / "spool" / "forger", job="forger", attempt=attempt)
        forger.clock = clock
        forger.write(records.JobStarted, world_size=2**62, pid=2**62, device="x" * 100_000)
        forger.write(records.Heartbeat, step=2**62, dropped_total=2**63 - 1)
        forger.end()
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_agent_errors_total", "state") == 0
    assert (tmp_path / "state" / "live.json").stat().st_size < 10_000


@pytest.mark.parametrize("name", ["sp ace", b"\xff\xfe".decode(errors="surrogateescape"), "semi;colon"])
def test_a_directory_whose_name_is_no_name_is_left_alone(tmp_path: Path, name: str) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    Process(tmp_path / "spool" / name).start()
    victim = honest(tmp_path, clock)
    pass_seconds(agent, clock, 2)

    assert_once(tmp_path / "store", [victim], "honest")
    assert value(agent, "tachoscope_agent_rejected_total", "name") >= 1


def test_empty_directories_take_no_place(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, limits={"directories": 8})
    for number in range(100):
        (tmp_path / "spool" / f"a-{number}").mkdir(parents=True)
    victims = [honest(tmp_path, clock) for _ in range(5)]
    pass_seconds(agent, clock, 20)

    assert_once(tmp_path / "store", victims, "honest")


def test_what_a_process_writes_in_the_moment_of_its_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    victim = honest(tmp_path, clock)
    pass_seconds(agent, clock, 3)
    asked = Segment.writer_lives

    def after_its_last_word(segment: Segment) -> bool:
        monkeypatch.setattr(Segment, "writer_lives", asked)
        victim.step()
        victim.end()
        return False

    monkeypatch.setattr(Segment, "writer_lives", after_its_last_word)
    pass_seconds(agent, clock, 5)

    assert_once(tmp_path / "store", [victim], "honest")


def test_a_directory_of_more_files_than_the_limit_is_worked_off_bit_by_bit(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, limits={"segments": 8})
    processes = [Process(tmp_path / "spool" / "run") for _ in range(50)]
    for one in processes:
        one.clock = clock
        one.start()
    pass_seconds(agent, clock, 3)
    assert len(agent.follower.segments()) == 8
    for one in processes:
        one.end()
    pass_seconds(agent, clock, 60)

    assert not (tmp_path / "spool" / "run").exists()
    assert value(agent, "tachoscope_agent_rejected_total", "segments") > 0


def test_one_directory_cannot_take_more_than_its_rate_and_the_others_are_read_all_the_same(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, limits={"bytes_per_second": 1 << 20})
    flood = Process(tmp_path / "spool" / "a-flood", job="flood")
    flood.clock = clock
    for _ in range(30_000):
        flood.step()
    victim = honest(tmp_path, clock)
    victim.step()
    clock.now += 1
    more = agent.tick()

    assert more
    assert value(agent, "tachoscope_agent_records_total") < 10_000
    assert value(agent, "tachoscope_steps_total", "honest", "0") == 1


def test_garbage_that_belongs_nowhere_is_removed_after_its_retention(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, spool_retention_seconds=100.0)
    path = tmp_path / "spool" / "run" / spool.segment_name(str(uuid.uuid4()), 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"garbage\n" * 23)
    pass_seconds(agent, clock, 50)
    assert path.exists()
    assert value(agent, "tachoscope_agent_rejected_total", "malformed") == 23
    pass_seconds(agent, clock, 100)

    assert not path.exists()


def test_the_directory_of_a_pod_outlives_its_records_and_goes_when_nothing_came_for_long(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock, spool_retention_seconds=100.0)
    directory = tmp_path / "spool" / f"team_trainer-0_{uuid.uuid4()}"
    directory.mkdir(parents=True)
    (directory / spool.POD_MARK).touch()
    for _ in range(2):  # the second process finds the directory as the first one did
        process = Process(directory)
        process.clock = clock
        process.start()
        process.end()
        pass_seconds(agent, clock, 60)
        assert [path.name for path in directory.glob("*.jsonl")] == []
        assert (directory / spool.POD_MARK).exists()
        assert_once(tmp_path / "store", [process])
        (tmp_path / "store").rename(tmp_path / f"store-{process.writer}")
    long_ago = time.time() - 1000
    os.utime(directory, (long_ago, long_ago))
    pass_seconds(agent, clock, 2)

    assert not directory.exists()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users can look into: pytest's own is closed to them, by each run of it that begins."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_directory_that_cannot_be_read_is_counted_and_the_others_are_followed(open_folder: Path) -> None:
    clock = FakeClock()
    agent = agent_of(open_folder, clock=clock)
    victim = honest(open_folder, clock)
    (open_folder / "spool" / "anothers").mkdir(mode=0o700)
    for path in open_folder.rglob("*"):
        os.chown(path, 65534 if "anothers" not in str(path) else 0, -1)
    victim.step()
    os.seteuid(65534)
    try:
        pass_seconds(agent, clock, 2)
    finally:
        os.seteuid(0)

    assert value(agent, "tachoscope_agent_unreadable_directories") == 1
    assert value(agent, "tachoscope_steps_total", "honest", "0") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
def test_where_not_all_can_be_read_at_once_each_user_comes_first_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_DIRECTORIES_AT_ONCE", 1)
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    for user in range(3):
        directory = tmp_path / "spool" / f"of-{user}"
        directory.mkdir(parents=True)
        (directory / spool.segment_name(str(uuid.uuid4()), 0)).write_bytes(b"{}\n" * (4 * CHUNK_BYTES))
        os.chown(directory, 1000 + user, -1)
    agent.follower.scan(clock.now)

    turns: Counter[str] = Counter()
    for _ in range(9):
        before = {one.path: one.bytes_read for one in agent.follower.segments()}
        agent.follower.read(clock.now, lambda *_: None, seconds=0.0)
        turns.update(one.path.parent.name for one in agent.follower.segments() if one.bytes_read > before[one.path])

    assert turns == {"of-0": 3, "of-1": 3, "of-2": 3}


def test_a_directory_replaced_by_a_link_leads_nowhere(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    victim = honest(tmp_path, clock)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory = tmp_path / "spool" / "honest"
    agent.follower.scan(clock.now)
    directory.rename(tmp_path / "moved")
    directory.symlink_to(elsewhere)
    agent.follower.take_locks()
    victim.end()
    pass_seconds(agent, clock, 4)

    assert list(elsewhere.iterdir()) == []
    assert_once(tmp_path / "store", [victim], "honest")


def test_a_segment_that_is_cut_short_is_counted_and_stops_nobody(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    victim = honest(tmp_path, clock)
    forger = Process(tmp_path / "spool" / "forger", job="forger")
    forger.clock = clock
    for _ in range(10):
        forger.step()
    agent.tick()
    os.truncate(next(spool.segments(tmp_path / "spool" / "forger")), 10)
    victim.step()
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_agent_errors_total", "spool") >= 1
    assert_once(tmp_path / "store", [victim], "honest")
