"""Uneven data is told from a slow rank and from jitter: planted jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from synchronous import found, names, planted, signal
from tachoscope_analyzers.job.report import analyze

STEPS = 120
LENGTH = 1000


def uneven(ranks: int, seed: int, spread: float = 0.3, steps: int = STEPS) -> tuple[dict[str, Any], list[list[int]], np.ndarray]:
    """Return phases that grow with log-normal lengths, these lengths, and what each step lasts longer than with its data shared
    evenly.
    """
    lengths = np.random.default_rng(seed).lognormal(0.0, spread, size=(steps, ranks))
    extra = {"forward": 0.020 * (lengths - 1), "backward": 0.040 * (lengths - 1)}
    return extra, np.round(lengths * LENGTH).astype(int).tolist(), 0.060 * (lengths.max(axis=1) - lengths.mean(axis=1))


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.bar), pytest.param(2, marks=pytest.mark.bar)])
def test_ranks_that_wait_for_the_longest_batch_lose_to_uneven_data(tmp_path: Path, ranks: int, sizes: bool, seed: int) -> None:
    extra, lengths, lost = uneven(ranks, seed)

    first, *others = found(tmp_path, extra, elements=lengths if sizes else None)

    assert (first.class_, first.ranks, others) == ("data_imbalance", "all", [])
    assert first.seconds_per_step == pytest.approx(lost[2:].mean(), rel=0.1)
    assert signal(first, "correlation of") >= 0.9


@pytest.mark.parametrize("seed", range(3))
def test_jitter_on_top_of_uneven_data_takes_a_part_of_its_own(tmp_path: Path, seed: int) -> None:
    extra, lengths, lost = uneven(2, seed, spread=0.4)
    jitter = np.random.default_rng(seed + 100).exponential(0.003, size=(STEPS, 2))

    first = found(tmp_path, extra | {"forward": extra["forward"] + jitter}, elements=lengths)[0]

    assert first.class_ == "data_imbalance"
    assert first.seconds_per_step == pytest.approx(lost[2:].mean(), rel=0.15)


@pytest.mark.parametrize("sizes", [True, False])
def test_where_clocks_were_read_in_few_steps_forward_tells_the_others(tmp_path: Path, sizes: bool) -> None:
    extra, lengths, lost = uneven(2, 7, steps=300)

    first = found(tmp_path, extra, clocks_every=3, elements=lengths if sizes else None)[0]

    assert first.class_ == "data_imbalance"
    assert first.seconds_per_step == pytest.approx(lost[2:].mean(), rel=0.1)


@pytest.mark.parametrize("elements", ["none", "same", "uneven"])
def test_a_slow_rank_is_no_uneven_data_whatever_it_gets(tmp_path: Path, elements: str) -> None:
    lengths = np.random.default_rng(1).integers(900, 1100, size=(STEPS, 2)).tolist()
    sizes = {"none": None, "same": [[LENGTH, LENGTH]] * STEPS, "uneven": lengths}[elements]
    slow = np.zeros((STEPS, 2))
    slow[:, 1] = 0.030 + np.random.default_rng(2).normal(0, 0.002, STEPS)

    findings = found(tmp_path, {"forward": slow}, elements=sizes)

    assert [(one.class_, one.ranks) for one in findings] == [("compute_straggler", [1])]


def test_a_slow_rank_that_also_gets_uneven_data_is_both(tmp_path: Path) -> None:
    extra, lengths, _ = uneven(4, 3, spread=0.4)
    extra["forward"][:, 2] += 0.050

    findings = found(tmp_path, extra, elements=lengths)

    assert set(names(findings)) == {"compute_straggler", "data_imbalance"}
    assert next(one for one in findings if one.class_ == "compute_straggler").ranks == [2]


@pytest.mark.parametrize("sizes", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_stalls_at_random_are_no_uneven_data(tmp_path: Path, sizes: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    stalls = random.exponential(0.020, size=(STEPS, 2)) * (random.random((STEPS, 2)) < 0.5)
    lengths = random.integers(500, 2000, size=(STEPS, 2)).tolist()

    findings = found(tmp_path, {"forward": stalls, "backward": stalls[::-1]}, elements=lengths if sizes else None)

    assert "data_imbalance" not in names(findings)


def test_a_rank_that_always_gets_the_long_batches_is_named(tmp_path: Path) -> None:
    extra, lengths, _ = uneven(2, 5, spread=0.1)
    more = np.array(lengths) + np.array([0, 600])
    extra["forward"][:, 1] += 0.6 * 0.020
    extra["backward"][:, 1] += 0.6 * 0.040

    first, *others = found(tmp_path, extra, elements=more.tolist())

    assert (first.class_, first.ranks, others) == ("data_imbalance", [1], [])


def test_without_sizes_and_with_clocks_read_in_few_steps_it_is_not_measured(tmp_path: Path) -> None:
    extra, _, _ = uneven(2, 4)

    report = analyze(planted(tmp_path, extra, clocks_every=10))

    assert "data_imbalance" in {row.class_ for row in report.not_measured}
    assert "data_imbalance" not in names(report.findings)
    assert "compute_straggler" not in names(report.findings)


def test_one_rank_alone_waits_for_nobody(tmp_path: Path) -> None:
    extra, lengths, _ = uneven(1, 0)

    report = analyze(planted(tmp_path, extra, elements=lengths))

    assert "data_imbalance" not in {row.class_ for row in report.not_measured} | set(names(report.findings))
