"""What the agent itself writes about jobs goes through the spool into the store, once, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from spooling import FakeClock, agent_of, pass_seconds
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.spool import agent_records as own_records
from tachoscope_node.spool.agent_records import OwnRecords


def in_store(tmp_path: Path, job: str) -> list[records.AnyRecord]:
    store = Store(str(tmp_path / "store"))
    return [records.decode(line) for part in store.segments(job) for line in store.read(part).splitlines()]


def test_records_of_several_jobs_and_attempts_come_into_the_store_each_in_its_own(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    for job, attempt in (("a", 0), ("b", 0), ("a", 1), ("a", 1)):
        agent.records.write(job, records.PreemptionNotice, attempt=attempt, source="aws", time=1.7e9)
    pass_seconds(agent, clock, 2)
    agent.records.close()
    pass_seconds(agent, clock, 4)

    of_a = in_store(tmp_path, "a")
    assert sorted(record.attempt for record in of_a) == [0, 1, 1]
    assert {(record.rank, record.host, record.time) for record in of_a} == {(records.LAUNCHER_RANK, "node-1", 1.7e9)}
    assert len(in_store(tmp_path, "b")) == 1
    assert list((tmp_path / "spool").iterdir()) == []
    assert not any(agent.live.rejected.values())
    agent.close()


def test_idle_writers_are_closed_and_a_later_record_is_not_lost(tmp_path: Path) -> None:
    own = OwnRecords(tmp_path, "n")
    own.write("a", records.PreemptionNotice, source="aws")
    own.close_idle(idle_seconds=0.0)
    own.write("a", records.PreemptionNotice, source="aws")
    own.close()

    written = [records.decode(line) for file in own.directory.iterdir() for line in file.read_bytes().splitlines()]
    assert len({record.writer for record in written}) == len(written) == 2


def test_not_more_than_so_many_files_are_open(tmp_path: Path) -> None:
    own = OwnRecords(tmp_path, "n")
    for number in range(own_records.MAX_OPEN + 3):
        own.write(f"job-{number}", records.PreemptionNotice, source="aws")

    assert len(own._writers) == own_records.MAX_OPEN
    assert len(list(own.directory.iterdir())) == own_records.MAX_OPEN + 3
    own.close()
