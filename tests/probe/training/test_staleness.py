"""Updates are counted by their staleness and written every second, under a writer of their own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tachoscope
from tachoscope.process.identity import Identity
from tachoscope.spool.outbox import Outbox
from tachoscope.training.staleness import MAX_VALUES, Updates
from tachoscope_core.records import records
from tachoscope_core.storage import spool


class Clock:
    """Seconds that stand still between calls."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def updates(tmp_path: Path, clock: Clock) -> Updates:
    return Updates(lambda: Outbox(Identity(job="j", attempt=0, host="h"), tmp_path / "spool" / "j"), clock)


def written(tmp_path: Path) -> list[records.AnyRecord]:
    files = spool.segments(tmp_path / "spool" / "j")
    return [records.decode(line) for file in files for line in file.read_bytes().splitlines()]


def test_staleness_is_what_was_applied_between_reading_and_applying(tmp_path: Path, updates: Updates) -> None:
    for read, applied in ((0, 0), (1, 3), (3, 5), (5, 5)):
        updates.read(read)
        updates.applied(applied, bound=8)
    updates.applied(9, read=2)
    updates.close()

    rows = written(tmp_path)
    total: dict[int, int] = {}
    for row in rows:
        assert isinstance(row, records.UpdatesApplied)
        assert row.bound == 8
        for age, count in row.staleness.items():
            total[age] = total.get(age, 0) + count
    assert total == {0: 2, 2: 2, 7: 1}


def test_calls_are_summed_up_and_written_once_a_second(tmp_path: Path, updates: Updates, clock: Clock) -> None:
    for _ in range(10):
        for _ in range(100):
            updates.applied(5, read=4)
        clock.now += 0.25
    updates.close()

    rows = written(tmp_path)
    assert len(rows) == 4  # at once, after 1 s and 2 s, and at the end
    assert sum(row.staleness[1] for row in rows if isinstance(row, records.UpdatesApplied)) == 1000


def test_each_thread_has_read_its_own_version(tmp_path: Path, updates: Updates) -> None:
    updates.read(7)
    other = threading.Thread(target=lambda: (updates.read(1), updates.applied(9)))
    other.start()
    other.join()
    updates.applied(9)
    updates.close()

    assert sorted(age for row in written(tmp_path) for age in row.staleness) == [2, 8]  # type: ignore[union-attr]


def test_what_was_never_read_is_not_counted_and_an_older_version_is_not_negative(tmp_path: Path, updates: Updates) -> None:
    updates.applied(3)
    updates.applied(3, read=5)
    updates.close()

    assert [row.staleness for row in written(tmp_path)] == [{0: 1}]  # type: ignore[union-attr]


def test_a_record_holds_a_bounded_number_of_values(tmp_path: Path, updates: Updates) -> None:
    for age in range(3 * MAX_VALUES):
        updates.applied(age, read=0)
    updates.close()

    rows = written(tmp_path)
    assert max(len(row.staleness) for row in rows) <= MAX_VALUES  # type: ignore[union-attr]
    assert sum(sum(row.staleness.values()) for row in rows) == 3 * MAX_VALUES  # type: ignore[union-attr]


def test_a_process_that_is_not_watched_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACHOSCOPE_RUN_DIR", raising=False)
    tachoscope.parameters_read(1)
    tachoscope.parameters_applied(2)
