"""A pause of the job between two loops, such as two cells of a notebook, is not a loss of the step."""

from pathlib import Path

import numpy as np
import pytest

from making import beat
from synchronous import BASE, planted
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.report.report import Report

STEPS = 150
PAUSE = 40.0
USUAL = sum(BASE.values())
IDLE_IN_A_NOTEBOOK = {"where": {"preparation": {"selectors.py:468 select": 45}}, "wait_samples": {"preparation": {"poll": 45}}}


def job(tmp_path: Path, at: list[int], ranks: int = 1, **seen: dict[str, dict[str, int]]) -> JobRecords:
    """Return a job that paused before the steps with these indices, as heartbeats within the pauses saw it."""
    extra = np.zeros((STEPS, ranks))
    extra[at] = PAUSE
    usual = np.full((STEPS, ranks), USUAL + 0.002)
    begins = np.concatenate([np.zeros((1, ranks)), np.cumsum(usual + extra, axis=0)[:-1]])
    beats = [
        beat(rank, 10_000 + index, monotonic_ns=round((begins[index, rank] + 6.0) * 1e9), **seen)
        for index in at
        for rank in range(ranks)
    ]
    return planted(tmp_path, {"preparation": extra + 0.0005}, heartbeats=beats)


def books(report: Report) -> float:
    for ledger in report.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01)
    return report.ledgers[0].wall_seconds


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("at", [[70], [30, 60, 61, 100, 140]])
def test_it_is_said_once_and_is_in_neither_the_steps_nor_the_ledger(tmp_path: Path, at: list[int], ranks: int) -> None:
    report = analyze(job(tmp_path, at, ranks, **IDLE_IN_A_NOTEBOOK))

    assert [finding.class_ for finding in report.findings] == ["compute_bound"]
    assert report.step_seconds.mean == pytest.approx(USUAL + 0.002, rel=0.02)
    assert books(report) == pytest.approx(ranks * (STEPS - 2) * (USUAL + 0.0025), rel=0.02)
    (note,) = [note for note in report.quality if "paused" in note.what]
    assert ("once" in note.what, f"{len(at)} times" in note.what) == (len(at) == 1, len(at) > 1)
    assert "selectors.py:468 select" in note.what
    assert note.severity == "note"


def test_the_last_step_before_it_and_the_lines_of_the_loop_stay_as_they_are(tmp_path: Path) -> None:
    with_gap, without = (analyze(job(tmp_path, at, **IDLE_IN_A_NOTEBOOK)) for at in ([70], []))

    assert with_gap.ledgers[0].states == pytest.approx(without.ledgers[0].states, rel=0.01)


@pytest.mark.parametrize(
    ("at", "seen"),
    [
        ([70], {"wait_samples": {"preparation": {"cpu": 45}}}),  # it computed there: preparing data, an evaluation
        ([70], {"wait_samples": {"preparation": {"disk": 45}}}),  # it read
        ([70], {}),  # nobody knows
        (
            [20, 50, 80, 110, 140],
            {"wait_samples": {"preparation": {"sleep": 45}}, "where": {"preparation": {"train.py:8 wait": 45}}},
        ),
    ],
)
def test_what_the_loop_does_itself_is_a_loss(tmp_path: Path, at: list[int], seen: dict[str, dict[str, dict[str, int]]]) -> None:
    report = analyze(job(tmp_path, at, **seen))

    assert not [note for note in report.quality if "paused" in note.what]
    assert sum(finding.seconds_per_step for finding in report.findings) == pytest.approx(PAUSE * len(at) / (STEPS - 2), rel=0.05)
    books(report)
