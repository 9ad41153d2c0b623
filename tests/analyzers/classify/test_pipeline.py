"""Pipelines of which every second is planted: each micro-batch's work on each stage, and the order in which stages wait for it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import job, moved
from tachoscope_analyzers.classify.communication import slow_link
from tachoscope_analyzers.classify.pipeline import attribution
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.steps import CAUSES, aligned
from tachoscope_core.report.report import Report

STEPS = 60
UPDATE = 0.002
FORWARD = 0.4
"""Part of a micro-batch's work that is forward."""


def fill_and_drain(work: np.ndarray, update: float = UPDATE) -> list[dict[str, float]]:
    """Return the phases of one step by stage: all forwards, then all backwards (GPipe); `work[s][i]` seconds of micro-batch i."""
    stages, micro = work.shape
    forward = np.zeros((stages, micro))
    backward = np.zeros((stages, micro))
    for stage in range(stages):
        for i in range(micro):
            ready = max(forward[stage, i - 1] if i else 0.0, forward[stage - 1, i] if stage else 0.0)
            forward[stage, i] = ready + FORWARD * work[stage, i]
    for stage in reversed(range(stages)):
        for i in range(micro):
            before = backward[stage, i - 1] if i else forward[stage, -1]
            after = backward[stage + 1, i] if stage < stages - 1 else 0.0
            backward[stage, i] = max(before, after) + (1 - FORWARD) * work[stage, i]
    end = backward.max() + update
    own = work.sum(axis=1)
    return [
        {
            "forward": float(FORWARD * own[stage]),
            "backward": float((1 - FORWARD) * own[stage]),
            "optimizer": update,
            "collective": float(end - own[stage] - update),
        }
        for stage in range(stages)
    ]


def replicas(work: np.ndarray) -> list[dict[str, float]]:
    """Return the phases of one step by rank, stage by stage: `work[s][d][i]`; all replicas wait for the slowest one's update."""
    rows = [fill_and_drain(work[:, replica]) for replica in range(work.shape[1])]
    end = max(sum(row[0].values()) for row in rows)
    return [
        row[stage] | {"collective": row[stage]["collective"] + end - sum(row[stage].values())}
        for stage in range(work.shape[0])
        for row in rows
    ]


def written(tmp_path: Path, steps: list[list[dict[str, float]]], **options: Any) -> JobRecords:
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, **options))
    return from_spool([path])


def report(tmp_path: Path, work: np.ndarray, noise: float = 0.02, **options: Any) -> Report:
    """Judge a job of which every step has `work[s][d][i]` with some noise."""
    random = np.random.default_rng(1)
    steps = [replicas(work * random.normal(1, noise, work.shape)) for _ in range(STEPS)]
    stages, width, micro = work.shape
    chains = [[stage * width + replica for stage in range(stages)] for replica in range(width)]
    return analyze(written(tmp_path, steps, backward_calls=micro, **{"pipelines": chains, **options}))


def even(stages: int, width: int, micro: int, seconds: float = 0.02) -> np.ndarray:
    return np.full((stages, width, micro), seconds)


@pytest.mark.parametrize(("stages", "width", "micro"), [(2, 1, 4), (4, 1, 8), (2, 2, 2), (4, 2, 3)])
def test_waiting_of_even_stages_is_the_bubble_of_the_formula_and_nobody_is_accused(
    tmp_path: Path, stages: int, width: int, micro: int
) -> None:
    result = report(tmp_path, even(stages, width, micro))

    assert [finding.class_ for finding in result.findings] == ["pipeline_bubble"]
    found = result.findings[0]
    assert found.seconds_per_step == pytest.approx((stages - 1) * 0.02, rel=0.1)
    assert found.share == pytest.approx((stages - 1) / (micro + stages - 1), rel=0.12)
    assert found.ranks == "all"
    assert "pipeline_bubble" not in {row.class_ for row in result.not_measured}


@pytest.mark.parametrize(("stages", "micro", "transfer"), [(2, 4, 0.0), (4, 8, 0.0), (2, 4, 0.05)])
def test_the_bubble_measured_stands_beside_the_ideal_one(tmp_path: Path, stages: int, micro: int, transfer: float) -> None:
    steps = [replicas(even(stages, 1, micro)) for _ in range(STEPS)]
    for row in (row for rows in steps for row in rows):
        row["collective"] += transfer
    found = analyze(written(tmp_path, steps, backward_calls=micro, pipelines=[list(range(stages))])).findings
    bubble = next(one for one in found if one.class_ == "pipeline_bubble")
    of_work, of_step = (row for row in bubble.evidence if "(v m" in row.signal)
    work = 0.02 * micro

    assert of_work.threshold == (stages - 1) / micro
    assert of_work.value == pytest.approx(((stages - 1) * 0.02 + transfer) / (work + UPDATE), rel=1e-6)
    assert of_step.threshold == pytest.approx((stages - 1) / (micro + stages - 1))
    assert [row.comparison for row in (of_work, of_step)] == [">" if transfer else "<="] * 2


@pytest.mark.parametrize(("stages", "width", "micro", "slow"), [(2, 1, 4, 1), (4, 1, 8, 2), (4, 2, 4, 0)])
def test_a_stage_with_more_layers_is_named_with_what_an_even_split_would_win(
    tmp_path: Path, stages: int, width: int, micro: int, slow: int
) -> None:
    work = even(stages, width, micro)
    work[slow] += 0.012
    work[(slow + 1) % stages] -= 0.012
    result = report(tmp_path, work)
    fixed = report(tmp_path, even(stages, width, micro))

    found = {finding.class_: finding for finding in result.findings}
    won = result.step_seconds.mean - fixed.step_seconds.mean
    assert "compute_straggler" not in found
    assert found["stage_imbalance"].ranks == list(range(slow * width, (slow + 1) * width))
    assert found["stage_imbalance"].seconds_per_step == pytest.approx(won, rel=0.1)


def test_one_slow_rank_of_a_stage_is_a_straggler_and_the_stage_is_not_to_blame(tmp_path: Path) -> None:
    work = even(2, 3, 4)
    work[1, 2] += 0.015
    result = report(tmp_path, work)
    fixed = report(tmp_path, even(2, 3, 4))

    found = {finding.class_: finding for finding in result.findings}
    assert found["compute_straggler"].ranks == [5]
    assert found["compute_straggler"].seconds_per_step == pytest.approx(result.step_seconds.mean - fixed.step_seconds.mean, rel=0.1)
    assert "stage_imbalance" not in found


def test_an_uneven_split_with_one_micro_batch_costs_nothing_since_stages_never_overlap(tmp_path: Path) -> None:
    work = even(2, 1, 1)
    work[1] += 0.02

    assert [finding.class_ for finding in report(tmp_path, work).findings] == ["pipeline_bubble"]


def test_a_stage_that_is_slow_at_random_has_no_more_layers_than_the_others(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    steps = []
    for _ in range(STEPS):
        work = even(2, 1, 4)
        work[random.integers(2)] *= 1.9
        steps.append(replicas(work))
    result = analyze(written(tmp_path, steps, backward_calls=4, pipelines=[[0, 1]]))

    assert not {"stage_imbalance", "compute_straggler"} & {finding.class_ for finding in result.findings}


def chain(*ranks: int, seconds: float = 0.0001) -> list[Any]:
    """Summaries of ranks that send to the next one and back."""
    rows = []
    for first, second in pairwise(ranks):
        for seq, (a, b) in enumerate(((first, second), (second, first))):
            count = STEPS * 4
            rows.append(moved(a, "send", 20_000 + 10 * b + seq, peer=b, step=STEPS, count=count, seconds=count * seconds))
            rows.append(moved(b, "recv", 30_000 + 10 * a + seq, peer=a, step=STEPS, count=count, seconds=count * 2 * seconds))
    return rows


def test_without_a_layout_a_chain_of_sends_and_receives_with_micro_batches_is_a_pipeline(tmp_path: Path) -> None:
    result = report(tmp_path, even(3, 1, 4), pipelines=None, collectives=chain(0, 1, 2))

    assert [finding.class_ for finding in result.findings] == ["pipeline_bubble"]


@pytest.mark.parametrize("ranks", [(0, 1, 2, 0), (0, 1)])
def test_a_ring_or_ranks_apart_are_no_pipeline(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    result = report(tmp_path, even(3, 1, 4), pipelines=None, collectives=chain(*ranks))

    assert not {"pipeline_bubble", "stage_imbalance"} & {finding.class_ for finding in result.findings}


def test_two_ranks_that_send_each_other_gradients_once_a_step_are_no_pipeline(tmp_path: Path) -> None:
    result = report(tmp_path, even(2, 1, 1), pipelines=None, collectives=chain(0, 1))

    assert "pipeline_bubble" not in {finding.class_ for finding in result.findings}


def test_without_layout_and_summaries_pipelines_are_not_measured(tmp_path: Path) -> None:
    result = report(tmp_path, even(2, 1, 4), pipelines=None)

    assert {"pipeline_bubble", "stage_imbalance"} <= {row.class_ for row in result.not_measured}


def test_what_stages_are_blocked_for_by_sending_is_communication_and_no_bubble(tmp_path: Path) -> None:
    micro, sending = 4, 0.01
    steps = [replicas(even(2, 1, micro)) for _ in range(STEPS)]
    for row in steps:
        for rank in row:
            rank["collective"] += 2 * micro * sending
    result = analyze(written(tmp_path, steps, backward_calls=micro, pipelines=[[0, 1]], collectives=chain(0, 1, seconds=sending)))

    found = {finding.class_: finding for finding in result.findings}
    assert found["comm_exposed"].seconds_per_step == pytest.approx(2 * micro * sending, rel=0.1)
    assert found["pipeline_bubble"].seconds_per_step == pytest.approx(0.02, rel=0.1)


def test_on_devices_where_stages_cannot_be_judged_no_stage_is_called_a_straggler(tmp_path: Path) -> None:
    phases = {"forward": 0.07, "backward": 0.07, "optimizer": 0.002}
    device = [{"gap": 0.0, "forward": 0.05, "backward": 0.09, "optimizer": 0.002}, {"forward": 0.09, "backward": 0.05}]
    lines = job([[phases] * 2] * STEPS, device="cuda", pipelines=[[0, 1]]).splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    for row in rows:
        if row["kind"] == "StepDone":
            row |= {"device_seconds": device[row["rank"]]}
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    result = analyze(from_spool([path]))

    assert "compute_straggler" not in {finding.class_ for finding in result.findings}
    assert any(finding.class_ == "unknown" and finding.ranks == [1] for finding in result.findings)
    assert {"pipeline_bubble", "stage_imbalance"} <= {row.class_ for row in result.not_measured}


SECONDS = st.floats(0.0001, 0.05)


@given(data=st.data())
def test_whatever_the_stages_do_losses_sum_to_the_step_and_states_to_the_wall_time(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stages, width, micro = data.draw(st.tuples(st.integers(2, 4), st.integers(1, 2), st.integers(1, 4)))
    work = data.draw(st.lists(SECONDS, min_size=stages * width * micro, max_size=stages * width * micro))
    random = np.random.default_rng(0)
    shape = (stages, width, micro)
    steps = [replicas(np.array(work).reshape(shape) * random.lognormal(0, 0.5, shape)) for _ in range(12)]
    chains = [[stage * width + replica for stage in range(stages)] for replica in range(width)]
    records = written(tmp_path_factory.mktemp("job"), steps, backward_calls=micro, pipelines=chains)

    table = aligned(records)
    found = attribution.find(records, table)
    assert found is not None
    split = attribution.attribute(table, found, slow_link.moving(records, table, slow_link.flows(records, table)))
    parts = sum((split.common[cause] + split.excess[cause].sum(axis=1) for cause in CAUSES), split.transfer)
    np.testing.assert_allclose(parts + split.bubble + split.imbalance + split.unexplained, split.step, atol=1e-8)
    for seconds in (split.transfer, split.bubble, split.unexplained, split.straggling):
        assert seconds.min() >= -1e-9
    for ledger in analyze(records).ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01, abs=1e-6)
