"""Who took the cores that a training thread waited for: planted heartbeats of a machine with two cores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from making import beat, job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.records.records import Heartbeat
from tachoscope_core.report.report import Finding

STEPS = 100


def heard(rank: int, *, process: float, workers: float = 0.0, busy: float = 2.0, old: bool = False) -> Heartbeat:
    """Return a heartbeat of a window of 5 s; `process`, `workers` and `busy` are cores."""
    signals = {"process_cpu_seconds": 5 * process, "idle_core_seconds": 5 * (2 - busy)}
    if not old:
        signals["busy_core_seconds"] = 5 * busy
    if workers:
        signals |= {"workers": 4.0, "worker_cpu_seconds": 5 * workers}
    return beat(rank, signals=signals)


def contention(tmp_path: Path, beats: list[Heartbeat], ranks: int = 1, **options: Any) -> Finding:
    phases = {"data_wait": 0.001, "forward": 0.050, "backward": 0.040, "optimizer": 0.004}
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job([[phases] * ranks] * STEPS, delay=[[0.030] * ranks] * STEPS, heartbeats=beats, **options))
    (finding,) = analyze(from_spool([path])).findings
    assert finding.class_ == "cpu_contention"
    assert finding.seconds_per_step == pytest.approx(0.030)
    return finding


@pytest.mark.parametrize("old", [False, True])
def test_other_processes_are_a_condition_of_the_machine_and_never_critical(tmp_path: Path, old: bool) -> None:
    finding = contention(tmp_path, [heard(0, process=0.7, old=old)])

    assert (finding.cause, finding.condition, finding.severity) == ("other_processes", True, "warning")
    assert "other processes use 1.3 of the 2 cores" in finding.action


def test_the_jobs_own_loader_workers_are_the_jobs_to_change(tmp_path: Path) -> None:
    finding = contention(tmp_path, [heard(0, process=0.6, workers=1.35)])

    assert (finding.cause, finding.condition, finding.severity) == ("loader_workers", False, "critical")
    assert "1.4 of the 2 cores" in finding.action or "1.3 of the 2 cores" in finding.action
    assert "4 workers" in finding.action
    assert "other processes" not in finding.action


def test_so_are_more_compute_threads_than_cores(tmp_path: Path) -> None:
    finding = contention(tmp_path, [heard(0, process=1.95)], threads=4)

    assert (finding.cause, finding.condition, finding.severity) == ("compute_threads", False, "critical")
    assert finding.action.startswith("OMP_NUM_THREADS=2")


def test_and_more_ranks_than_cores(tmp_path: Path) -> None:
    finding = contention(tmp_path, [heard(rank, process=0.48) for rank in range(4)], ranks=4)

    assert (finding.cause, finding.condition) == ("other_ranks", False)
    assert "4 ranks train on the 2 cores" in finding.action


def test_ranks_that_compute_at_once_and_leave_cores_idle_otherwise_are_told_without_a_warning(tmp_path: Path) -> None:
    beats = [heard(rank, process=0.12, busy=0.75) for rank in range(4)]
    finding = contention(tmp_path, beats, ranks=4)

    assert (finding.cause, finding.condition, finding.severity) == ("ranks_at_once", True, "info")
    assert "1.3 are idle" in finding.action or "1.2 are idle" in finding.action
    assert "fewer ranks would do less work" in finding.action


def test_what_nobody_was_seen_taking_is_a_condition_such_as_a_quota(tmp_path: Path) -> None:
    finding = contention(tmp_path, [heard(0, process=0.6, busy=0.7)])

    assert (finding.cause, finding.condition) == ("", True)


def test_the_cores_of_each_are_in_the_evidence(tmp_path: Path) -> None:
    finding = contention(tmp_path, [heard(0, process=0.5, workers=0.3)])

    used = {row.signal: row.value for row in finding.evidence if row.unit == "cores"}
    assert list(used.values()) == pytest.approx([0.5, 0.3, 0.0, 1.2])
    assert np.isclose(sum(used.values()), 2.0)
