"""What an agent that was away makes of the time of its absence: only what was a hang is one, and no second counts twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_watch.hang import hang_of
from tachoscope_watch.live_jobs import NodeReader

UNIX = 1.8e9
HANG_SECONDS = 30.0
STEP_SECONDS = 1.0


class Node:
    """A node with one rank, whose steps take a second, and an agent that may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.began = self.clock.now
        self.agent = self._new_agent()
        self.rank = self.new_rank(0)

    @property
    def unix(self) -> Callable[[], float]:
        return lambda: UNIX + self.clock.now

    def _new_agent(self) -> Agent:
        return agent_of(self.folder, clock=self.clock, unix_clock=self.unix)

    def new_rank(self, attempt: int) -> Process:
        rank = Process(self.folder / "spool" / "run", attempt=attempt)
        rank.clock, rank.unix_clock = self.clock, self.unix
        rank.start()
        return rank

    def steps(self, count: int, *, watched: bool = True) -> None:
        for _ in range(count):
            self.clock.now += STEP_SECONDS
            self.rank.step(forward=STEP_SECONDS)
            if watched:
                self.agent.tick()
                self.agent.ship()

    def passes(self, seconds: int, *, watched: bool = True) -> None:
        if watched:
            pass_seconds(self.agent, self.clock, seconds)
        else:
            self.clock.now += seconds

    def rank_dies(self) -> None:
        self.rank.spool.close()
        for segment in (self.folder / "spool" / "run").glob("*.jsonl"):  # of another moment than what the next one writes
            os.utime(segment, (time.time() - 10.0,) * 2)

    def agent_is_killed(self) -> None:
        self.agent.follower.close()
        self.agent.journal.close()

    def agent_comes_back(self) -> None:
        self.agent = self._new_agent()
        pass_seconds(self.agent, self.clock, 5)

    def seconds(self) -> dict[str, float]:
        known = {state: value(self.agent, "tachoscope_time_seconds_total", "job", "0", state) for state in TRAINING_STATES}
        return {state: seconds for state, seconds in known.items() if seconds}

    def hangs_by_the_watch(self) -> bool:
        store = Store(str(self.folder / "store"))
        (job,) = NodeReader(store).live_jobs(0.0).values()
        return hang_of(job) is not None


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("TACHOSCOPE_HANG_SECONDS", str(HANG_SECONDS))
    return Node(tmp_path)


def test_a_job_that_goes_on_while_the_agent_is_away_does_not_hang(node: Node) -> None:
    node.steps(20)
    node.agent_is_killed()
    node.steps(100, watched=False)
    node.agent_comes_back()

    assert node.seconds() == pytest.approx({"compute": 120.0})


def test_a_job_does_not_hang_since_the_agent_was_held_up_between_reading_and_judging(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.steps(20)

    def held_up() -> None:
        node.clock.now += 2 * HANG_SECONDS

    with monkeypatch.context() as patched:
        patched.setattr(node.agent.live, "settle", held_up)
        node.agent.tick()

    assert node.seconds() == pytest.approx({"compute": 20.0})
    assert node.agent.live.jobs["job"].hangs == 0


def test_a_rank_that_dies_while_the_agent_is_away_does_not_hang_until_that_is_noticed(node: Node) -> None:
    node.steps(20)
    node.agent_is_killed()
    node.steps(10, watched=False)
    node.rank_dies()
    node.passes(100, watched=False)
    node.agent_comes_back()

    assert node.seconds() == pytest.approx({"compute": 30.0})
    assert node.agent.live.jobs["job"].worker_failures == 1


def test_the_watch_is_not_told_of_a_hang_of_a_rank_that_died_while_the_agent_was_away(node: Node) -> None:
    node.steps(20)
    node.agent_is_killed()
    node.rank_dies()
    node.passes(100, watched=False)
    node.agent = node._new_agent()
    for _ in range(5):
        node.passes(1)
        assert not node.hangs_by_the_watch()


def test_a_hang_that_lasts_over_the_absence_of_the_agent_counts_once_and_whole(node: Node) -> None:
    node.steps(20)
    node.passes(40)
    node.agent_is_killed()
    node.passes(60, watched=False)
    node.agent_comes_back()
    assert node.seconds() == pytest.approx({"compute": 20.0, "hung": 105.0 - STEP_SECONDS})
    assert node.agent.live.jobs["job"].hangs == 1

    node.clock.now += 1.0
    node.rank.step(forward=106.0)
    node.passes(1)
    assert node.seconds() == pytest.approx({"compute": 20.0 + STEP_SECONDS, "hung": 106.0 - STEP_SECONDS})
    node.passes(60)
    assert node.agent.live.jobs["job"].hangs == 2


def test_a_hang_that_a_launcher_told_of_counts_once_when_the_agent_takes_over_the_job(node: Node) -> None:
    launcher = Process(node.folder / "spool" / "run", rank=records.LAUNCHER_RANK)
    launcher.clock, launcher.unix_clock = node.clock, node.unix
    launcher.start()
    node.steps(20)
    node.passes(40)
    launcher.write(records.WorkerHung, since_time=node.unix() - 40.0, step=20)
    node.passes(1)
    assert node.agent.live.jobs["job"].hangs == 1
    launcher.spool.close()
    node.passes(3)
    node.rank.write(records.Heartbeat, step=20, phase="backward")  # it outlived its launcher
    node.passes(30)

    job = node.agent.live.jobs["job"]
    assert (job.held, job.hangs) == (True, 1)


@pytest.mark.parametrize("away", [False, True], ids=["seen by the agent", "while the agent is away"])
def test_no_second_counts_twice_where_a_hang_ends_in_a_restart(node: Node, *, away: bool) -> None:
    node.steps(20)
    node.passes(50)
    if away:
        node.agent_is_killed()
    node.rank_dies()
    node.passes(10, watched=not away)
    node.rank = node.new_rank(1)
    node.clock.now += 5.0
    node.steps(30, watched=not away)
    if away:
        node.agent_comes_back()
    seconds = node.seconds()

    assert seconds["hung"] == pytest.approx(50.0 - STEP_SECONDS, abs=1.0 + STEP_SECONDS)
    assert sum(seconds.values()) == pytest.approx(20.0 + 50.0 + 10.0 + 5.0 + 30.0)


def test_a_step_under_way_when_its_rank_died_is_lost_also_where_the_next_attempt_came_before_the_agent(node: Node) -> None:
    node.steps(20)
    node.agent_is_killed()
    node.passes(2, watched=False)
    node.rank.write(records.Heartbeat, step=20)
    node.rank_dies()
    node.passes(7, watched=False)
    node.rank = node.new_rank(1)
    node.clock.now += 3.0
    node.steps(25, watched=False)
    node.agent_comes_back()
    seconds = node.seconds()

    assert seconds["lost_work"] == pytest.approx(2.0 + 20 * STEP_SECONDS)  # that step, and those that are done again
    assert seconds["initialisation"] == pytest.approx(7.0 + 3.0)
    assert seconds["compute"] == pytest.approx(20.0 + 5.0)
    assert sum(seconds.values()) == pytest.approx(57.0)


def test_ranks_whose_files_a_run_shipped_and_removed_while_the_agent_was_away_neither_hang_nor_fail(node: Node) -> None:
    node.steps(20)
    node.agent_is_killed()
    node.steps(10, watched=False)
    node.rank.end()
    for segment in (node.folder / "spool" / "run").glob("*.jsonl"):
        segment.unlink()
    node.passes(100, watched=False)
    node.agent_comes_back()
    node.passes(60)

    assert node.seconds() == pytest.approx({"compute": 20.0})
    job = node.agent.live.jobs["job"]
    assert (job.worker_failures, job.running()) == (0, [])
