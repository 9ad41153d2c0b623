"""A long job is judged hour by hour as it is compacted, and a report on its newest part shows what came before."""

from __future__ import annotations

import os
import time
from itertools import groupby
from pathlib import Path

import pytest

from hourly_making import HOURS, SHIPPED_STEPS, STEPS_AN_HOUR, hourly_store
from making import job as lines_of
from tachoscope_analyzers.compaction import set_in_making
from tachoscope_analyzers.compaction.days import compact_job
from tachoscope_analyzers.job.report import analyze, verdicts
from tachoscope_analyzers.records import judged_part
from tachoscope_analyzers.records.judged_part import earlier_intervals, read_part
from tachoscope_cli.app import call
from tachoscope_core.report.report import IntervalFinding, JudgedInterval
from tachoscope_core.storage.compacted import CompactedList, CompactedSet, compacted_sets
from tachoscope_core.storage.store import Store
from tachoscope_show.report import html
from tachoscope_show.report.earlier_words import rows

BEGIN = 1.7e9


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return hourly_store(tmp_path_factory.mktemp("hourly"))


def earlier(store: Store) -> list[JudgedInterval]:
    return earlier_intervals(compacted_sets(store, "planted"), before=float("inf"))


def test_the_fault_is_named_with_its_hour_and_neighbours_without_one_are_joined(store: Store) -> None:
    before, fault, after = earlier(store)

    assert [one.findings for one in (before, after)] == [[], []]
    assert (fault.findings[0].class_, fault.findings[0].ranks) == ("input_straggler", [1])
    assert fault.findings[0].seconds_per_step == pytest.approx(6.0, rel=0.1)
    hour = 20.0 * STEPS_AN_HOUR
    assert fault.start == pytest.approx(before.start + hour, abs=1000) and fault.end == pytest.approx(fault.start + hour, abs=1000)


def test_each_step_that_all_ranks_have_is_judged_once_though_nodes_ship_at_different_times(store: Store) -> None:
    total = sum(one.steps for one in earlier(store))

    assert HOURS * STEPS_AN_HOUR - 5 - SHIPPED_STEPS <= total <= HOURS * STEPS_AN_HOUR, "at midnight less than a shipment is lost"


def test_days_that_the_command_compacts_at_once_are_the_same_as_one_after_the_other(store: Store, tmp_path: Path) -> None:
    other = hourly_store(tmp_path, compacted=False)

    assert call(["store", "compact", "--store", other.url]) == 0

    sets = compacted_sets(other, "planted")
    assert len(sets) == 2 and [one.holds for one in sets] == [one.holds for one in compacted_sets(store, "planted")]


def test_a_store_that_was_copied_without_its_times_is_judged_by_the_times_of_its_records(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_in_making, "GROUP_BYTES", 50_000)  # of a writer alone, or of all ranks in turn
    copied = hourly_store(tmp_path, compacted=False)
    for segment in copied.segments("planted"):
        os.utime(segment.path)

    compact_job(copied, "planted", now=time.time() + 7200, judge=verdicts)

    found = [(one.steps, *(each.class_ for each in one.findings)) for one in earlier(copied)]
    assert [classes for classes, _ in groupby(found, key=lambda row: row[1:])] == [(), ("input_straggler",), ()]
    assert sum(row[0] for row in found) == pytest.approx(sum(one.steps for one in earlier(store)), abs=SHIPPED_STEPS)


def test_a_report_on_the_newest_part_shows_them_in_text_and_on_its_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_part, "MOST_RECORDS", STEPS_AN_HOUR)

    report = analyze(read_part(store, "planted"))

    assert [one.findings[0].class_ for one in report.earlier if one.findings] == ["input_straggler"]
    assert all(one.start < report.window.start for one in report.earlier)
    (row,) = [row for row in rows(report.earlier) if row.severity]
    assert row.words[-1].startswith("input_straggler, rank 1: 6.0")
    assert row.words[-1] in html.render(report)


def test_an_hour_in_which_a_job_was_started_again_has_an_interval_for_each_attempt(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for attempt in (0, 1):
        content = lines_of([[{"forward": 1.0 + attempt}]] * 100, attempt=attempt)
        path = store.write("planted", host="n", writer=f"{attempt:07d}0", attempt=attempt, offset=0, time=BEGIN, lines=content)
        os.utime(path, (BEGIN, BEGIN))

    compact_job(store, "planted", now=time.time(), judge=verdicts)

    found = earlier_intervals(compacted_sets(store, "planted"), before=float("inf"))
    assert sorted((one.attempt, round(one.step_seconds, 3)) for one in found) == [(0, 1.0), (1, 2.0)]


def test_a_judge_that_fails_keeps_nothing_from_being_compacted(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    content = lines_of([[{"forward": 1.0}]] * 20)
    path = store.write("planted", host="n", writer="0" * 8, attempt=0, offset=0, time=BEGIN, lines=content)
    os.utime(path, (BEGIN, BEGIN))

    def fails(_job: object) -> None:
        raise ZeroDivisionError

    assert compact_job(store, "planted", now=time.time(), judge=fails).sets == 1  # type: ignore[arg-type]
    assert earlier(store) == []


def test_hours_share_a_row_as_long_as_no_critical_finding_comes_or_goes() -> None:
    def hour(number: int, *found: tuple[str, str]) -> JudgedInterval:
        findings = [
            IntervalFinding(class_=name, severity=severity, seconds_per_step=0.5, share=0.25, ranks=[number % 2])  # type: ignore[arg-type]
            if severity == "warning"
            else IntervalFinding(class_=name, severity=severity, seconds_per_step=0.4, share=0.2, ranks="all")  # type: ignore[arg-type]
            for name, severity in found
        ]
        return JudgedInterval(
            start=3600.0 * number,
            end=3600.0 * number + 3600,
            attempt=0,
            steps=1800,
            step_seconds=2.0,
            compute_share=0.7,
            findings=findings,
        )

    always, once, often = ("comm_exposed", "critical"), ("input_straggler", "critical"), ("host_pause", "warning")
    hours = [hour(0, always), hour(1, always, often), hour(2, always, once), hour(3, always)]
    holds = CompactedList(steps=1, measured=0, line_objects=0, begin=0, end=1, written=1, json_bytes=1, writers=[], intervals=hours)

    assert [one.steps for one in earlier_intervals([CompactedSet("", holds)], before=1e9)] == [3600, 1800, 1800]
