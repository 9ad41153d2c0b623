"""The network against its baseline: planted shifts are found with their seconds, and what only looks like one is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from making import beat, job
from tachoscope_analyzers.classify.communication.network_degraded import bus_factor, shifted
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.report.report import Report

STEPS = 120
COMPUTING = {"data_wait": 0.001, "forward": 0.020, "backward": 0.030, "optimizer": 0.002}
GRADIENTS = 25e6
RANKS = 2


def report(
    tmp_path: Path, transfer: np.ndarray, *, late: np.ndarray | None = None, earlier: np.ndarray | None = None, **options: Any
) -> Report:
    """Judge a job whose ranks exchange for `transfer[k]` seconds, and of which rank 1 computes `late[k]` seconds longer."""
    late = np.zeros(len(transfer)) if late is None else late
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    text = written(transfer, late, attempt=1 if earlier is not None else 0, **options)
    if earlier is not None:
        text += written(earlier, np.zeros(len(earlier)), attempt=0)
    path.write_bytes(text)
    return analyze(from_spool([path]))


def written(transfer: np.ndarray, late: np.ndarray, *, attempt: int, gradients: float = GRADIENTS, **options: Any) -> bytes:
    steps, blocked = [], []
    for moving, later in zip(transfer.tolist(), late.tolist(), strict=True):
        waits = [moving + later, moving]
        rows = [COMPUTING, COMPUTING | {"forward": COMPUTING["forward"] + later}]
        steps.append([row | {"backward": row["backward"] + wait} for row, wait in zip(rows, waits, strict=True)])
        blocked.append(waits)
    beats = [
        beat(
            rank, attempt=attempt, writer=f"{attempt:07d}{rank}-0000-4000-8000-000000000000", signals={"gradient_bytes": gradients}
        )
        for rank in range(RANKS)
    ]
    return job(steps, blocked=blocked, heartbeats=beats, attempt=attempt, **options)


def noisy(level: float, steps: int = STEPS, seed: int = 0) -> np.ndarray:
    return level * np.random.default_rng(seed).lognormal(0, 0.25, steps)


def classes(result: Report) -> list[str]:
    return [finding.class_ for finding in result.findings if finding.severity in {"warning", "critical"}]


@pytest.mark.parametrize("begin", [30, 60, 90])
@pytest.mark.parametrize("seed", range(3))
def test_a_network_that_gets_slower_within_the_run_is_degraded_by_what_it_takes_longer(
    tmp_path: Path, begin: int, seed: int
) -> None:
    transfer = noisy(0.012, seed=seed)
    transfer[begin:] *= 4
    result = report(tmp_path, transfer)

    found = {finding.class_: finding for finding in result.findings}
    truth = float(transfer[begin:].sum() * 0.75) / STEPS
    assert found["network_degraded"].seconds_per_step == pytest.approx(truth, rel=0.12)
    assert found["network_degraded"].ranks == "all"
    assert found["comm_exposed"].seconds_per_step == pytest.approx(0.0124, rel=0.15)
    bandwidths = {row.signal: row.value for row in found["network_degraded"].evidence if "bandwidth" in row.signal}
    assert bandwidths["bus bandwidth"] == pytest.approx(bandwidths["bus bandwidth of the baseline"] / 4, rel=0.2)
    assert f"steps {begin + 1}" in " ".join(row.signal for row in found["network_degraded"].evidence)


def test_a_network_that_is_slow_for_a_while_is_degraded_in_these_steps(tmp_path: Path) -> None:
    transfer = noisy(0.012)
    transfer[40:80] += 0.05
    found = {finding.class_: finding for finding in report(tmp_path, transfer).findings}

    assert found["network_degraded"].seconds_per_step == pytest.approx(0.05 * 40 / STEPS, rel=0.12)


def test_a_late_rank_that_no_longer_has_to_wait_is_no_baseline_of_the_network(tmp_path: Path) -> None:
    transfer, late = noisy(0.052), np.zeros(STEPS)
    transfer[40:80] -= 0.04
    late[40:80] = 0.04

    found = report(tmp_path, np.maximum(transfer, 0.002), late=late).findings

    assert "network_degraded" not in {finding.class_ for finding in found}


@pytest.mark.parametrize("seed", range(5))
def test_exchange_that_was_always_slow_is_a_matter_of_volume_and_the_baseline_is_not_measured(tmp_path: Path, seed: int) -> None:
    result = report(tmp_path, noisy(0.03, seed=seed))

    assert classes(result) == ["comm_exposed"]
    missing = {row.class_: row.missing for row in result.not_measured}
    assert "bus bandwidth" in missing["network_degraded"]
    assert any(row.signal == "bus bandwidth" for row in result.findings[0].evidence)


def test_a_straggler_makes_collectives_long_and_is_no_matter_of_the_network(tmp_path: Path) -> None:
    late = np.zeros(STEPS)
    late[60:] = 0.06

    assert not {"network_degraded", "comm_exposed"} & set(classes(report(tmp_path, noisy(0.003), late=late)))


@pytest.mark.parametrize("every", [5, 10])
def test_single_slow_exchanges_are_no_shift(every: int) -> None:
    transfer = noisy(0.012)
    transfer[::every] += 0.1

    assert shifted(transfer, np.arange(len(transfer))) is None


def test_exchange_that_is_slower_because_its_threads_have_no_core_is_no_matter_of_the_network(tmp_path: Path) -> None:
    transfer = noisy(0.012)
    transfer[60:] += 0.03
    delay = [[0.0 if k < 60 else 0.018] * RANKS for k in range(STEPS)]

    assert "network_degraded" not in classes(report(tmp_path, transfer, delay=delay))


def test_an_earlier_attempt_is_the_baseline(tmp_path: Path) -> None:
    result = report(tmp_path, noisy(0.04, seed=1), earlier=noisy(0.010))
    found = {finding.class_: finding for finding in result.findings}

    assert found["network_degraded"].seconds_per_step == pytest.approx(0.031, rel=0.1)
    assert any("attempt 0" in row.signal for row in found["network_degraded"].evidence)


def test_an_attempt_as_fast_as_the_earlier_one_is_measured_and_well(tmp_path: Path) -> None:
    result = report(tmp_path, noisy(0.03, seed=1), earlier=noisy(0.03))

    assert classes(result) == ["comm_exposed"]
    assert "network_degraded" not in {row.class_ for row in result.not_measured}


def test_an_earlier_attempt_that_moved_something_else_is_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    before = written(noisy(0.01), np.zeros(STEPS), attempt=0, gradients=GRADIENTS / 4)
    path.write_bytes(written(noisy(0.04, seed=1), np.zeros(STEPS), attempt=1) + before)
    result = analyze(from_spool([path]))

    assert classes(result) == ["comm_exposed"]
    assert "network_degraded" in {row.class_ for row in result.not_measured}


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75), ("broadcast", 8, 1.0), ("all_reduce", 1, 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == pytest.approx(factor)


@settings(derandomize=True)  # "hardly ever" is not a "never": the same noise each time
@given(seed=st.integers(0, 10_000), steps=st.integers(30, 300), spread=st.floats(0.05, 0.6))
def test_noise_alone_is_hardly_ever_a_shift_that_matters(seed: int, steps: int, spread: float) -> None:
    seconds = np.random.default_rng(seed).lognormal(0, spread, steps)
    found = shifted(seconds, np.arange(len(seconds)))

    assert found is None or found.slow.sum() * (found.slow_seconds - found.seconds) < 0.5 * seconds.sum()


def test_a_constant_series_has_no_shift() -> None:
    assert shifted(np.full(100, 0.01), np.arange(100)) is None


def test_a_million_steps_are_searched_without_comparing_all_with_all() -> None:
    seconds = np.concatenate([noisy(0.01, 500_000), noisy(0.02, 500_000, seed=1)])
    found = shifted(seconds, np.arange(len(seconds)))

    assert found is not None
    assert abs(int(found.slow.argmax()) - 500_000) < 50
