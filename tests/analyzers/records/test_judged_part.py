"""Of a long job a part is judged, which is the same part however its records are stored, and which says that it is one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.analyzers.records.test_compaction import BEGIN, JOB, RANKS, STEPS, WRITERS, ship, write

from making import envelope
from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records import judged_part
from tachoscope_analyzers.records.judged_part import Extent, extent, read_part
from tachoscope_analyzers.records.load import from_store
from tachoscope_analyzers.records.window import within
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage.compacted import compacted_sets, segments_left
from tachoscope_core.storage.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path))
    ship(store)
    return store


@pytest.fixture(params=["segments", "compacted", "copied"])
def stored(store: Store, request: pytest.FixtureRequest) -> Store:
    """A store as agents write it, as compaction leaves it, and one that was copied: all of it is new there."""
    if request.param == "compacted":
        compact_job(store, JOB, now=time.time())
    elif request.param == "copied":
        for segment in store.segments(JOB):
            os.utime(segment.path)
    return store


def test_a_job_that_is_not_long_is_read_whole(stored: Store) -> None:
    assert read_part(stored, JOB) == from_store(stored, JOB)


def test_a_window_is_that_part_of_the_whole_job(stored: Store) -> None:
    whole = from_store(stored, JOB)
    start, end = BEGIN + 25.0, BEGIN + 65.0

    found = read_part(stored, JOB, start=start, end=end)

    assert found.left_out is None
    assert found.steps == within(whole, start, end).steps
    assert analyze(found).findings == analyze(within(whole, start, end)).findings


def test_the_last_seconds_are_counted_from_the_last_record_of_the_job(stored: Store) -> None:
    found = read_part(stored, JOB, last=20.0)

    assert {step.step for step in found.steps} <= set(range(2 * STEPS - 21, 2 * STEPS + 1))
    assert len(found.steps) >= RANKS * 18


def test_of_a_long_job_the_newest_part_is_read_and_the_report_says_so(stored: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_part, "MOST_RECORDS", 60)

    found = read_part(stored, JOB)

    assert 20 <= len(found.steps) < RANKS * 2 * STEPS and found.steps.last_time() >= BEGIN + 2 * STEPS - 1
    (note,) = [note for note in analyze(found).quality if "were not read" in note.what]
    assert "--from" in note.means


def test_a_smaller_part_than_can_be_judged_at_once_is_read_of_long_windows_only(
    stored: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, everything = read_part(stored, JOB, part=60), len(from_store(stored, JOB).steps)
    monkeypatch.setattr(judged_part, "MOST_RECORDS", 120)
    parts = [len(read_part(stored, JOB, part=part).steps) for part in (None, 60, 10**6)]

    assert len(whole.steps) == everything
    assert parts[1] < parts[0] == parts[2] < everything


def test_a_window_without_steps_says_where_the_steps_are(stored: Store) -> None:
    with pytest.raises(TachoscopeError, match="no step of job"):
        read_part(stored, JOB, start=BEGIN - 900, end=BEGIN - 800)


def extent_of(store: Store) -> Extent:
    segments, _, sets = segments_left(store, JOB)
    return extent(store, JOB, segments, sets)


def test_how_much_there_is_is_known_without_reading_it(store: Store) -> None:
    """Of segments by their sizes; here they are small and pack badly."""
    records = from_store(store, JOB).source.records
    assert records / 4 < extent_of(store).count(0.0, BEGIN + 1000) < records * 4
    compact_job(store, JOB, now=time.time())

    assert extent_of(store).count(0.0, BEGIN + 1000) == records - RANKS
    assert extent_of(store).end == pytest.approx(BEGIN + 2 * STEPS, abs=2.0)


def test_a_window_is_the_same_part_whatever_else_was_recorded_after_the_last_step(store: Store) -> None:
    trace = records.TraceCaptured(**envelope(0, 30_000, time=BEGIN + 2 * STEPS + 30.0), reference="t", bytes=1)
    late = envelope(2, 99, time=BEGIN + 2 * STEPS + 2.5, monotonic_ns=10**12)
    long = records.StepDone(**late, step=99, wall_seconds=2.4, phase_seconds={"forward": 2.4})
    write(store, WRITERS[0], 900, [records.encode(trace)], BEGIN + 2 * STEPS)
    write(store, WRITERS[2], 900, [records.encode(long)], BEGIN + 2 * STEPS)
    windows = ({"last": 20.0}, {"end": BEGIN + 2 * STEPS + 1.5}, {"start": BEGIN + 60.0}, {"end": BEGIN + 30.0, "last": 10.0})

    before = [list(read_part(store, JOB, **window).steps) for window in windows]
    compact_job(store, JOB, now=time.time())

    assert [list(read_part(store, JOB, **window).steps) for window in windows] == before
    assert all(before) and any(step.step == 99 for step in before[1])


def test_a_window_in_which_a_compacted_job_has_no_step_says_when_its_steps_ended(store: Store) -> None:
    compact_job(store, JOB, now=time.time())

    with pytest.raises(TachoscopeError, match="no step of job 'planted' is in the window"):
        read_part(store, JOB, start=BEGIN + 2 * STEPS + 10, end=BEGIN + 2 * STEPS + 20)


def test_steps_that_cannot_be_read_are_not_taken_for_a_job_that_has_none(store: Store) -> None:
    compact_job(store, JOB, now=time.time())
    for one in compacted_sets(store, JOB):
        Path(one.steps_path).write_bytes(b"damaged")

    with pytest.raises(TachoscopeError, match=r"no step of job 'planted' can be read: .*steps\.parquet"):
        analyze(read_part(store, JOB))
