"""The report on recorded operations: planted causes get their name, and their look-alikes do not."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.pipeline_operations.report import judged as judged_with_parts
from benchmarks.pipeline_operations.report import report
from operations_making import Plan, operations, write

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report

CAUSES = ("stage_imbalance", "compute_straggler", "data_imbalance", "host_pause", "slow_link")


def drawn(slug: str, seed: int) -> tuple[Plan, list[int] | str]:
    """A job of random shape with a fault that is worth at least a tenth of the step, and the ranks to blame."""
    draw = np.random.default_rng([seed, CAUSES.index(slug)])
    stages, replicas, batches = int(draw.integers(2, 5)), int(draw.integers(2, 5)), int(draw.integers(6, 13))
    stage, replica = int(draw.integers(stages)), int(draw.integers(replicas))
    shape = {"stages": stages, "replicas": replicas, "batches": batches, "steps": 10, "seed": seed}
    shape |= {"jitter": float(draw.choice([0.005, 0.02]))}
    step = (batches + stages) * 0.030
    if slug == "stage_imbalance":
        return Plan(stage={stage: float(draw.uniform(1.7, 2.2))}, **shape), [stage + stages * one for one in range(replicas)]
    if slug == "compute_straggler":
        return Plan(worker={(stage, replica): float(draw.uniform(1.4, 2.0))}, **shape), [stage + stages * replica]
    if slug == "data_imbalance":
        return Plan(lengths=float(draw.uniform(0.4, 0.6)), power=float(draw.choice([1.0, 1.5])), **shape), "all"
    if slug == "host_pause":
        per_step = stages * replicas * (batches if seed % 2 else 1)
        pause = (min(2.0 / per_step, 1.0), 0.4 * step)
        return Plan(**({"pause": pause} if seed % 2 else {"collect": pause}), **shape), "all"
    stage = int(draw.integers(stages - 1))
    slow = Plan(slow_pair=(stage, replica), slow_transfer=0.02, **shape)
    return slow, [stage + stages * replica, stage + 1 + stages * replica]


def judged(folder: Path, plan: Plan) -> Report:
    return report(write(folder, plan))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("slug", CAUSES)
@pytest.mark.bar  # of a benchmark
def test_a_planted_cause_is_the_largest_and_only_finding_with_its_ranks(tmp_path: Path, slug: str, seed: int) -> None:
    plan, ranks = drawn(slug, seed)

    found = judged(tmp_path, plan)

    assert [finding.class_ for finding in found.findings] == [slug]
    if slug != "host_pause":
        assert found.findings[0].ranks == ranks


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.bar) for seed in range(2, 6))])
def test_a_job_without_fault_has_no_warning(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    plan = Plan(stages=int(draw.integers(1, 5)), replicas=int(draw.integers(1, 5)), batches=8, steps=10, jitter=0.02, seed=seed)

    found = judged(tmp_path, plan)

    assert {finding.severity for finding in found.findings} <= {"info"}
    assert {finding.class_ for finding in found.findings if not finding.small} <= {"compute_bound", "pipeline_bubble"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.bar  # of a benchmark
def test_of_two_causes_both_are_found_the_larger_one_first(tmp_path: Path, seed: int) -> None:
    plan = Plan(steps=10, replicas=3, lengths=0.4, stage={3: 2.2}, seed=seed)
    both = judged(tmp_path, plan).findings
    worker = judged(tmp_path, Plan(steps=10, replicas=3, stage={3: 1.6}, worker={(1, 2): 2.0}, seed=seed)).findings

    assert {finding.class_ for finding in both} == {"data_imbalance", "stage_imbalance"}
    assert [finding.seconds_per_step for finding in both] == sorted((f.seconds_per_step for f in both), reverse=True)
    assert worker[0].class_ == "compute_straggler"
    assert worker[0].ranks == [9]


def test_two_slow_workers_are_both_named(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, replicas=4, worker={(0, 1): 1.5, (2, 3): 1.5}))

    assert (found.findings[0].class_, found.findings[0].ranks) == ("compute_straggler", [4, 14])


def test_jitter_of_single_operations_is_no_class(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, jitter=0.5))

    assert {finding.class_ for finding in found.findings} == {"unknown"}


def test_transfers_that_are_slow_for_everybody_now_and_then_are_the_network(tmp_path: Path) -> None:
    rows = operations(Plan(steps=10))
    slow = rows["optype"].isin(["optimizer-clip-main-grad"]) & (rows["step"] < 30)
    rows.loc[slow, "duration"] += 0.2
    late = rows["optype"].eq("optimizer") & (rows["step"] < 30)
    rows.loc[late, "start_ts"] += 0.2
    rows.to_parquet(tmp_path / "trace-x.parquet")

    found = report(tmp_path / "trace-x.parquet")

    assert (found.findings[0].class_, found.findings[0].ranks) == ("network_degraded", "all")
    assert found.findings[0].seconds_per_step == pytest.approx(0.06, rel=0.15)


def test_delay_of_the_host_is_a_loss_of_unknown_cause_and_nobodys_fault(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, launch=0.004))

    assert [(one.class_, one.ranks) for one in found.findings] == [("unknown", "all")]
    assert "launch and host delay" in found.findings[0].evidence[1].signal
    assert found.findings[0].runner_up is None or found.findings[0].runner_up.class_ == "launch_bound"


def test_a_replay_that_misses_the_recording_attributes_nothing(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, worker={(0, 0): 2.0}, skew={(1, 0): -0.1}))

    assert [finding.class_ for finding in found.findings] == ["unknown"]
    assert found.quality[0].severity == "bad"
    assert "misses the recorded steps" in found.quality[0].what


def test_with_one_replica_a_slow_worker_is_not_looked_for_and_the_stage_is_less_certain(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, replicas=1, worker={(1, 0): 2.0}))

    assert found.findings[0].class_ == "stage_imbalance"
    assert found.findings[0].confidence <= 0.5
    assert "compute_straggler" in {row.class_ for row in found.not_measured}


def test_with_one_stage_nothing_is_said_of_pipelines(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, stages=1, replicas=4, worker={(0, 2): 1.6}))

    assert (found.findings[0].class_, found.findings[0].ranks) == ("compute_straggler", [2])
    assert {"pipeline_bubble", "stage_imbalance"} <= {row.class_ for row in found.not_measured}


def test_a_job_with_interleaved_chunks_is_judged_too(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=10, stages=2, chunks=2, replicas=3, worker={(1, 2): 1.8}))

    assert (found.findings[0].class_, found.findings[0].ranks) == ("compute_straggler", [5])


def test_an_operation_that_nobody_knows_is_told_and_what_it_takes_is_unexplained(tmp_path: Path) -> None:
    rows = operations(Plan(steps=10))
    rows["optype"] = rows["optype"].replace("optimizer", "novel")
    odd = rows["optype"].eq("novel") & (rows["step"] == 0)
    rows.loc[odd, "duration"] += 1.0
    rows.to_parquet(tmp_path / "trace-x.parquet")

    found, parts = judged_with_parts(tmp_path / "trace-x.parquet")

    assert "operations of unknown kind: novel" in found.quality[0].what
    assert found.ledgers[0].states["unexplained"] == pytest.approx(rows.loc[rows["optype"] == "novel", "duration"].sum())
    assert {part.name: part.seconds for part in parts}["unexplained"] == pytest.approx(0.1)


def test_operations_that_do_not_fit_together_are_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    rows = operations(Plan(steps=3))
    path = tmp_path / "trace-x.parquet"
    rows[rows["optype"] != "forward-send"].to_parquet(path)

    with pytest.raises(TachoscopeError, match=r"trace-x.parquet: stage 0 has 0 forward-send a step"):
        report(path)


def test_one_step_of_one_worker_is_judged_too(tmp_path: Path) -> None:
    found = judged(tmp_path, Plan(steps=1, stages=1, replicas=1, batches=1))

    assert found.window.steps == 1
    assert {finding.severity for finding in found.findings} <= {"info"}


def test_every_finding_says_its_share_of_the_gap_and_what_mending_it_alone_brings(tmp_path: Path) -> None:
    finding = judged(tmp_path, Plan(steps=10, worker={(1, 1): 1.6})).findings[0]
    told = {row.signal: row.value for row in finding.evidence}

    assert told["share of the gap to the ideal step (Shapley value)"] > 0.95
    saved = told["saved if only this is fixed (leave one out)"]
    mean = finding.seconds_per_step / finding.share
    assert finding.speedup_if_fixed == pytest.approx(mean / (mean - saved))


@pytest.mark.parametrize("slug", CAUSES)
@pytest.mark.bar  # of a benchmark
def test_the_step_is_told_as_a_sum_whose_shares_of_the_gap_are_the_whole(tmp_path: Path, slug: str) -> None:
    found, parts = judged_with_parts(write(tmp_path, drawn(slug, 1)[0]))

    assert sum(part.seconds for part in parts) == pytest.approx(found.step_seconds.mean)
    assert sum(part.share for part in parts if part.share is not None) == pytest.approx(1.0)
    assert parts[0].name == "ideal step"
