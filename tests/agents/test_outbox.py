"""What a process writes before it is known to train."""

from __future__ import annotations

import time
from pathlib import Path

from tachoscope.identity import Identity
from tachoscope.outbox import Outbox
from tachoscope_core import records, spool


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
