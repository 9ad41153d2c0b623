"""Short memory: pressure of the host within the steps of a rank that reads its pages back: planted heartbeats."""

from pathlib import Path

import numpy as np
import pytest

from making import beat, envelope
from synchronous import BASE, TRANSFER, bad, names, planted, signal
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.records import records
from tachoscope_core.report.report import Report

STEPS = 200
MIB = float(1 << 20)


def beats(pressure: list[float], faults: list[float], seconds: float, grows: float = 0.0) -> list[records.Heartbeat]:
    """Return a heartbeat a second of each of two ranks, `pressure` and `faults` of each within that second."""
    return [
        records.Heartbeat(
            **envelope(rank, 10_000 + number, monotonic_ns=number * 10**9),
            step=1,
            window_seconds=1.0,
            signals={
                "pressure_memory_seconds": pressure[rank],
                "major_faults": faults[rank],
                "resident_bytes": 500 * MIB + grows * number,
                "available_bytes": 20 * MIB,
            },
        )
        for number in range(1, int(seconds) + 2)
        for rank in range(2)
    ]


def report(tmp_path: Path, pressure: list[float], faults: list[float], grows: float = 0.0) -> Report:
    slow = np.zeros((STEPS, 2))
    slow[:, 1] = 0.030
    seconds = STEPS * (sum(BASE.values()) + 0.030 + TRANSFER)
    return analyze(planted(tmp_path, {"forward": slow}, list(beats(pressure, faults, seconds, grows))))


def test_a_rank_that_reads_its_pages_back_under_pressure_is_short_of_memory_and_no_straggler(tmp_path: Path) -> None:
    (finding,) = bad(report(tmp_path, [0.3, 0.3], [0.0, 400.0], grows=3 * MIB))

    assert (finding.class_, finding.ranks) == ("host_memory", [1])
    assert finding.seconds_per_step == pytest.approx(0.3 * (sum(BASE.values()) + 0.030 + TRANSFER), rel=0.05)
    assert signal(finding, "resident memory grows by") == pytest.approx(3 * MIB, rel=0.01)
    assert signal(finding, "pages read back") == pytest.approx(400.0)


@pytest.mark.parametrize(("pressure", "faults"), [([0.3, 0.3], [0.0, 0.0]), ([0.0, 0.0], [400.0, 400.0])])
def test_pressure_that_hits_others_and_faults_without_pressure_leave_the_straggler_what_it_is(
    tmp_path: Path, pressure: list[float], faults: list[float]
) -> None:
    assert names(bad(report(tmp_path, pressure, faults))) == ["compute_straggler"]


def test_where_the_kernel_counts_no_pressure_standing_still_while_pages_come_back_tells(tmp_path: Path) -> None:
    slow = np.zeros((STEPS, 2))
    slow[:, 1] = 0.030
    seconds = STEPS * (sum(BASE.values()) + 0.030 + TRANSFER)
    rows = list(beats([0.0, 0.0], [0.0, 400.0], seconds))

    (finding,) = bad(analyze(planted(tmp_path, {"forward": slow}, rows, still=(slow * 0.7).tolist())))

    assert (finding.class_, finding.ranks) == ("host_memory", [1])
    assert finding.seconds_per_step == pytest.approx(0.030, rel=0.05)


def test_memory_that_grows_without_pressure_costs_nothing_yet(tmp_path: Path) -> None:
    assert "host_memory" not in names(bad(report(tmp_path, [0.0, 0.0], [0.0, 0.0], grows=50 * MIB)))


def test_without_heartbeats_that_say_it_memory_is_not_measured(tmp_path: Path) -> None:
    with_them = report(tmp_path, [0.0, 0.0], [0.0, 0.0])
    without = analyze(planted(tmp_path, {"forward": np.zeros((STEPS, 2))}, heartbeats=[beat(0), beat(1)]))

    assert "host_memory" not in {row.class_ for row in with_them.not_measured}
    assert "host_memory" in {row.class_ for row in without.not_measured}
