from __future__ import annotations

import numpy as np
import pytest

from course_making import late, planted
from tachoscope_analyzers.job.rank_grid import MOST_COLUMNS, MOST_ROWS, grid, own_time, waiting
from tachoscope_analyzers.ledger.histogram import histogram
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import Steps, aligned


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """Rank 5 of seven is late from step 121 on."""
    return aligned(from_spool([planted(tmp_path_factory.mktemp("grid"), late(5, 121, 240, 0.05), steps=240, ranks=7)]))


def test_the_sum_over_the_cells_is_that_of_all_steps_and_ranks(steps: Steps) -> None:
    assert own_time(steps).seconds.sum() == pytest.approx(sum(part.sum() for part in steps.own.values()))
    assert waiting(steps).seconds.sum() == pytest.approx(steps.waiting.sum())


def test_a_rank_that_is_late_has_more_own_time_and_the_others_wait(steps: Steps) -> None:
    own, waits = own_time(steps), waiting(steps)

    assert own.worst_seconds[:, -1].argmax() == 5
    assert waits.worst_seconds[:, -1].argmin() == 5
    assert own.worst_seconds[5, -1] - own.worst_seconds[0, -1] == pytest.approx(0.05, abs=0.01)


class _Many:
    """A thousand ranks and a hundred thousand steps that take no memory, as far as the grid looks at them."""

    numbers = np.arange(1, 100_001)
    ranks = list(range(1000))
    wall = np.broadcast_to(np.float64(0.1), (100_000, 1000))
    unix_ends = np.broadcast_to(np.arange(100_000, dtype=float)[:, None], (100_000, 1000))


@pytest.mark.bar  # of a thousand ranks test_job.py has a page
def test_a_thousand_ranks_and_a_hundred_thousand_steps_are_twenty_thousand_cells_and_the_late_one_is_seen() -> None:
    many = _Many()
    row = np.full(1000, 0.1)
    row[737] = 0.3

    cells = grid(many, np.broadcast_to(row, (100_000, 1000)))  # type: ignore[arg-type]

    assert cells.seconds.shape == (MOST_ROWS, MOST_COLUMNS)
    assert cells.seconds.sum() == pytest.approx(row.sum() * 100_000)
    place = int(cells.worst_seconds[:, 0].argmax())
    assert cells.worst_rank[place, 0] == 737
    assert cells.worst_seconds[place, 0] == pytest.approx(0.3)
    assert cells.first_rank[place] <= 737 <= cells.last_rank[place]


def test_every_step_is_in_one_bar_or_beyond_the_picture() -> None:
    seconds = np.concatenate([np.random.default_rng(0).normal(0.1, 0.01, 1000), [9.0, 11.0]])

    spread = histogram(seconds)

    assert spread.counts.sum() + spread.beyond == 1002
    assert spread.beyond == 2
    assert spread.edges[-1] < 1


def test_steps_that_all_last_alike_are_one_bar() -> None:
    spread = histogram(np.full(50, 0.25))

    assert spread.counts.sum() == 50
    assert spread.beyond == 0
