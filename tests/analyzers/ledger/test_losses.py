"""What a step of data-parallel ranks loses, and what fixing some of them would bring."""

from pathlib import Path

import numpy as np
import pytest

from making import job
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.steps import CAUSES, Steps, aligned


def records(folder: Path, forward: list[float], data: list[float] | None = None) -> JobRecords:
    """Thirty steps in which each rank computes, loads, and then waits for the latest."""
    data = data or [0.0] * len(forward)
    own = [one + other for one, other in zip(forward, data, strict=True)]
    waits = [max(own) - one for one in own]
    row = [
        {"data_wait": loaded, "forward": computed, "backward": 0.02 + wait}
        for computed, loaded, wait in zip(forward, data, waits, strict=True)
    ]
    (folder / "0.jsonl").write_bytes(job([row] * 30, blocked=[waits] * 30))
    return from_spool([folder])


def steps(folder: Path, forward: list[float], data: list[float] | None = None) -> Steps:
    return aligned(records(folder, forward, data))


@pytest.mark.parametrize("forward", [[0.1, 0.1], [0.1, 0.2], [0.1, 0.1, 0.18, 0.2], [0.1]])
def test_common_excess_and_transfer_are_the_wall_time_of_the_latest_rank(tmp_path: Path, forward: list[float]) -> None:
    found = losses.attribute(steps(tmp_path, forward))
    total = sum(found.common[cause] + found.excess[cause].sum(axis=1) for cause in CAUSES) + found.transfer

    assert total == pytest.approx(found.step)


def test_mending_the_latest_rank_alone_brings_what_the_next_one_leaves(tmp_path: Path) -> None:
    made = steps(tmp_path, [0.1, 0.1, 0.18, 0.2])

    assert losses.saved(made, ["compute"], [3]) == pytest.approx(0.02)
    assert losses.saved(made, ["compute"], [2]) == pytest.approx(0.0)
    assert losses.saved(made, ["compute"], [2, 3]) == pytest.approx(0.1)
    assert losses.saved(made, ["data_wait"], [2, 3]) == pytest.approx(0.0)


def test_a_pause_of_one_length_keeps_it_where_a_rank_computes_and_waits_for_a_core_by_turns(tmp_path: Path) -> None:
    made = steps(tmp_path, [0.1, 0.1], [0.0, 0.03])
    turns = 0.02 * np.sin(np.arange(len(made.numbers)))
    made.own["compute"][:, 1] += turns
    made.own["cpu_wait"][:, 1] += 0.02 - turns
    made.own["cpu_wait"][:, 0] += 0.02
    found = losses.attribute(made)

    assert found.excess["data_wait"][:, 1] == pytest.approx(0.03)


def test_two_faults_that_hide_each_other_save_only_together(tmp_path: Path) -> None:
    made = steps(tmp_path, [0.2, 0.1, 0.1], [0.0, 0.1, 0.0])

    assert losses.saved(made, ["compute"], [0]) == pytest.approx(0.0)
    assert losses.saved(made, ["compute", "data_wait"], [0, 1]) == pytest.approx(0.1)


def test_ranks_that_never_waited_save_nothing(tmp_path: Path) -> None:
    made = steps(tmp_path, [0.1, 0.2])
    made.waiting[:] = 0.0

    assert losses.saved(made, ["compute"], [1]) == pytest.approx(np.zeros(len(made.numbers)))


def test_the_speedup_of_a_straggler_is_that_of_mending_it_alone(tmp_path: Path) -> None:
    finding = next(one for one in analyze(records(tmp_path, [0.1, 0.1, 0.1, 0.2])).findings if one.class_ == "compute_straggler")

    assert finding.ranks == [3]
    assert finding.speedup_if_fixed == pytest.approx(0.22 / 0.12, rel=0.01)


def test_a_straggler_beside_another_one_promises_no_more_than_it_would_bring(tmp_path: Path) -> None:
    finding = next(one for one in analyze(records(tmp_path, [0.1, 0.1, 0.18, 0.2])).findings if one.class_ == "compute_straggler")

    assert finding.ranks == [3]
    assert finding.seconds_per_step == pytest.approx(0.1, rel=0.01)
    assert finding.speedup_if_fixed == pytest.approx(0.22 / 0.20, rel=0.01)
