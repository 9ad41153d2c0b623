"""Faults that come with the data, from another thread or from a flipped bit, in a real training of two ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import records_of, run_watched, steps_of
from tachoscope_analyzers.classify import data_imbalance, stragglers
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.pauses import interpreter_held
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.report.report import Report

SCRIPT = str(Path(__file__).parents[1] / "trainings" / "uneven_training.py")

pytestmark = pytest.mark.alone


def trained(tmp_path: Path, fault: str, steps: int) -> tuple[JobRecords, Report]:
    """Run the training and judge it."""
    done = run_watched(tmp_path, sys.executable, SCRIPT, fault, str(steps))
    assert done.returncode == 0, done.stderr
    job = records_of(tmp_path)
    report = analyze(job)
    for ledger in report.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01)
    return job, report


def classes(report: Report) -> set[str]:
    """Return what is found; how large its share is depends on what else the machine does meanwhile."""
    return {one.class_ for one in report.findings if one.severity != "info"}


@pytest.mark.bar  # caused in the lab, too
def test_batches_of_uneven_length_are_told_and_their_size_is_recorded(tmp_path: Path) -> None:
    job, report = trained(tmp_path, "lengths", 90)

    sizes = {row.elements for row in steps_of(job)}
    assert len(sizes) > 20
    assert all(size % 256 == 0 for size in sizes)  # 16 samples of 16 numbers a time step
    steps = aligned(job)
    late = stragglers.late_by_computing(steps, losses.attribute(steps))
    (candidate,) = data_imbalance.classify(steps, late, losses.attribute(steps)).candidates
    assert candidate.ranks == "all"
    values = {row.signal.split(" of ")[0]: row.value for row in candidate.evidence}
    assert values["correlation"] >= 0.9
    assert values["part"] >= 0.5
    assert "compute_straggler" not in classes(report)


@pytest.mark.bar
def test_a_thread_that_holds_the_interpreter_pauses_its_rank(tmp_path: Path) -> None:
    job, _ = trained(tmp_path, "held", 400)

    steps = aligned(job)
    others, held = steps.own["paused"].sum(axis=0)
    assert held > max(10 * others, 0.02)
    beats = [beat for beat in job.heartbeats if beat.rank == 1]
    assert interpreter_held(beats, float(held), float(steps.wall[:, 1].sum()))


@pytest.mark.bar  # caused in the lab, too
def test_a_flipped_bit_makes_two_replicas_differ_from_the_next_check_on(tmp_path: Path) -> None:
    _, report = trained(tmp_path, "flip", 60)

    (finding,) = [one for one in report.findings if one.class_ == "silent_corruption"]
    assert (finding.severity, finding.ranks) == ("critical", "all")
    assert [row.value for row in finding.evidence if row.unit == "step"] == [30.0, 20.0]


@pytest.mark.bar  # as the demo without a fault
def test_a_healthy_training_is_none_of_them(tmp_path: Path) -> None:
    _, report = trained(tmp_path, "none", 90)

    assert not classes(report) & {"data_imbalance", "silent_corruption", "host_memory", "async_staleness"}
