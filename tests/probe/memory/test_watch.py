"""When what a process holds is written down, by a clock of the test's own; what it holds is this process's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tachoscope.memory import watch as module
from tachoscope.memory.watch import MemoryWatch
from tachoscope_core.records import records

MIB = 1 << 20


class Outbox:
    """Keeps what is written."""

    rank, writer, attempt = 0, "w", 0

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, kind: type[records.Record], **fields: Any) -> None:
        assert kind is records.MemorySampled
        self.rows.append(fields)


class Watched:
    """A watch on a clock that goes on by a tenth of a second a look."""

    def __init__(self, workers: list[int] | None = None) -> None:
        self.now = 0.0
        self.outbox: Any = Outbox()
        self.workers = workers if workers is not None else []
        off = {"TACHOSCOPE_MEMORY_LINES": "0"}
        self.watch = MemoryWatch(self.outbox, lambda: 7, lambda: self.workers, off, lambda: self.now)

    def pass_seconds(self, seconds: float) -> int:
        """Return how many records were written meanwhile."""
        before = len(self.outbox.rows)
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.watch.poll()
        return len(self.outbox.rows) - before


def test_what_this_process_its_workers_and_its_group_hold_is_written_and_again_only_once_a_minute() -> None:
    watched = Watched([os.getpid()])
    assert watched.pass_seconds(2) == 1
    (row,) = watched.outbox.rows

    assert row["step"] == 7
    assert row["process"].anonymous_bytes > MIB
    assert [one.pid for one in row["workers"]] == [os.getpid()]
    assert row["total_bytes"] >= row["available_bytes"] > 0
    assert watched.pass_seconds(50) <= 1, "this process may grow a little by itself"
    assert 1 <= watched.pass_seconds(120) <= 4


def test_what_grows_is_written_within_a_second_and_a_worker_that_is_new_too(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [100 * MIB]
    monkeypatch.setattr(module.procfs, "resident_by_kind", lambda pid="self": {"anonymous_bytes": held[0], "shared_bytes": 0})
    watched = Watched()
    watched.pass_seconds(2)
    held[0] += 10 * MIB
    assert watched.pass_seconds(1.2) == 1
    watched.workers.append(1)
    assert watched.pass_seconds(1.2) == 1


def test_memory_that_changes_all_the_time_is_written_every_ten_seconds_after_the_first_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = iter(range(100 * MIB, 10**12, 20 * MIB))
    monkeypatch.setattr(module.procfs, "resident_by_kind", lambda pid="self": {"anonymous_bytes": next(held), "shared_bytes": 0})
    watched = Watched()
    watched.pass_seconds(120)

    assert watched.pass_seconds(300) <= 33


def test_after_the_last_record_nothing_is_written_and_a_kernel_that_says_nothing_makes_no_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched()
    watched.pass_seconds(2)
    watched.watch.close()
    assert len(watched.outbox.rows) == 2
    assert watched.pass_seconds(200) == 0
    monkeypatch.setattr(module.procfs, "resident_by_kind", lambda pid="self": {})
    assert Watched().pass_seconds(5) == 0
