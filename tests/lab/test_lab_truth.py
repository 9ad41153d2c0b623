"""What the ranks measured becomes seconds a step: planted numbers in, known numbers out."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.lab.rank_rows import Rows, exchange, exchange_above_before, latest_rank, longest_over_mean, waited_for_input
from benchmarks.lab.spec import WARM_UP_STEPS, Planned

STEPS = 20
PLANNED = Planned("compute_straggler", "extra_work", 0.2)


def rank(**columns: Any) -> dict[str, Any]:
    empty = {"wall": [1.0] * STEPS, "wait": [0.1] * STEPS, "cpu": [0.5] * STEPS, "injected": {}, "notes": {}}
    return {**empty, "clean_wait_seconds": 0.1, "clean_step_seconds": 1.0, **columns}


def test_the_warm_up_does_not_count() -> None:
    injected = [9.0] * WARM_UP_STEPS + [0.2] * (STEPS - WARM_UP_STEPS)
    assert latest_rank(Rows([rank(injected={PLANNED.slug: injected}), rank()], {}), PLANNED) == pytest.approx(0.2)


def test_pauses_of_different_ranks_at_different_steps_both_cost() -> None:
    one = [1.0 if step % 4 == 0 else 0.0 for step in range(STEPS)]
    other = [1.0 if step % 4 == 2 else 0.0 for step in range(STEPS)]
    both = latest_rank(Rows([rank(injected={PLANNED.slug: one}), rank(injected={PLANNED.slug: other})], {}), PLANNED)
    together = latest_rank(Rows([rank(injected={PLANNED.slug: one}), rank(injected={PLANNED.slug: one})], {}), PLANNED)
    assert both == pytest.approx(8 / 17)
    assert together == pytest.approx(4 / 17)


def test_input_costs_what_the_later_rank_waited_above_a_clean_wait() -> None:
    rows = Rows([rank(wait=[0.1] * STEPS), rank(wait=[0.4] * STEPS)], {})
    assert waited_for_input(rows, PLANNED) == pytest.approx(0.3)


def test_uneven_work_costs_the_excess_over_the_mean() -> None:
    assert longest_over_mean(Rows([rank(cpu=[1.0] * STEPS), rank(cpu=[3.0] * STEPS)], {}), PLANNED) == pytest.approx(1.0)


def test_an_exchange_counts_from_the_latest_hand_over_to_the_latest_end() -> None:
    one = rank(notes={"exchange_begins": [1.0] * STEPS, "exchange_ends": [5.0] * STEPS})
    other = rank(notes={"exchange_begins": [3.0] * STEPS, "exchange_ends": [4.0] * STEPS})
    assert exchange(Rows([one, other], {}), PLANNED) == pytest.approx(2.0)


def test_what_came_in_the_middle_is_spread_over_all_steps() -> None:
    first = 10
    ends = [1.0] * first + [3.0] * (STEPS - first)
    one = rank(notes={"exchange_begins": [0.0] * STEPS, "exchange_ends": ends})
    planned = Planned("network_degraded", "token_bucket", 0.2, first_step=first)
    assert exchange_above_before(Rows([one], {}), planned) == pytest.approx(2.0 * 10 / 17)
