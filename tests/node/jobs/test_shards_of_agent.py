"""What the node agent does about data shards that fail, together with all else that it does."""

from __future__ import annotations

from pathlib import Path

from spool_writing import Process
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.shard_quarantine import from_store
from tachoscope_core.storage.store import Store
from tachoscope_node.jobs.shard_quarantine import SYNC_SECONDS


def test_the_agent_lists_a_shard_records_it_counts_it_and_stores_it(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    ranks = [Process(tmp_path / "spool" / "run", rank=rank, world_size=2) for rank in (0, 1)]
    workers = [Process(tmp_path / "spool" / "run", rank=rank) for rank in (0, 1)]
    for process in (*ranks, *workers):
        process.clock = clock
    for rank in ranks:
        rank.start()
        rank.step()
    for worker in workers:
        worker.write(records.ShardRead, shard="good", bytes=1, seconds=0.1)
        worker.write(records.ShardFailed, shard="bad", error="ReadError")
        worker.spool.close()
    pass_seconds(agent, clock, 3)

    assert value(agent, "tachoscope_shards_quarantined", "job") == 1.0
    assert value(agent, "tachoscope_shard_failures_total", "job", "bad") == 2.0
    assert {rank["state"] for rank in agent.ranks.page()} == {"running"}, "a worker that is gone is not its rank"
    assert shard_quarantine.listed_names(from_store(Store(str(tmp_path / "store")), "job")) == {"bad"}
    for rank in ranks:
        rank.end()
    pass_seconds(agent, clock, 3)
    agent.close()
    store = Store(str(tmp_path / "store"))
    kinds = [records.decode(line) for segment in store.segments("job") for line in store.read(segment).splitlines()]
    (record,) = [one for one in kinds if isinstance(one, records.ShardQuarantined)]
    assert (record.shard, record.ranks, record.rank) == ("bad", [0, 1], records.LAUNCHER_RANK)


def test_what_the_agent_lists_is_in_the_store_when_the_run_is_over(tmp_path: Path) -> None:
    """The list was stored a moment ago: the next turn would come half a minute later."""
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    run = tmp_path / "spool" / "run"
    ranks = [Process(run, rank=rank, world_size=2) for rank in (0, 1)]
    for rank in ranks:
        rank.clock = clock
        rank.start()
    ranks[0].write(records.ShardFailed, shard="bad", error="ReadError")
    pass_seconds(agent, clock, 3)
    ranks[1].write(records.ShardFailed, shard="bad", error="ReadError")
    for rank in ranks:
        rank.end()
    listed: frozenset[str] = frozenset()
    for _ in range(20):
        if not run.exists():
            break
        pass_seconds(agent, clock, 1)
        listed = shard_quarantine.listed_names(from_store(Store(str(tmp_path / "store")), "job"))
    agent.close()

    assert not run.exists()
    assert clock.now < 1000.0 + SYNC_SECONDS
    assert listed == {"bad"}
