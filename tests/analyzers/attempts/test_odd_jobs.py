"""Planted jobs of an unusual build; real ones are in tests/end_to_end/test_odd_jobs.py."""

from __future__ import annotations

from pathlib import Path

import msgspec

from making import job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_core.records import records
from tachoscope_core.report.report import Report

NAME = "00000000-0000-4000-8000-000000000000-000000.jsonl"


def loaded(tmp_path: Path, rows: list[records.AnyRecord]) -> JobRecords:
    (tmp_path / NAME).write_bytes(b"".join(map(records.encode, rows)))
    return from_spool([tmp_path])


def planted(phases: dict[str, float], ranks: int = 1, steps: int = 60, delay: float = 0.0) -> list[records.AnyRecord]:
    return [records.decode(line) for line in job([[phases] * ranks] * steps, delay=[[delay] * ranks] * steps).splitlines()]


def of_one_rank(rows: list[records.AnyRecord]) -> list[records.AnyRecord]:
    """Return the records as of processes without a group, all of which say that they are rank 0."""
    one = [msgspec.structs.replace(row, rank=0) for row in rows]
    return [msgspec.structs.replace(row, world_size=1) if isinstance(row, records.JobStarted) else row for row in one]


def test_processes_that_claim_one_rank_have_the_seconds_that_they_have_as_ranks(tmp_path: Path) -> None:
    rows = of_one_rank(planted({"data_wait": 0.02, "forward": 0.04, "backward": 0.04}, ranks=3))
    report = analyze(loaded(tmp_path, rows))

    assert (report.ranks, [ledger.rank for ledger in report.ledgers[1:]]) == (3, [0, 1, 2])
    assert report.ledgers[0].states["compute"] == 3 * report.ledgers[1].states["compute"]
    assert report.quality[0].what == "3 processes say that they are rank 0"
    assert "ranks 0, 1 and 2" in report.quality[0].means


def test_a_trial_beside_a_training_does_not_take_its_steps_away(tmp_path: Path) -> None:
    rows = of_one_rank(planted({"forward": 0.05, "backward": 0.05}, ranks=2, steps=100))
    second = max(row.writer for row in rows)
    rows = [row for row in rows if not (row.writer == second and isinstance(row, records.StepDone) and row.step > 7)]
    report = analyze(loaded(tmp_path, rows))

    assert (report.ranks, report.window.steps) == (1, 98)


def without_torch(tmp_path: Path, phases: dict[str, float], delay: float = 0.0) -> Report:
    rows = planted(phases, delay=delay)
    return analyze(
        loaded(
            tmp_path,
            [msgspec.structs.replace(row, backward_calls=0) if isinstance(row, records.StepDone) else row for row in rows],
        )
    )


def test_time_that_nobody_marked_is_not_measured_rather_than_lost(tmp_path: Path) -> None:
    report = without_torch(tmp_path, {"other": 0.1})

    assert (report.goodput, report.findings) == (None, [])
    assert [note.severity for note in report.quality] == ["bad"]


def test_input_that_was_marked_is_found_where_computing_was_not(tmp_path: Path) -> None:
    report = without_torch(tmp_path, {"other": 0.06, "data_wait": 0.04})

    assert report.goodput is None
    assert [round(finding.share, 3) for finding in report.findings] == [0.4]
    assert "DataLoader" not in report.findings[0].action
    assert [note.severity for note in report.quality] == ["limited"]


def test_computing_that_was_marked_is_goodput(tmp_path: Path) -> None:
    report = without_torch(tmp_path, {"forward": 0.08, "other": 0.02})

    assert round(report.goodput or 0.0, 3) == 0.8
    assert report.quality == []


def test_computing_that_only_waited_for_a_core_is_a_goodput_of_zero_and_not_unmeasured(tmp_path: Path) -> None:
    report = without_torch(tmp_path, {"data_wait": 0.02, "forward": 0.08}, delay=0.08)

    assert report.goodput == 0.0
    assert [round(finding.share, 3) for finding in report.findings if finding.class_ == "cpu_contention"] == [0.8]
