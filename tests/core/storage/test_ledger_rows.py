"""Ledger rows in the store: read as they were written, found by node, and gone with the records of their job."""

import os
import time
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import retention
from tachoscope_core.storage.ledger_rows import NodeRows, Row, in_columns, last_words, merged, read_all, write
from tachoscope_core.storage.store import Store

FIRST = 180_000_000


def rows(node: str, first: int, count: int = 3) -> NodeRows:
    of_node = [
        Row(rank, 0, first + number, 5, 2000, {"compute": 90, "data_wait": number}) for rank in (0, 1) for number in range(count)
    ]
    return NodeRows(node, 1_799_999_000, 10.0 * (first + count), {"compute": first + count - FIRST}, [0, 1], in_columns(of_node))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_rows_come_back_once_however_often_they_were_written(store: Store) -> None:
    write(store, "job", rows("one", FIRST))
    write(store, "job", rows("two", FIRST))
    write(store, "job", rows("one", FIRST, 5))  # again with more, as by an agent that was killed before it noted the first
    write(store, "job", rows("one", FIRST + 3))
    found = merged(read_all(store, "job"))

    assert len(found) == 2 * 6 + 2 * 3
    assert found["one", 0, 1, FIRST + 2] == Row(1, 0, FIRST + 2, 5, 2000, {"compute": 90, "data_wait": 2})


def test_the_last_word_of_each_node_is_found_over_days_but_for_those_that_are_known(store: Store) -> None:
    for node, first in (("one", FIRST), ("two", FIRST), ("two", FIRST + 3), ("two", FIRST + 100_000), ("three", FIRST)):
        write(store, "job", rows(node, first))

    found = {one.node: one.state_seconds["compute"] for one in last_words(store, "job", but=["one"])}
    assert found == {"two": 100_003, "three": 3}
    assert list(last_words(store, "other", but=[])) == []


def test_what_no_agent_writes_is_named(store: Store) -> None:
    store.write_ledger("job", "host=one/date=2026-01-01/1-2", b'{"node": 1}')

    with pytest.raises(TachoscopeError, match="1-2.json.gz in store .* is not what an agent writes"):
        list(read_all(store, "job"))


def test_rows_are_removed_with_the_records_of_their_job_and_not_before(store: Store) -> None:
    now = time.time()
    for job, age in (("old", 90), ("running", 0)):
        record = store.write(job, host="one", writer="a", attempt=0, offset=0, time=now - 90 * 86400.0, lines=b"{}\n")
        os.utime(record, (now - 90 * 86400.0,) * 2)
        os.utime(write(store, job, rows("one", FIRST)), (now - age * 86400.0,) * 2)
    retention.remove(store, retention.old_records(store, before=now - 30 * 86400.0))

    assert store.jobs() == ["running"]
    assert len(merged(read_all(store, "running"))) == 6
