"""How old updates were, compared with a bound: planted counts."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from making import envelope
from synchronous import bad, planted, signal
from tachoscope_analyzers.classify.async_staleness import quantile
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.records import records
from tachoscope_core.report.report import Report


def report(tmp_path: Path, by_rank: list[dict[int, int]], bound: int | None = None) -> Report:
    rows = [
        records.UpdatesApplied(**envelope(rank, 50_000 + rank, writer=f"server-{rank}"), staleness=counts, bound=bound)
        for rank, counts in enumerate(by_rank)
    ]
    return analyze(planted(tmp_path, {"forward": np.zeros((40, len(by_rank)))}, list(rows)))


def test_updates_older_than_the_jobs_own_bound_are_found_with_their_distribution(tmp_path: Path) -> None:
    (finding,) = bad(report(tmp_path, [{0: 40, 1: 40, 9: 20}, {0: 50, 1: 50}], bound=4))

    assert (finding.class_, finding.severity, finding.ranks, finding.seconds_per_step) == ("async_staleness", "warning", [0], 0.0)
    assert signal(finding, "staleness, 95%") == 9
    assert signal(finding, "staleness, median") == 1
    assert signal(finding, "updates that are older") == pytest.approx(0.2)


def test_within_the_bound_it_is_measured_and_fine_and_without_versions_it_is_not_measured(tmp_path: Path) -> None:
    fine = report(tmp_path, [{0: 50, 4: 50}], bound=4)
    unsaid = analyze(planted(tmp_path, {"forward": np.zeros((40, 2))}))

    assert not bad(fine)
    assert "async_staleness" not in {row.class_ for row in fine.not_measured}
    assert "async_staleness" in {row.class_ for row in unsaid.not_measured}


@pytest.mark.parametrize(("oldest", "found"), [(3, False), (6, False), (7, True)])
def test_without_a_bound_it_is_held_against_what_equal_workers_have(tmp_path: Path, oldest: int, found: bool) -> None:
    assert bool(bad(report(tmp_path, [{3: 50, oldest: 50}] * 4))) is found  # 2 x (4 - 1) = 6


def test_a_slow_worker_with_few_updates_is_seen_among_fast_ones(tmp_path: Path) -> None:
    (finding,) = bad(report(tmp_path, [{1: 500}, {1: 500}, {1: 5, 14: 1}]))

    assert (finding.class_, finding.ranks) == ("async_staleness", [2])


def test_one_old_update_in_a_hundred_does_no_harm(tmp_path: Path) -> None:
    assert not bad(report(tmp_path, [{1: 99, 50: 1}] * 2))


@given(st.dictionaries(st.integers(0, 50), st.integers(1, 20), min_size=1))
def test_quantiles_of_counts_are_those_of_the_values(counts: dict[int, int]) -> None:
    values = sorted(Counter(counts).elements())

    assert quantile(Counter(counts), 1.0) == values[-1]
    assert quantile(Counter(counts), 0.5) == values[(len(values) - 1) // 2]
