"""The step records and the profiler traces of one real job say the same of a planted fault; and how that is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.loops.truth import Mark, Marks
from benchmarks.records_and_traces.cases import BY_NAME
from benchmarks.records_and_traces.compare import compared, summary, table, told
from benchmarks.records_and_traces.measure import with_own_profiler


@pytest.mark.bar  # real, and compared by sizes; planted below
@pytest.mark.alone
def test_records_and_traces_of_one_job_name_the_same_class_rank_and_seconds(tmp_path: Path) -> None:
    """The sleep is long beside the computing, so that what a loaded machine does to the rest is small beside it."""
    case = BY_NAME["stall_rank_1"]
    found = with_own_profiler(case, tmp_path, seconds=0.15, steps=44, profiled=15)
    row = compared(case, found.records, found.trace, found.marks)

    assert row.trace.named == row.records.named == "host_pause", table([row])
    assert row.same_ranks, table([row])
    assert row.trace.ratio == pytest.approx(1.0, abs=0.25), table([row])
    assert row.records.ratio == pytest.approx(row.trace.ratio, abs=0.35), table([row])


def report(seconds: float, *, slug: str = "host_pause", ranks: Any = "all") -> dict[str, Any]:
    finding = {"class": slug, "severity": "warning", "ranks": ranks, "seconds_per_step": seconds, "share_ci": [0.2, 0.4]}
    return {"window": {"start": 0.0, "end": 100.0, "steps": 10}, "step_seconds": {"mean": 0.1}, "findings": [finding]}


def marks(*seconds: float) -> Marks:
    return {(rank, 100 + rank): [Mark("fault", 1.0 + at, one, 0.0) for at in range(10)] for rank, one in enumerate(seconds)}


def test_reports_agree_that_name_one_class_and_about_the_same_seconds() -> None:
    row = compared(BY_NAME["stall"], report(0.030), report(0.032), marks(0.030, 0.030))
    assert row.same_class and row.same_ranks and row.same_seconds and row.trace.holds
    off = compared(BY_NAME["stall"], report(0.030), report(0.054, ranks=[1]), marks(0.030, 0.030))
    assert off.same_class and not off.same_ranks and not off.same_seconds
    assert "seconds NO" in table([off])
    assert "seconds of the trace within 10% of the truth: 1 of 2" in summary([row, off])


def test_a_clean_run_must_have_no_warning_but_of_the_machine() -> None:
    clean = BY_NAME["clean"]
    assert compared(clean, report(0.03, slug="cpu_contention"), report(0.03, slug="cpu_contention"), {}).same_class
    assert not compared(clean, report(0.03), report(0.03, slug="cpu_contention"), {}).same_class


def test_a_transfer_takes_as_long_as_on_the_rank_that_came_last() -> None:
    assert told(BY_NAME["communication"], report(0.02, slug="comm_exposed"), marks(0.05, 0.02)).true_seconds == pytest.approx(0.02)


def test_what_comes_every_fifth_step_is_counted_in_the_steps_of_the_window() -> None:
    own = [Mark("step", 10.0 * at, 0.0, 0.0) for at in range(12)]  # the ends: ten steps are within the window of 100 s
    own += [Mark("fault", 1.0 + at, 0.15, 0.0) for at in (0, 50, 99)]
    one = told(BY_NAME["checkpoint"], report(0.045, slug="checkpoint_stall", ranks=[0]), {(0, 100): own})
    assert one.true_seconds == pytest.approx(0.045) and one.ratio == pytest.approx(1.0)
