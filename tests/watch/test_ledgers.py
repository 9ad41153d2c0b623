"""Seconds by state of a job over all its nodes are those of its agents, whatever is late, repeated, missing or started anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.storage.ledger_rows import RankRows
from tachoscope_core.storage.store import Store
from tachoscope_node.agent import Agent
from tachoscope_watch.ledgers import RecentTime, movement, recent_time
from tachoscope_watch.live_jobs import NodeReader

UNIX = 1.8e9


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Fleet:
    """Two nodes with an agent each, and one store."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.folder, self.clock = folder, clock
        self.unix: Callable[[], float] = lambda: UNIX + clock.now
        self.agents = [self._agent(number) for number in (0, 1)]
        self.store = Store(str(folder / "store"))

    def _agent(self, number: int) -> Agent:
        places = {name: str(self.folder / f"{name}-{number}") for name in ("spool", "state")}
        store = str(self.folder / "store")
        return agent_of(self.folder, clock=self.clock, unix_clock=self.unix, node=f"node-{number}", store=store, **places)

    def restart(self, number: int) -> None:
        self.agents[number].follower.close()
        self.agents[number].journal.close()
        self.agents[number] = self._agent(number)

    def rank(self, rank: int, node: int, attempt: int = 0) -> Process:
        process = Process(self.folder / f"spool-{node}" / f"run-{attempt}", rank=rank, world_size=2, attempt=attempt)
        process.clock, process.unix_clock = self.clock, self.unix
        process.start()
        return process

    def train(self, ranks: list[Process], seconds: int, tell: tuple[int, ...] = (0, 1)) -> None:
        for _ in range(seconds):
            self.clock.now += 1.0
            for rank in ranks:
                rank.step(forward=0.5, data_wait=0.1, backward=0.4)
            for number, agent in enumerate(self.agents):
                agent.tick()
                if number in tell:
                    agent.ship()

    def metrics(self, *numbers: int) -> dict[str, float]:
        """Return what the agents' pages say of the job together."""
        pages = [self.agents[number] for number in numbers]
        return {
            state: sum(value(one, "tachoscope_job_time_seconds_total", "job", state) for one in pages) for state in TRAINING_STATES
        }

    def said(self, reader: NodeReader) -> dict[str, float]:
        found = reader.live_jobs(0.0)["job"].state_seconds  # of objects of any age
        return {state: found.get(state, 0.0) for state in TRAINING_STATES}


def near(seconds: dict[str, float]) -> object:
    return pytest.approx(seconds, abs=1e-6)


def test_the_watch_says_the_seconds_of_the_agents_over_their_restarts_and_however_often_it_looks(
    tmp_path: Path, clock: FakeClock
) -> None:
    fleet = Fleet(tmp_path, clock)
    reader = NodeReader(fleet.store)
    ranks = [fleet.rank(0, 0), fleet.rank(1, 1)]
    for turn in range(4):
        fleet.train(ranks, 35)
        for agent in fleet.agents:
            agent.ship(everything=True)
        assert fleet.said(reader) == near(fleet.metrics(0, 1))
        assert fleet.said(reader) == near(fleet.metrics(0, 1))
        fleet.restart(turn % 2)


def test_a_node_that_is_not_heard_counts_as_it_was_last_and_then_as_it_is(tmp_path: Path, clock: FakeClock) -> None:
    fleet = Fleet(tmp_path, clock)
    reader = NodeReader(fleet.store)
    ranks = [fleet.rank(0, 0), fleet.rank(1, 1)]
    fleet.train(ranks, 40)
    for agent in fleet.agents:
        agent.ship(everything=True)
    before = fleet.metrics(1)
    old = (Path(fleet.store.root) / "nodes" / "node-1.json.gz").read_bytes()
    fleet.train(ranks, 40, tell=(0,))
    fleet.agents[0].ship(everything=True)
    own = fleet.metrics(0)
    assert fleet.said(reader) == near({state: own[state] + before[state] for state in own})

    fleet.agents[1].ship(everything=True)
    assert fleet.said(reader) == near(fleet.metrics(0, 1))
    (Path(fleet.store.root) / "nodes" / "node-1.json.gz").write_bytes(old)  # an older word comes late
    assert fleet.said(reader) == near(fleet.metrics(0, 1))


def test_a_watch_that_was_started_anew_counts_the_nodes_that_a_job_left_by_their_rows(tmp_path: Path, clock: FakeClock) -> None:
    fleet = Fleet(tmp_path, clock)
    ranks = [fleet.rank(0, 0), fleet.rank(1, 1)]
    fleet.train(ranks, 60)
    for rank in ranks:
        rank.end("failed")
    pass_seconds(fleet.agents[0], clock, 1)
    ranks = [fleet.rank(0, 0, attempt=1), fleet.rank(1, 0, attempt=1)]  # both on the first node now
    fleet.train(ranks, 30)
    assert fleet.agents[1].finish(clock.now + 10.0)
    fleet.agents[0].ship(everything=True)
    both, running = fleet.metrics(0, 1), NodeReader(fleet.store)
    assert fleet.said(running) == near(both)

    (Path(fleet.store.root) / "nodes" / "node-1.json.gz").unlink()
    assert fleet.said(running) == near(both)
    assert fleet.said(NodeReader(fleet.store)) == near(both)


def test_rows_of_a_node_that_left_before_the_job_began_anew_do_not_count(tmp_path: Path, clock: FakeClock) -> None:
    fleet = Fleet(tmp_path, clock)
    first = fleet.rank(1, 1)
    fleet.train([first], 60)
    first.end()
    assert fleet.agents[1].finish(clock.now + 10.0)
    (Path(fleet.store.root) / "nodes" / "node-1.json.gz").unlink()
    clock.now += 3600.0
    fleet.train([fleet.rank(0, 0, attempt=1)], 30)
    fleet.agents[0].ship(everything=True)

    assert fleet.said(NodeReader(fleet.store)) == near(fleet.metrics(0))


def minute(rank: int, *, steps: int = 5, **tenths: int) -> RankRows:
    """Return ten windows of a rank; the older four must not count."""
    old = {state: [99] * 4 for state in tenths}
    return RankRows(
        rank, 0, list(range(10)), [steps] * 10, [2000] * 10, {state: [*old[state], *[value] * 6] for state, value in tenths.items()}
    )


def recent(*rows: RankRows) -> RecentTime:
    found = recent_time(rows, 0)
    assert found is not None
    return found


def test_the_last_minute_is_told_of_each_rank_and_of_all() -> None:
    found = recent(minute(0, compute=80, data_wait=20), minute(1, compute=100))

    assert found.shares == {"compute": 0.9, "data_wait": 0.1}
    assert found.of_ranks == {0: {"compute": 0.8, "data_wait": 0.2}, 1: {"compute": 1.0}}
    assert found.step_seconds == pytest.approx(2.0)
    assert recent_time([minute(0, steps=0, compute=100)], 0) is None
    assert recent_time([minute(0, compute=100)], 1) is None


def test_what_moves_is_a_share_a_rank_or_the_length_of_a_step() -> None:
    before = recent(*(minute(rank, compute=80, data_wait=20) for rank in range(16)))

    def now(**last: int) -> RecentTime:
        return recent(*(minute(rank, compute=80, data_wait=20) for rank in range(15)), minute(15, **last))

    assert movement(before, before) == 0.0
    assert movement(before, now(compute=79, data_wait=21)) < 1.0
    assert 1.0 < movement(before, now(compute=65, data_wait=35)) < 2.0  # one rank
    assert movement(before, recent(*(minute(rank, compute=77, data_wait=23) for rank in range(16)))) > 1.0  # the share of all
    assert movement(before, recent(*(minute(rank, compute=90, data_wait=22) for rank in range(16)))) > 1.0  # longer steps
    assert movement(before, recent(*(minute(rank, compute=80, data_wait=20) for rank in range(15)))) > 1.0
