from __future__ import annotations

import pandas as pd

from tachoscope_analyzers.fleet.job_summary import GravestFinding, JobSummary
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_explorer.sources.job_rows import JobFilter, classes, finding, money, rows, summarise, table
from tachoscope_explorer.sources.job_slos import JobSlos

CRITICAL = GravestFinding(class_="input_workers", severity="critical", seconds_per_step=0.2, share=0.4, ranks="all")
NOT_MEASURED = JobSlos(why="no samples")


def test_the_newest_job_stands_first() -> None:
    assert [row.job for row in rows({"b": 2.0, "a": 2.0, "c": 3.0}, {}, now=4.0)] == ["c", "a", "b"]


def test_what_is_known_of_some_jobs_is_not_said_of_all() -> None:
    known = {
        "a": JobSummary(job="a", worst=CRITICAL, idle_hours=2.0, idle_money=8.0, currency="USD"),
        "b": JobSummary(job="b", healthy=True, idle_hours=1.0),
        "c": JobSummary(job="c", reason="no step"),
    }

    seen = summarise(rows(dict.fromkeys(("a", "b", "c", "d"), 1.0), known, now=2e9))

    assert (seen.jobs, seen.looked_at, seen.critical, seen.running) == (4, 3, 1, 0)
    assert (seen.idle, seen.priced, seen.unpriced, seen.idle_hours) == ({"USD": 8.0}, 1, 1, 3.0)


def test_of_jobs_without_any_idle_time_known_nothing_is_said() -> None:
    seen = summarise(rows({"a": 1.0}, {"a": JobSummary(job="a")}, now=2.0))

    assert seen.idle == {}
    assert seen.idle_hours is None


def test_a_job_must_be_like_all_that_is_looked_for() -> None:
    known = {
        "Llama-1": JobSummary(job="Llama-1", status="failed", worst=CRITICAL),
        "llama-2": JobSummary(job="llama-2", healthy=True),
    }
    found = rows(dict.fromkeys(("Llama-1", "llama-2", "llama-3"), 1.0), known, now=2.0)

    def jobs(wanted: JobFilter) -> list[str]:
        return [row.job for row in found if wanted.matches(row)]

    assert jobs(JobFilter()) == ["Llama-1", "llama-2", "llama-3"]
    assert jobs(JobFilter(name=" LLAMA-")) == ["Llama-1", "llama-2", "llama-3"]
    assert jobs(JobFilter(severities=("healthy",))) == ["llama-2"]
    assert jobs(JobFilter(severities=("not analyzed", "critical"))) == ["Llama-1", "llama-3"]
    assert jobs(JobFilter(statuses=("failed",), classes=("input_workers",))) == ["Llama-1"]
    assert jobs(JobFilter(name="2", classes=("input_workers",))) == []


def test_every_class_can_be_looked_for_and_those_of_newer_versions_too() -> None:
    strange = GravestFinding(class_="quantum_stall", severity="info", seconds_per_step=0.0, share=0.0, ranks=[])

    assert classes(rows({"a": 1.0}, {"a": JobSummary(job="a", worst=strange)}, now=2.0)) == [*BY_SLUG, "quantum_stall"]


def test_healthy_and_cannot_be_told_and_not_looked_at_are_three_answers() -> None:
    answers = {finding(JobSummary(job="a", healthy=True)), finding(JobSummary(job="a", reason="no step")), finding(None)}

    assert answers == {"nothing found", "no step", "not analyzed yet"}


def test_what_is_not_known_is_missing_in_the_table_and_not_0() -> None:
    frame = table(rows({"a": 1.0, "b": 2.0}, {"a": JobSummary(job="a", reason="no step")}, now=3.0), NOT_MEASURED)

    for column in ("goodput", "mean step", "idle hours", "idle cost", "ranks", "steps"):
        assert frame[column].isna().all(), column
    assert list(frame["compare"]) == ["compare?job=b", "compare?job=a"]


def test_little_idle_time_is_not_shown_as_none() -> None:
    little = JobSummary(job="a", idle_hours=0.00123, idle_money=0.0049, currency="USD")

    (row,) = table(rows({"a": 1.0}, {"a": little}, now=3.0), NOT_MEASURED).to_dict("records")

    assert (row["idle hours"], row["idle cost"]) == (0.0012, 0.0049)
    assert money(0.0049, "USD") == "< 0.01 USD"
    assert money(0.0, "USD") == "0.00 USD"


def test_a_table_of_no_jobs_has_the_same_columns() -> None:
    one = table(rows({"a": 1.0}, {}, now=3.0), NOT_MEASURED)

    assert list(table([], NOT_MEASURED).columns) == list(one.columns)
    assert isinstance(table([], NOT_MEASURED), pd.DataFrame)
