from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest

from course_making import late, planted
from making import moved
from tachoscope_analyzers.classify.communication.slow_link import last_steps
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.window import within
from tachoscope_core.errors import TachoscopeError

NEVER, FOREVER = 0.0, 1e12


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobRecords:
    """Rank 2 of four loads its data slowly in the second half of 400 steps."""
    return from_spool([planted(tmp_path_factory.mktemp("half"), late(2, 201, 400, 0.03), steps=400)])


def _middle(job: JobRecords) -> float:
    return max(row.time for row in job.steps if row.step == 200)


def test_the_whole_window_gives_the_same_records_and_the_same_report(job: JobRecords) -> None:
    whole = within(job, NEVER, FOREVER)

    assert all(getattr(whole, one.name) == getattr(job, one.name) for one in fields(job))
    assert analyze(whole) == analyze(job)


def test_the_window_that_a_report_names_gives_the_same_report_though_it_was_rounded_to_milliseconds(job: JobRecords) -> None:
    report = analyze(job)

    again = analyze(within(job, round(report.window.start, 3), round(report.window.end, 3)))

    assert again == report


def test_a_fault_of_half_a_run_is_found_in_that_half_only(job: JobRecords) -> None:
    first, second = analyze(within(job, NEVER, _middle(job))), analyze(within(job, _middle(job), FOREVER))

    assert "input_straggler" not in {row.class_ for row in first.findings}
    (found,) = [row for row in second.findings if row.class_ == "input_straggler"]
    assert found.ranks == [2]
    assert found.seconds_per_step == pytest.approx(0.03, rel=0.1)


def test_windows_next_to_each_other_share_no_step_and_lose_none(job: JobRecords) -> None:
    middle = _middle(job)

    parts = [within(job, NEVER, middle), within(job, middle, FOREVER)]

    assert sum(len(part.steps) for part in parts) == len(job.steps)
    assert {row.step for row in parts[0].steps} == set(range(1, 201))


def test_steps_in_the_middle_of_a_run_are_no_warm_up(job: JobRecords) -> None:
    assert analyze(within(job, _middle(job), FOREVER)).window.steps == 200


def test_a_window_without_steps_says_when_there_are_some(job: JobRecords) -> None:
    with pytest.raises(TachoscopeError, match=r"no step of job 'planted' is in the window .*its steps ended from 2023-11-14"):
        within(job, 10.0, 20.0)


def test_summaries_of_collectives_are_about_the_steps_of_the_window(job: JobRecords) -> None:
    rows = [moved(0, "all_reduce", seq, time=1.7e9 + step / 10, step=step) for seq, step in enumerate((100, 200, 300), 20_000)]
    known = msgspec.structs.asdict(rows[0])["writer"]
    with_calls = JobRecords(job.job, job.source, steps=job.steps, collectives=rows)

    kept = within(with_calls, 1.7e9 + 15, FOREVER).collectives

    assert [row.step for row in kept] == [100, 200]
    assert last_steps(kept) == {known: 200}


def test_what_is_about_the_job_as_a_whole_stays(job: JobRecords) -> None:
    kept = within(job, _middle(job), FOREVER)

    assert (kept.starts, kept.verified, kept.quarantined) == (job.starts, job.verified, job.quarantined)
