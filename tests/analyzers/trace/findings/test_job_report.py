"""The report of a job: planted late ranks, slow groups and waits come back as findings, and the ledger sums."""

from pathlib import Path
from typing import Any

import pytest

from planting import Planted
from planting_ranks import NAMES, Group, PlantedJob
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Finding, Report

MS = 1_000_000
NCCL = NAMES["all_reduce"][1]


def judged(job: PlantedJob, folder: Path) -> Report:
    found = report(read_job(job.write(folder), executor=InProcess(), wanted=SummaryOptions(what_if=False)), "planted")
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
    found = judged(data_parallel(8, compute=100_000, jitter=6 * MS), tmp_path)

    assert "compute_straggler" not in findings(found)
    assert findings(found).get("data_imbalance") == "all"
    evidence = signals(finding(found, "data_imbalance"))
    longer = next(value for signal, value in evidence.items() if signal.startswith("computing of the rank that came last"))
    assert 0.0015 < longer < 0.004


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

    found = report(read_job(paths[1:], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "planted")

    assert any("3 of 4 ranks" in note.what for note in found.quality)


def test_one_rank_alone_says_that_stragglers_were_not_measured(tmp_path: Path) -> None:
    path = data_parallel(2).write(tmp_path)[0]

    found = report(read_job([path], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "planted")

    assert {"compute_straggler", "input_straggler", "slow_link"} <= {row.class_ for row in found.not_measured}


def test_a_trace_without_events_is_an_error_that_says_how_to_record_one(tmp_path: Path) -> None:
    path = Planted().write(tmp_path / "empty.json")

    with pytest.raises(TachoscopeError, match="no event") as error:
        report(read_job([path], executor=InProcess(), wanted=SummaryOptions()), "empty")
    assert "docs/guides/traces.md" in str(error.value)


def finding(found: Report, slug: str) -> Finding:
    return next(row for row in found.findings if row.class_ == slug)


def signals(found: Finding) -> dict[str, float]:
    return {row.signal: row.value for row in found.evidence}


def test_traces_that_nothing_ties_together_are_not_judged_as_one_job(tmp_path: Path) -> None:
    for name, begin in (("monday", 1_000 * MS), ("tuesday", 90_000_000 * MS)):
        trace = Planted(rank=None)
        trace.kernel("k", begin, MS)
        trace.write(tmp_path / f"{name}.json")

    with pytest.raises(TachoscopeError, match="these 2 traces do not appear to be of one job"):
        report(read_job([tmp_path], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "planted")


def test_ranks_that_always_come_together_have_no_straggler(tmp_path: Path) -> None:
    found = judged(data_parallel(3, jitter=0), tmp_path)

    assert found.ranks == 3
    assert not {"compute_straggler", "input_straggler", "data_imbalance", "unknown"} & {row.class_ for row in found.findings}


def test_a_straggler_costs_what_mending_it_alone_would_save_and_the_whole_wait_is_evidence(tmp_path: Path) -> None:
    found = judged(data_parallel(4, late={1: 4 * MS, 2: 3 * MS}, jitter=10_000), tmp_path)

    late = finding(found, "compute_straggler")
    assert late.ranks == [1]
    assert late.seconds_per_step == pytest.approx(0.001, rel=0.05)
    waited = next(value for signal, value in signals(late).items() if signal.startswith("mean wait of the others"))
    assert waited == pytest.approx((0.004 + 0.001 + 0.004) / 3, rel=0.05)
    assert late.speedup_if_fixed == pytest.approx(9.3 / 8.3, rel=0.01)


def test_a_late_rank_is_named_but_is_no_warning_where_another_one_is_nearly_as_late(tmp_path: Path) -> None:
    found = judged(data_parallel(4, late={1: 4 * MS, 2: 3_900_000}, jitter=10_000), tmp_path)

    late = finding(found, "compute_straggler")
    assert (late.ranks, late.severity) == ([1], "info")
    assert late.seconds_per_step == pytest.approx(0.0001, rel=0.1)


@pytest.mark.parametrize("device", [True, False])
def test_a_rank_whose_host_pauses_is_told_so_and_not_to_change_its_device(tmp_path: Path, device: bool) -> None:
    def pauses(rank: int, step: int) -> tuple[str, int]:
        return "", 4 * MS if rank == 1 else 0

    found = judged(data_parallel(2, before=pauses, jitter=10_000, device=device), tmp_path)

    late = finding(found, "host_pause")
    assert late.ranks == [1]
    assert late.seconds_per_step == pytest.approx(0.004, rel=0.05)
    assert "py-spy" in late.action
    assert "device" not in late.action
    assert signals(late)[next(name for name in signals(late) if name.startswith("host_wait of this rank"))] == pytest.approx(
        0.004, rel=0.05
    )
    assert sum(1 for row in found.findings if row.class_ in {"host_pause", "compute_straggler"}) == 1


def test_a_rank_whose_host_launches_late_is_a_straggler_by_its_host(tmp_path: Path) -> None:
    def slow_host(rank: int, step: int) -> tuple[str, int]:
        return "aten::contiguous", 4 * MS if rank == 1 else 1

    late = finding(judged(data_parallel(2, before=slow_host, jitter=10_000), tmp_path), "compute_straggler")

    assert late.ranks == [1]
    assert any("its host is late, not its device" in signal for signal in signals(late))
    assert "host" in late.action


def test_the_input_of_one_rank_is_reported_once(tmp_path: Path) -> None:
    def loads(rank: int, step: int) -> tuple[str, int]:
        return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 4 * MS if rank == 1 else 1

    found = judged(data_parallel(2, before=loads, jitter=10_000), tmp_path)

    late = finding(found, "input_straggler")
    assert late.ranks == [1]
    assert any("num_workers=0" in signal for signal in signals(late))
    assert not {"input_workers", "input_preprocess"} & {row.class_ for row in found.findings}


def test_what_all_ranks_wait_for_input_is_reported_beside_the_one_that_waits_longer(tmp_path: Path) -> None:
    def loads(rank: int, step: int) -> tuple[str, int]:
        return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (6 if rank == 1 else 3) * MS

    found = judged(data_parallel(2, before=loads, jitter=10_000), tmp_path)

    assert finding(found, "input_straggler").seconds_per_step == pytest.approx(0.003, rel=0.05)
    assert finding(found, "input_workers").seconds_per_step == pytest.approx(0.003, rel=0.05)


def test_evidence_of_one_rank_beside_a_mean_of_several_says_of_which_it_is(tmp_path: Path) -> None:
    def loads(rank: int, step: int) -> tuple[str, int]:
        return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", (8 if rank == 1 else 7) * MS // 2

    found = finding(judged(data_parallel(2, before=loads, jitter=10_000), tmp_path), "input_workers")

    assert found.seconds_per_step == pytest.approx(0.00375, rel=0.01)
    row = next(row for row in found.evidence if row.signal.startswith("data_wait"))
    assert row.value == pytest.approx(0.004, rel=0.05)
    assert "rank 1" in row.source
    assert "mean of 2 ranks" in row.source


def test_jitter_of_two_ranks_is_not_uneven_data(tmp_path: Path) -> None:
    found = judged(data_parallel(2, compute=2 * MS, jitter=7 * MS), tmp_path)

    assert found.ledgers[0].states["straggler_wait"] / found.ledgers[0].wall_seconds > 0.1
    assert not {"data_imbalance", "compute_straggler"} & {row.class_ for row in found.findings}


def test_waiting_for_ranks_in_turn_that_do_not_compute_longer_is_unknown_and_not_uneven_data(tmp_path: Path) -> None:
    found = judged(data_parallel(8, before=lambda rank, step: ("", 6 * MS if rank == step % 8 else 0), jitter=10_000), tmp_path)

    assert finding(found, "unknown").runner_up.class_ == "data_imbalance"  # type: ignore[union-attr]
    assert "data_imbalance" not in {row.class_ for row in found.findings}


def communicating(folder: Path, ranks: int) -> PlantedJob:
    return PlantedJob(ranks, [Group("0", range(ranks), "dp", transfer=5 * MS)], steps=12, jitter=10_000)


def test_one_file_of_a_larger_job_says_what_is_missing_and_that_transfer_may_be_waiting(tmp_path: Path) -> None:
    paths = communicating(tmp_path, 4).write(tmp_path)
    one, all_of_them = (
        report(read_job(some, executor=InProcess(), wanted=SummaryOptions(what_if=False)), "x") for some in (paths[2:3], paths)
    )

    assert any("1 of 4 ranks is here, without ranks 0, 1, 3" in note.what for note in one.quality)
    alone, together = finding(one, "comm_exposed"), finding(all_of_them, "comm_exposed")
    assert (alone.ranks, together.ranks) == ([2], "all")
    assert alone.confidence == 0.5
    assert together.confidence > 0.9
    assert any("waiting for a late rank" in signal for signal in signals(alone))
    assert not any("waiting for a late rank" in signal for signal in signals(together))


def test_the_only_rank_of_a_job_of_one_has_nothing_missing(tmp_path: Path) -> None:
    path = data_parallel(1).write(tmp_path)[0]

    found = report(read_job([path], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "x")

    assert not any("here, without" in note.what for note in found.quality)
    assert {str(row.ranks) for row in found.findings} <= {"all"}


def behind_its_host(folder: Path) -> Path:
    """Steps of 10 ms in which the host is busy throughout; what it has started exchanges for 4 ms meanwhile."""
    trace = Planted()
    for step in range(10):
        begin = 1_000 * MS + step * 10 * MS
        trace.step(step, begin, 10 * MS)
        trace.op("aten::mm", begin, 9_990_000)
        trace.kernel(NCCL, begin + 100_000, 4 * MS, launched=begin + 90_000, stream=20)
        trace.kernel("sgemm_tn", begin + 9 * MS, 900_000, launched=begin + 9 * MS - 10_000)
    return trace.write(folder / "trace.json")


def test_a_loss_whose_removal_brings_nothing_is_no_warning_and_says_why(tmp_path: Path) -> None:
    found = report(read_job([behind_its_host(tmp_path)], executor=InProcess(), wanted=SummaryOptions()), "x")

    hidden = finding(found, "comm_exposed")
    assert hidden.share == pytest.approx(0.4, abs=0.01)
    assert hidden.severity == "info"
    assert hidden.speedup_if_fixed == pytest.approx(1.0, abs=0.01)
    assert any("does not shorten the step" in signal for signal in signals(hidden))


def test_of_communication_on_cpu_no_replay_is_claimed(tmp_path: Path) -> None:
    job = PlantedJob(2, [Group("0", range(2), "dp", transfer=5 * MS)], steps=12, jitter=10_000, device=False)

    found = report(read_job(job.write(tmp_path), executor=InProcess(), wanted=SummaryOptions()), "x")

    exposed = finding(found, "comm_exposed")
    assert exposed.speedup_if_fixed == pytest.approx(2.0, abs=0.05)
    assert not any("replay" in row.source for row in exposed.evidence)
    assert any("subtracts the loss" in note.means for note in found.quality)


def test_where_hardly_anything_else_is_in_the_trace_no_speed_up_is_claimed(tmp_path: Path) -> None:
    trace = Planted()
    trace.device("kernel", NCCL, 1_000 * MS, MS)

    found = report(read_job([trace.write(tmp_path / "t.json")], executor=InProcess(), wanted=SummaryOptions()), "x")

    assert finding(found, "comm_exposed").speedup_if_fixed is None


def test_no_speed_up_is_more_than_leaves_the_computing(tmp_path: Path) -> None:
    found = report(read_job([behind_its_host(tmp_path)], executor=InProcess(), wanted=SummaryOptions(what_if=False)), "x")

    most = found.step_seconds.mean / (found.ledgers[0].states["compute"] / found.window.steps)
    assert found.findings
    assert all(row.speedup_if_fixed is not None and row.speedup_if_fixed <= most * 1.001 for row in found.findings)
