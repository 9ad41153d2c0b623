from __future__ import annotations

from pathlib import Path

import pytest

from making import envelope, job
from tachoscope_analyzers.job.classify import decide
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.job.timeline import timeline
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

SLOW = range(30, 34)


def loaded(folder: Path, lines: bytes) -> JobRecords:
    writer = f"{1:08d}-0000-4000-8000-000000000000"
    store = Store(str(folder / "store"))
    store.write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines)
    return from_store(store, "planted")


def captured(first: int, last: int, *, attempt: int = 0) -> bytes:
    about = envelope(1, writer="f" * 8 + "-0000-4000-8000-000000000000", attempt=attempt)
    return records.encode(records.TraceCaptured(**about, reference="trace", bytes=1, first_step=first, last_step=last))


def planted() -> bytes:
    """60 steps of 100 ms on two ranks; four in the middle take a second more."""
    return job([[{"forward": 0.1, "other": 1.0 if step in SLOW else 0.0}] * 2 for step in range(1, 61)])


def test_steps_under_a_profiler_are_in_no_figure_and_the_report_says_so(tmp_path: Path) -> None:
    report = analyze(loaded(tmp_path, planted() + captured(SLOW[0], SLOW[-1])))

    assert report.step_seconds.mean == pytest.approx(0.1)
    assert report.window.steps == 58 - len(SLOW)
    assert [note.what for note in report.quality] == ["4 steps (30 to 33) under a profiler"]
    assert not [finding for finding in report.findings if finding.severity != "info"]
    assert report.ledgers[0].wall_seconds == pytest.approx(2 * 0.1 * (58 - len(SLOW)), rel=0.01)  # of two ranks
    assert report.ledgers[0].states["compute"] == pytest.approx(report.ledgers[0].wall_seconds, rel=0.01)


def test_the_course_of_a_run_has_no_unexplained_time_where_steps_were_left_out(tmp_path: Path) -> None:
    loaded_job = loaded(tmp_path, planted() + captured(SLOW[0], SLOW[-1]))

    seen = timeline(decide(loaded_job, aligned(loaded_job)))

    assert "unexplained" not in seen.states or seen.states["unexplained"].max() < 0.01


@pytest.mark.parametrize("more", [b"", captured(0, 0), captured(30, 33, attempt=7)])
def test_what_no_record_of_this_attempt_names_counts(tmp_path: Path, more: bytes) -> None:
    report = analyze(loaded(tmp_path, planted() + more))

    assert report.step_seconds.mean == pytest.approx(0.1 + len(SLOW) / 58)
    assert report.quality == []


def test_a_run_that_is_profiled_from_begin_to_end_is_judged_all_the_same(tmp_path: Path) -> None:
    report = analyze(loaded(tmp_path, planted() + captured(1, 60)))

    assert report.window.steps == 58
    assert report.quality == []
