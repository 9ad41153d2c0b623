"""Real trainings that torch.compile compiles: what the probe records of it, and what the report makes of that."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import REPOSITORY, records_of, run_watched
from tachoscope_analyzers.job.report import analyze

SCRIPT = str(REPOSITORY / "benchmarks" / "recompilation" / "training.py")


def test_code_that_is_compiled_for_each_length_until_torch_gives_up_is_found_with_its_guard_and_the_limit(tmp_path: Path) -> None:
    four_lengths = ("--steps", "40", "--every", "10")
    done = run_watched(tmp_path, sys.executable, SCRIPT, "limit", *four_lengths, "--limit", "3")
    assert done.returncode == 0, done.stderr
    job = records_of(tmp_path)
    report = analyze(job)

    again = [row for row in job.compilations if row.recompiled and not (row.backward or row.limit)]
    limits = [row for row in job.compilations if row.limit]
    assert len(again) == 2
    assert all("size mismatch at index 1" in row.reason for row in again)
    assert [row.limit for row in limits] == ["recompile_limit (3)"]
    assert {row.place for row in (*again, *limits)} == {again[0].place}
    assert again[0].place.startswith("training.py:")
    # What the steps measured and what torch keeps are two measurements of the same.
    measured = sum(step.phase_seconds.get("compile", 0.0) for step in job.steps)
    assert measured == pytest.approx(sum(row.seconds for row in job.compilations), rel=0.2)
    (finding,) = [one for one in report.findings if one.class_ == "recompilation"]
    assert finding.cause == "limit"
    assert finding.where == again[0].place
    assert "mark_dynamic" in finding.action
    assert sum(report.ledgers[0].states.values()) == pytest.approx(report.ledgers[0].wall_seconds, rel=0.01)
