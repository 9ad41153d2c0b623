import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.life.findings import Base, Loss, findings, interval


def test_the_interval_of_one_event_is_wide_and_that_of_many_narrow() -> None:
    (low, high), _ = interval([15.0], 100.0)
    assert low < 0.01
    assert high > 0.8
    (low, high), above = interval([15.0 / 400] * 400, 100.0)
    assert 0.13 < low < 0.15 < high < 0.17
    assert above > 0.99


@given(st.lists(st.floats(0.1, 10.0), max_size=20), st.floats(200.0, 1e4))
def test_an_interval_lies_within_zero_and_one_and_holds_the_share(events: list[float], allocated: float) -> None:
    (low, high), above = interval(events, allocated)

    assert 0.0 <= low <= high <= 1.0
    assert 0.0 <= above <= 1.0
    assert low - 1e-9 <= sum(events) / allocated <= high + 1e-9


def test_the_interval_covers_the_true_share_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(100):
        events = random.exponential(2.0, size=random.poisson(10.0))
        (low, high), _ = interval(list(events), 100.0)
        covered += low <= 0.2 <= high
    assert covered >= 80


def test_losses_below_the_threshold_are_left_out_but_a_hang_is_always_told() -> None:
    base = Base(allocated_seconds=1000.0, units=2, new_steps=100)
    found = findings(
        [
            Loss("lost_work", [300.0], "all", []),
            Loss("checkpoint_stall", [40.0], "all", []),
            Loss("hang", [20.0], [1], [], 1.0, "info"),
        ],
        base,
    )

    assert [(one.class_, one.severity) for one in found] == [("lost_work", "critical"), ("hang", "info")]
    assert found[0].share == pytest.approx(0.3)
    assert found[0].seconds_per_step == pytest.approx(300.0 / 2 / 100)
    assert found[0].speedup_if_fixed == pytest.approx(1 / 0.7)


def test_nothing_lost_is_no_finding() -> None:
    assert findings([Loss("hang", [], "all", [], 1.0, "info")], Base(1000.0, 2, 100)) == []


def test_a_loss_of_five_percent_of_the_allocated_time_is_small() -> None:
    (found,) = findings([Loss("checkpoint_stall", [6.0] * 10, "all", [])], Base(allocated_seconds=1000.0, units=2, new_steps=100))

    assert (found.severity, found.small) == ("info", True)
    assert found.confidence > 0.5
