"""Steps in which a rank was stuck, planted into jobs of which all else is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import job, synchronous
from tachoscope_analyzers.classify import hang
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.ledger.losses import Losses, attribute
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_core.report.report import Report

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
STEPS = 80


def written(path: Path, own: list[list[dict[str, float]]]) -> Path:
    steps, blocked = synchronous(own)
    path.write_bytes(job(steps, blocked=blocked))
    return path


def report(tmp_path: Path, stuck: dict[tuple[int, int], dict[str, float]], *, slow: float = 0.0) -> Report:
    """Judge a job of two ranks; `stuck` gives the phases of a step and rank, `slow` is added to each forward of rank 0."""
    own = [
        [BASE | {"forward": BASE["forward"] + slow * (rank == 0)} | stuck.get((number, rank), {}) for rank in range(2)]
        for number in range(STEPS)
    ]
    return analyze(from_spool([written(tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl", own)]))


def test_a_rank_that_is_stuck_is_a_hang_with_its_seconds_and_no_unknown(tmp_path: Path) -> None:
    found = report(tmp_path, {(40, 1): {"forward": 8.03}}).findings

    assert [(one.class_, one.ranks) for one in found] == [("hang", [1])]
    assert found[0].seconds_per_step == pytest.approx(8.0 / (STEPS - 2), rel=0.01)


def test_a_straggler_beside_a_hang_is_found_as_without_it(tmp_path: Path) -> None:
    alone = report(tmp_path, {}, slow=0.05).findings
    both = report(tmp_path, {(40, 1): {"forward": 8.08}}, slow=0.05).findings

    assert [one.class_ for one in alone] == ["compute_straggler"]
    assert [(one.class_, one.ranks) for one in both] == [("hang", [1]), ("compute_straggler", [0])]
    assert both[1].seconds_per_step == pytest.approx(alone[0].seconds_per_step, rel=0.05)


@pytest.mark.parametrize("known", ["checkpoint", "evaluation", "gc", "data_wait"])
def test_a_long_time_at_something_known_is_no_hang(tmp_path: Path, known: str) -> None:
    assert "hang" not in {one.class_ for one in report(tmp_path, {(40, 1): {known: 8.0}}).findings}


def test_a_pause_shorter_than_a_hang_is_none(tmp_path: Path) -> None:
    assert "hang" not in {one.class_ for one in report(tmp_path, {(40, 1): {"forward": 4.0}}).findings}


@pytest.mark.parametrize(("world_size", "known"), [(2, True), (3, False)])
def test_without_the_records_of_a_rank_it_is_not_known_whether_anybody_hung(tmp_path: Path, world_size: int, known: bool) -> None:
    steps, blocked = synchronous([[BASE] * 2] * STEPS)
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked, world_size=world_size))

    missing = {row.class_ for row in analyze(from_spool([path])).not_measured}

    assert ("hang" not in missing) == known


def test_the_first_steps_may_take_long(tmp_path: Path) -> None:
    assert "hang" not in {one.class_ for one in report(tmp_path, {(1, 1): {"forward": 30.0}}).findings}


def total(losses: Losses) -> float:
    excess = sum(part.sum() for part in losses.excess.values())
    return float(excess + losses.transfer.sum() + sum(part.sum() for part in losses.common.values()))


@given(at=st.integers(4, STEPS - 1), rank=st.integers(0, 1), seconds=st.floats(0.1, 60.0))
def test_what_a_hang_takes_nobody_else_has(tmp_path_factory: pytest.TempPathFactory, at: int, rank: int, seconds: float) -> None:
    own = [[BASE | {"forward": seconds if (number, who) == (at, rank) else 0.03} for who in range(2)] for number in range(STEPS)]
    steps: Steps = aligned(from_spool([written(tmp_path_factory.mktemp("h") / "0-000000.jsonl", own)]))
    whole = attribute(steps)
    rest = hang.subtract_hangs(steps, whole)

    taken = sum(float(one.seconds.sum()) for one in rest.candidates)
    assert total(rest.losses) + taken == pytest.approx(total(whole))
