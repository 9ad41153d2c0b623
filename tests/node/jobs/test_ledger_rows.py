"""Ledger rows: what an agent writes of each 10 s adds up to its counters, whatever is killed, away or repeated in between."""

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from making import envelope
from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.records import records
from tachoscope_core.storage import ledger_rows
from tachoscope_core.storage.ledger_rows import Row, in_rows, merged, read_all, seconds_of
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs import ledger_windows
from tachoscope_node.jobs.registry import JobRegistry

UNIX = 1.8e9


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def unix(clock: FakeClock) -> Callable[[], float]:
    return lambda: UNIX + clock.now


def agent_in(folder: Path, clock: FakeClock) -> Agent:
    return agent_of(folder, clock=clock, unix_clock=unix(clock))


def killed_and_restarted(agent: Agent, folder: Path, clock: FakeClock) -> Agent:
    agent.follower.close()
    agent.journal.close()
    return agent_in(folder, clock)


def rank_of(folder: Path, clock: FakeClock, rank: int, attempt: int = 0) -> Process:
    process = Process(folder / "spool" / "run", rank=rank, world_size=2, attempt=attempt)
    process.clock, process.unix_clock = clock, unix(clock)
    process.start(pid=os.getpid())
    return process


def counters(agent: Agent, rank: int) -> dict[str, float]:
    return {state: value(agent, "tachoscope_time_seconds_total", "job", str(rank), state) for state in TRAINING_STATES}


def assert_rows_are_counters(agent: Agent, folder: Path, clock: FakeClock) -> None:
    """The rows say what the counters do; the agent goes on for as long as rows may wait."""
    pass_seconds(agent, clock, 3)
    shown = {rank: (counters(agent, rank), value(agent, "tachoscope_steps_total", "job", str(rank))) for rank in (0, 1)}
    pass_seconds(agent, clock, 330)
    objects = list(read_all(Store(str(folder / "store")), "job"))
    rows = merged(objects)
    assert rows == merged([*reversed(objects), *objects])
    for rank in (0, 1):
        own = [row for row in rows.values() if row.rank == rank]
        for state, seconds in shown[rank][0].items():
            assert seconds_of(own).get(state, 0.0) == pytest.approx(seconds, abs=0.051)
        assert sum(row.steps for row in own) == shown[rank][1]


def test_rows_add_up_to_the_counters_over_restarts_of_the_agent_and_a_store_that_is_away(tmp_path: Path, clock: FakeClock) -> None:
    chance = random.Random(7)
    agent, ranks = agent_in(tmp_path, clock), [rank_of(tmp_path, clock, rank) for rank in (0, 1)]
    for second in range(300):
        clock.now += 1.0
        for rank in ranks:
            rank.step(
                forward=0.3 * chance.random(),
                data_wait=0.2 * chance.random(),
                backward=0.4,
                checkpoint=0.03 * (second % 50 == 0),
                evaluation=5.0 * (second == 20),
            )
        agent.tick()
        if second == 150:  # the ranks are started again as another attempt, in the middle of a window
            for rank in ranks:
                rank.end("failed")
            ranks = [rank_of(tmp_path, clock, rank, attempt=1) for rank in (0, 1)]
        if not 60 <= second < 180:
            agent.ship()
        if chance.random() < 0.1:
            agent = killed_and_restarted(agent, tmp_path, clock)
    for rank in ranks:
        rank.end()

    assert_rows_are_counters(agent, tmp_path, clock)
    rows = merged(read_all(Store(str(tmp_path / "store")), "job")).values()
    steps = Counter({(row.rank, row.attempt): 0 for row in rows})
    for row in rows:
        steps[row.rank, row.attempt] += row.steps
    assert steps == {(0, 0): 151, (1, 0): 151, (0, 1): 149, (1, 1): 149}
    slowest = sorted(row.slowest_ms for row in rows if row.steps)
    assert slowest[0] > 400 and slowest[-3] < 1000 and slowest[-2] > 5000  # one step of each rank
    assert len({row.window for row in rows if row.steps}) >= 30


def test_an_agent_that_is_stopped_writes_the_rows_of_the_window_that_is_open(tmp_path: Path, clock: FakeClock) -> None:
    agent, ranks = agent_in(tmp_path, clock), [rank_of(tmp_path, clock, rank) for rank in (0, 1)]
    for rank in ranks:
        rank.step(forward=0.5)
    pass_seconds(agent, clock, 2)
    assert agent.finish(clock.now + 10.0)

    rows = merged(read_all(Store(str(tmp_path / "store")), "job")).values()
    assert seconds_of(rows)["compute"] == pytest.approx(1.0)
    agent.close()
    again = agent_in(tmp_path, clock)
    for rank in ranks:
        rank.step(forward=0.7)
        rank.end()
    assert_rows_are_counters(again, tmp_path, clock)


def test_rows_of_a_window_that_is_open_wait_for_its_end_when_an_attempt_begins_in_it() -> None:
    live = JobRegistry(Limits())
    for attempt, writer in ((0, "a"), (1, "b"), (2, "c")):
        live.open_window(UNIX + attempt)
        who = envelope(0, seq=0, writer=writer, attempt=attempt, monotonic_ns=round((1000.0 + attempt) * 1e9))
        start = records.encode(records.JobStarted(**who, world_size=1, pid=1))
        step = records.StepDone(**who | {"seq": 1}, step=1, wall_seconds=0.5, phase_seconds={"forward": 0.5})
        live.apply("run", writer, who["job"], [start, records.encode(step)], 1000.0 + attempt)
    (job,) = live.jobs.values()
    assert ledger_windows.unshipped_rows(job) == []

    live.open_window(UNIX + 10.0)
    assert sorted((row.attempt, row.window, row.steps) for row in ledger_windows.unshipped_rows(job)) == [
        (attempt, int(UNIX) // 10, 1) for attempt in range(3)
    ]


def test_rows_that_wait_too_long_are_put_together_and_lose_no_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_windows, "MOST_ROWS", 20)
    live = JobRegistry(Limits())
    live.open_window(UNIX)
    for second in range(400):
        live.open_window(UNIX + second)
        at = 1000.0 + second
        kind = records.JobStarted(**envelope(0, seq=0, monotonic_ns=round(at * 1e9)), world_size=1, pid=1)
        step = records.StepDone(
            **envelope(0, seq=second, monotonic_ns=round(at * 1e9)), step=second, wall_seconds=1.0, phase_seconds={"forward": 1.0}
        )
        line = records.encode(step if second else kind)
        live.apply("run", kind.writer, kind.job, [line], at)
    live.settle()
    live.open_window(UNIX + 500.0)
    (job,) = live.jobs.values()

    assert len(job.rows.closed) <= 20
    assert seconds_of(job.rows.closed) == pytest.approx({state: value for state, value in job.state_seconds.items() if value})
    assert sum(row.steps for row in job.rows.closed) == 399


def test_rows_take_a_small_part_of_what_records_take(tmp_path: Path, clock: FakeClock) -> None:
    chance = random.Random(3)
    agent, ranks = agent_in(tmp_path, clock), [rank_of(tmp_path, clock, rank) for rank in (0, 1)]
    for _ in range(200):
        for part in range(10):
            clock.now += 0.1
            for rank in ranks:
                rank.step(forward=0.04 + 0.01 * chance.random(), data_wait=0.01 * chance.random(), backward=0.04, optimizer=0.002)
            if part == 9:
                agent.tick()
                agent.ship()
    for rank in ranks:
        rank.end()
    pass_seconds(agent, clock, 330)

    store = Store(str(tmp_path / "store"))
    unpacked = sum(len(store.read(segment)) for segment in store.segments("job"))
    rows = sum(int(entry["size"]) for entry in store.find("jobs/job/ledger").values())
    assert rows < unpacked / 1000


def test_columns_that_do_not_fit_together_are_left_out() -> None:
    sound = ledger_rows.in_columns([Row(0, 0, 5, 1, 10, {"compute": 9}), Row(0, 0, 4, 2, 11, {"data_wait": 1})])
    broken = ledger_rows.RankRows(1, 0, [1, 2], [1], [1, 2], {})

    assert list(in_rows([*sound, broken])) == [Row(0, 0, 4, 2, 11, {"data_wait": 1}), Row(0, 0, 5, 1, 10, {"compute": 9})]


def test_what_a_version_without_rows_counted_is_in_the_first_row(tmp_path: Path, clock: FakeClock) -> None:
    agent, ranks = agent_in(tmp_path, clock), [rank_of(tmp_path, clock, rank) for rank in (0, 1)]
    for _ in range(20):
        for rank in ranks:
            rank.step(forward=0.5)
        pass_seconds(agent, clock, 1)
    agent.close()
    state = tmp_path / "state" / "live.json"
    saved = json.loads(state.read_text())
    for job in saved["jobs"].values():
        del job["rows"], job["began"], job["events"]
        for known in job["ranks"].values():
            del known["in_rows"], known["steps_in_rows"], known["slowest"]
    state.write_text(json.dumps(saved))

    again = agent_in(tmp_path, clock)
    for rank in ranks:
        rank.end()
    assert_rows_are_counters(again, tmp_path, clock)
