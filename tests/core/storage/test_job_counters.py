"""What agents counted of a job: the newest word of each node, by its status or beside its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import job_counters, ledger_rows, node_status
from tachoscope_core.storage.ledger_rows import NodeRows, Row, in_columns
from tachoscope_core.storage.node_status import JobStatus, NodeStatus
from tachoscope_core.storage.store import Store

BEGAN, WINDOW = 1_800_000_000, 180_000_000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def with_rows(store: Store, node: str, compute: float, *, began: int = BEGAN, at: int = 100) -> None:
    row = Row(0, 0, WINDOW + at // 10, 1, 10, {"compute": 1})
    ledger_rows.write(store, "job", NodeRows(node, began, began + at, {"compute": compute}, [0], in_columns([row])))


def in_status(store: Store, node: str, compute: float, *, at: int, job: str = "job") -> None:
    part = JobStatus(job, began=BEGAN, state_seconds={"compute": compute}, counted=[0, 1])
    node_status.write(store, NodeStatus(node, BEGAN + at, 1.0, 1.0, [part]))


def counted(store: Store, *nodes: str) -> dict[tuple[str, int], tuple[float, list[int]]]:
    found = job_counters.of_job(store, "job", nodes)
    return {(one.node, one.began - BEGAN): (one.state_seconds["compute"], sorted(one.ranks)) for one in found}


def test_of_each_node_the_newest_word_counts_wherever_it_stands(store: Store) -> None:
    for at, compute in ((100, 80.0), (400, 380.0)):
        with_rows(store, "old-status", compute, at=at)
    in_status(store, "old-status", 300.0, at=320)
    with_rows(store, "new.status", 80.0)
    in_status(store, "new.status", 130.0, at=150)
    in_status(store, "young", 20.0, at=30)
    in_status(store, "stranger", 7.0, at=30, job="other")

    assert counted(store, "young", "stranger") == {
        ("old-status", 0): (380.0, [0]),
        ("new.status", 0): (130.0, [0, 1]),
        ("young", 0): (20.0, [0, 1]),
    }


def test_what_an_agent_counted_before_it_forgot_the_job_counts_beside_what_it_counts_since(store: Store) -> None:
    with_rows(store, "node", 500.0, at=600)
    with_rows(store, "node", 30.0, began=BEGAN + 7200)

    assert counted(store) == {("node", 0): (500.0, [0]), ("node", 7200): (30.0, [0])}


def test_a_job_that_no_agent_counted_has_none_and_what_no_agent_writes_is_named(store: Store) -> None:
    assert counted(store, "node") == {}

    store.write_ledger("job", "host=node/date=2027-01-15/1800000000-180000010", b"{}")
    with pytest.raises(TachoscopeError, match="is not what an agent writes"):
        counted(store)
