"""What a process writes before it is known to train."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tachoscope.process.identity import Identity
from tachoscope.spool.outbox import Outbox
from tachoscope_core.records import records
from tachoscope_core.storage import spool


def lines(directory: Path) -> list[records.AnyRecord]:
    return [records.decode(line) for path in spool.segments(directory) for line in path.read_bytes().splitlines()]


def test_early_records_follow_the_start_with_the_time_at_which_they_were_made(tmp_path: Path) -> None:
    outbox = Outbox(Identity("job", 0, "host"), tmp_path, waits=True)
    before = time.time()
    outbox.write(records.CheckpointRestored, blocking_seconds=1.0, reference="/a.pt")
    after = time.time()
    assert not lines(tmp_path)
    outbox.rank = 3
    outbox.start(world_size=4, pid=1)
    outbox.write(records.CheckpointSaved, step=1, blocking_seconds=1.0)
    outbox.close()

    started, restored, saved = lines(tmp_path)
    assert [type(row) for row in (started, restored, saved)] == [
        records.JobStarted,
        records.CheckpointRestored,
        records.CheckpointSaved,
    ]
    assert [row.seq for row in (started, restored, saved)] == [0, 1, 2]
    assert {row.rank for row in (started, restored, saved)} == {3}
    assert before <= restored.time <= after <= started.time


def test_a_process_that_never_trains_writes_nothing(tmp_path: Path) -> None:
    outbox = Outbox(Identity("job", 0, "host"), tmp_path, waits=True)
    outbox.write(records.CheckpointRestored, blocking_seconds=1.0)
    outbox.close()

    assert not lines(tmp_path)


def test_of_records_that_are_written_together_only_invalid_ones_are_dropped(tmp_path: Path) -> None:
    outbox = Outbox(Identity("job", 0, "host"), tmp_path)
    steps: list[dict[str, Any]] = [{"step": 1}, {"step": object()}, {"step": 2, "unknown": 1}, {"step": 3}]
    fields = [*steps, {"step": 4, "signals": {"\ud800": 1.0}}]
    outbox.write_all([(records.Heartbeat, 1_000, one) for one in fields])
    outbox.close()

    assert [(row.seq, row.step, list(row.signals)) for row in lines(tmp_path) if isinstance(row, records.Heartbeat)] == [
        (0, 1, []),
        (3, 3, []),
        (4, 4, ["?"]),
    ]
    assert outbox.dropped == 2
    assert "unknown" in outbox.error or "object" in outbox.error


@pytest.fixture
def handled() -> Iterator[Any]:
    """Set a handler of SIGUSR1 for one test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda handler: signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_of_the_job_may_save_while_its_thread_writes_a_record(tmp_path: Path, handled: Any) -> None:
    outbox = Outbox(Identity("job", 0, "host"), tmp_path)
    handled(lambda *_: outbox.write(records.CheckpointSaved, step=2, blocking_seconds=1.0))
    append = outbox._spool.append

    def interrupted(line: bytes, *, lines: int = 1) -> bool:
        if b"JobStarted" in line:
            signal.raise_signal(signal.SIGUSR1)
        return append(line, lines=lines)

    outbox._spool.append = interrupted  # type: ignore[method-assign]
    outbox.start(world_size=1, pid=1)
    outbox.close()

    assert [(type(row), row.seq) for row in lines(tmp_path)] == [(records.JobStarted, 0), (records.CheckpointSaved, 1)]
    assert outbox.dropped == 0
