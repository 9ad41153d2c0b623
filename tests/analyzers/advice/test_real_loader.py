"""A real training whose samples cost a known time: with the workers that the first run is advised, the second hardly waits."""

import re
import sys
from pathlib import Path

import pytest

from helpers import REPOSITORY, records_of, run_watched
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.report.report import Report

pytestmark = [pytest.mark.alone, pytest.mark.bar]  # simulated loaders show it in each test

SCRIPT = str(REPOSITORY / "tests" / "trainings" / "injected_training.py")


def trained(tmp_path: Path, workers: int) -> Report:
    """Train with two ranks whose every sample, a batch, takes 80 ms of sleep; return the report."""
    folder, job = tmp_path / "data", f"workers-{workers}"
    folder.mkdir(exist_ok=True)
    done = run_watched(tmp_path, sys.executable, SCRIPT, "data_both", "60", str(folder), "--workers", str(workers), job=job)
    assert done.returncode == 0, done.stderr
    return analyze(records_of(tmp_path, job))


def waiting(report: Report) -> float:
    """Return the share of the time in which ranks wait for data."""
    return report.ledgers[0].states.get("data_wait", 0.0) / report.ledgers[0].wall_seconds


@pytest.mark.parametrize("before", [0, 1])
def test_with_the_advised_workers_the_wait_is_gone(tmp_path: Path, before: int) -> None:
    slow = trained(tmp_path, before)
    found = next(row for row in slow.findings if row.class_ == "input_workers")
    advised = int(re.findall(r"num_workers=(\d+)", found.action)[0])
    assert advised > before

    quick = trained(tmp_path, advised)

    assert not [row.class_ for row in quick.findings if row.class_.startswith("input") and row.severity != "info"]
    assert waiting(quick) < 0.1 * waiting(slow) + 0.02
    assert quick.step_seconds.mean < slow.step_seconds.mean
