"""Pauses of the training thread: which, on which ranks, when, and what holds it: planted jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from making import beat, job
from synchronous import bad, found, names, planted, signal
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool

STEPS = 120
EVERY_TENTH = np.arange(1, STEPS + 1) % 10 == 0


def pauses(*columns: np.ndarray) -> np.ndarray:
    return np.where(np.stack(columns, axis=1), 0.120, 0.0)


def signals(finding: Any) -> str:
    return "; ".join(row.signal for row in finding.evidence)


@pytest.mark.parametrize("phase", ["gc", "evaluation"])
def test_a_pause_every_ten_steps_on_all_ranks_says_so(tmp_path: Path, phase: str) -> None:
    (finding,) = found(tmp_path, {phase: pauses(EVERY_TENTH, EVERY_TENTH)})

    assert (finding.class_, finding.ranks) == ("host_pause", "all")
    assert finding.seconds_per_step == pytest.approx(0.012, rel=0.1)
    assert "every 10 steps" in signals(finding)
    assert signal(finding, "steps with a pause in which only one rank") == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_collections_at_other_steps_on_each_rank_cost_all_ranks_each_time_and_come_at_random(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    rare = [random.random(STEPS) < 0.08 for _ in range(2)]

    (finding,) = found(tmp_path, {"gc": pauses(*rare)})

    assert (finding.class_, finding.ranks) == ("host_pause", "all")
    assert finding.seconds_per_step == pytest.approx(0.120 * (rare[0] | rare[1])[2:].mean(), rel=0.1)
    assert "at random" in signals(finding)
    assert signal(finding, "steps with a pause in which only one rank") >= 0.75


def test_the_one_rank_that_pauses_is_named(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {"gc": pauses(EVERY_TENTH, np.zeros(STEPS, dtype=bool))})

    assert (finding.class_, finding.ranks) == ("host_pause", [0])


def test_a_checkpoint_every_ten_steps_is_no_pause(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, {"checkpoint": pauses(EVERY_TENTH, np.zeros(STEPS, dtype=bool))})

    assert (finding.class_, finding.ranks) == ("checkpoint_stall", [0])
    assert "every 10 steps" in signals(finding)


HELD = {"ticks": 100.0, "late_ticks": 12.0, "late_seconds": 0.6}
STILL = np.stack([np.where(EVERY_TENTH, 0.0, 0.0), np.where(np.arange(STEPS) % 7 == 3, 0.120, 0.0)], axis=1)


@pytest.mark.parametrize(
    ("beats", "expected"),
    [
        ({"signals": HELD}, ("host_pause", [1])),  # the sampler came late: another thread held the interpreter
        ({"wait_samples": {"forward": {"sleep": 20, "cpu": 80}}}, ("host_pause", [1])),
        ({"wait_samples": {"forward": {"cpu": 70, "lock": 30}}}, None),  # nobody knows what it stood still for
        ({}, None),
    ],
)
def test_standing_still_within_computing_is_a_pause_where_something_shows_it(
    tmp_path: Path, beats: dict[str, Any], expected: tuple[str, Any] | None
) -> None:
    heartbeats = [beat(0, signals={"ticks": 100.0}), beat(1, where={"forward": {"train.py:7 log": 9}}, **beats)]

    findings = found(tmp_path, {"forward": STILL}, heartbeats=heartbeats, still=STILL.tolist())

    if expected is None:
        assert "host_pause" not in names(findings)
        return
    (finding,) = findings
    assert (finding.class_, finding.ranks) == expected
    assert finding.seconds_per_step == pytest.approx(STILL.sum() / STEPS, rel=0.1)
    assert signal(finding, "seen at train.py:7 log") == 1.0


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ({"late_ticks": 12.0, "late_seconds": 0.6}, ("host_pause", [1])),  # pauses shorter than the sampler waits between two looks
        ({"late_ticks": 5.0, "late_seconds": 1.6}, ("host_pause", [1])),  # longer ones: a look each is late, but very late
        ({}, ("comm_exposed", "all")),  # the network, for all that is known
    ],
)
def test_a_thread_that_gets_the_interpreters_lock_late_within_backward_does_not_wait_for_others(
    tmp_path: Path, late: dict[str, float], expected: tuple[str, Any]
) -> None:
    spikes = np.where(np.arange(STEPS) % 7 == 3, 0.120, 0.0)
    row = {"data_wait": 0.001, "forward": 0.030, "optimizer": 0.004}
    steps = [[row | {"backward": 0.062 + float(spike)} for _ in range(2)] for spike in spikes]
    blocked = [[float(spike)] * 2 for spike in spikes]
    heartbeats = [beat(0, signals={"ticks": 100.0}), beat(1, signals={"ticks": 100.0, **late})]
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked, heartbeats=heartbeats))

    (finding,) = analyze(from_spool([path])).findings

    assert (finding.class_, finding.ranks) == expected
    assert finding.seconds_per_step == pytest.approx(spikes[2:].mean(), rel=0.1)


@pytest.mark.parametrize("clocks_every", [1, 3])
def test_pauses_are_found_where_clocks_are_read_in_some_steps_only(tmp_path: Path, clocks_every: int) -> None:
    still = np.stack([np.zeros(STEPS * 3), np.where(np.arange(STEPS * 3) % 7 == 3, 0.120, 0.0)], axis=1)

    beats = [beat(1, signals=HELD)]
    (finding,) = found(tmp_path, {"forward": still}, heartbeats=beats, still=still.tolist(), clocks_every=clocks_every)

    assert (finding.class_, finding.ranks) == ("host_pause", [1])
    assert finding.seconds_per_step == pytest.approx(still.mean() * 2, rel=0.1)


@pytest.mark.parametrize("kind", ["sleep", "disk", "pipe"])
def test_standing_still_for_as_long_in_each_step_is_a_pause_where_the_thread_was_seen_asleep(tmp_path: Path, kind: str) -> None:
    still = np.full((STEPS, 2), 0.040)
    beats = [beat(rank, wait_samples={"forward": {kind: 50}}, where={"pause": {"train.py:7 wait": 50}}) for rank in range(2)]

    (finding,) = found(tmp_path, {"forward": still}, heartbeats=beats, still=still.tolist())

    assert (finding.class_, finding.ranks) == ("host_pause", "all")
    assert finding.seconds_per_step == pytest.approx(0.040, rel=0.05)
    assert signal(finding, "seen at train.py:7 wait") == 1.0


@pytest.mark.parametrize("kind", ["other", "poll"])
def test_standing_still_in_each_step_in_a_call_that_may_wait_for_an_accelerator_is_no_pause(tmp_path: Path, kind: str) -> None:
    still = np.full((STEPS, 2), 0.040)
    beats = [beat(rank, wait_samples={"forward": {kind: 50}}) for rank in range(2)]

    assert found(tmp_path, {"forward": still}, heartbeats=beats, still=still.tolist()) == []


def test_with_several_compute_threads_standing_still_may_be_waiting_for_them(tmp_path: Path) -> None:
    findings = found(tmp_path, {"forward": STILL}, heartbeats=[beat(1, signals=HELD)], still=STILL.tolist(), threads=2)

    assert "host_pause" not in names(findings)


def test_a_rank_that_computes_while_the_sampler_is_late_is_a_straggler_and_no_pause(tmp_path: Path) -> None:
    slow = np.stack([np.zeros(STEPS), np.full(STEPS, 0.030)], axis=1)

    (finding,) = found(tmp_path, {"forward": slow}, heartbeats=[beat(1, signals=HELD)])

    assert (finding.class_, finding.ranks) == ("compute_straggler", [1])


def test_states_still_sum_to_the_wall_time_with_pauses(tmp_path: Path) -> None:
    beats = [beat(1, signals=HELD)]
    report = analyze(planted(tmp_path, {"forward": STILL}, heartbeats=beats, still=STILL.tolist(), other_cpu=1.0))

    assert bad(report)
    assert report.ledgers[2].states["host_wait"] == pytest.approx(STILL[2:].sum(), rel=0.05)
