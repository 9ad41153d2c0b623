"""The report of a job: planted late ranks, slow groups and waits come back as findings, and the ledger sums."""

from pathlib import Path
from typing import Any

import pytest

from planting import Planted
from planting_ranks import Group, PlantedJob
from tachoscope_analyzers.trace.executor import InProcess
from tachoscope_analyzers.trace.job_report import report
from tachoscope_analyzers.trace.rank_summary import Wanted
from tachoscope_analyzers.trace.ranks import read_job
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report import Report

MS = 1_000_000


def judged(job: PlantedJob, folder: Path) -> Report:
    found = report(read_job(job.write(folder), executor=InProcess(), wanted=Wanted(what_if=False)), "planted")
    for ledger in found.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=1e-6)
    return found


def findings(found: Report) -> dict[str, Any]:
    return {row.class_: row.ranks for row in found.findings if row.severity != "info"}


def data_parallel(ranks: int, **changes: Any) -> PlantedJob:
    return PlantedJob(ranks, [Group("0", range(ranks), "default_pg")], steps=12, **changes)


@pytest.mark.parametrize("late", [0, 2, 3])
def test_the_rank_that_all_wait_for_is_named_with_what_its_lateness_costs(tmp_path: Path, late: int) -> None:
    found = judged(data_parallel(4, late={late: 2 * MS}, jitter=100_000), tmp_path)

    assert findings(found)["compute_straggler"] == [late]
    finding = next(row for row in found.findings if row.class_ == "compute_straggler")
    assert finding.seconds_per_step == pytest.approx(0.002, rel=0.1)
    assert finding.confidence > 0.8
    assert found.ledgers[0].states["straggler_wait"] == pytest.approx(0.002 * 3 * 12, rel=0.1)


def test_clocks_that_are_hours_apart_change_nothing(tmp_path: Path) -> None:
    offsets = {1: 3_600 * 10**9, 2: -40 * MS}

    found = judged(data_parallel(3, late={1: 2 * MS}, jitter=100_000, offsets=offsets), tmp_path)

    assert findings(found)["compute_straggler"] == [1]


def test_a_job_without_a_late_rank_has_no_straggler(tmp_path: Path) -> None:
    found = judged(data_parallel(4, jitter=200_000), tmp_path)

    assert not {"compute_straggler", "input_straggler", "data_imbalance"} & set(findings(found))


def test_a_late_rank_that_changes_each_step_is_uneven_data_and_no_straggler(tmp_path: Path) -> None:
    found = judged(data_parallel(4, compute=1 * MS, jitter=6 * MS), tmp_path)

    assert "compute_straggler" not in findings(found)
    assert findings(found).get("data_imbalance") == "all"


def test_transfer_that_nothing_hides_is_exposed_communication(tmp_path: Path) -> None:
    job = PlantedJob(4, [Group("0", range(4), "dp", transfer=5 * MS)], steps=12, jitter=10_000)

    found = judged(job, tmp_path)

    assert findings(found)["comm_exposed"] == "all"
    assert next(row for row in found.findings if row.class_ == "comm_exposed").share == pytest.approx(0.5, abs=0.02)


def test_the_group_that_moves_at_a_fraction_of_its_sisters_rate_has_a_slow_link(tmp_path: Path) -> None:
    groups = [Group(f"tp{place}", (2 * place, 2 * place + 1), "tp", transfer=1 * MS) for place in range(3)]
    groups[1] = Group("tp1", (2, 3), "tp", transfer=8 * MS)

    found = judged(PlantedJob(6, groups, steps=12, jitter=10_000), tmp_path)

    assert findings(found)["slow_link"] == [2, 3]


def test_a_rank_whose_trace_is_missing_is_told_before_anything_else(tmp_path: Path) -> None:
    paths = data_parallel(4).write(tmp_path)

    found = report(read_job(paths[1:], executor=InProcess(), wanted=Wanted(what_if=False)), "planted")

    assert any("3 of 4 ranks" in note.what for note in found.quality)


def test_one_rank_alone_says_that_stragglers_were_not_measured(tmp_path: Path) -> None:
    path = data_parallel(2).write(tmp_path)[0]

    found = report(read_job([path], executor=InProcess(), wanted=Wanted(what_if=False)), "planted")

    assert {"compute_straggler", "input_straggler", "slow_link"} <= {row.class_ for row in found.not_measured}


def test_a_trace_without_events_is_an_error_that_says_how_to_record_one(tmp_path: Path) -> None:
    path = Planted().write(tmp_path / "empty.json")

    with pytest.raises(TachoscopeError, match="no event") as error:
        report(read_job([path], executor=InProcess(), wanted=Wanted()), "empty")
    assert "docs/traces.md" in str(error.value)
