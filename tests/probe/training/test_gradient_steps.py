"""When gradients end steps; real loops are in tests/end_to_end/test_odd_jobs.py and tests/end_to_end/test_steps.py."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

from tachoscope.training import gradient_steps
from tachoscope.training.gradient_steps import LOOK_AT, PATIENCE, GradientSteps


@pytest.fixture
def optimizers(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[object]], None]:
    """Return what sets which objects there are, whatever other tests left behind."""

    def only(objects: list[object]) -> None:
        monkeypatch.setattr(gradient_steps.gc, "get_objects", lambda: objects)

    return only


def computed(steps: GradientSteps, times: int) -> list[bool]:
    return [steps.computed() for _ in range(times)]


def test_without_an_optimizer_they_do_once_it_was_looked_for(optimizers: Callable[[list[object]], None]) -> None:
    optimizers([object(), torch.optim.SGD])

    assert computed(GradientSteps(), LOOK_AT + 1) == [False] * (LOOK_AT - 1) + [True, True]


def test_a_long_accumulation_is_waited_for_where_there_is_an_optimizer(optimizers: Callable[[list[object]], None]) -> None:
    optimizers([torch.optim.SGD([torch.zeros(1)], lr=0.1)])

    assert computed(GradientSteps(), PATIENCE) == [False] * (PATIENCE - 1) + [True]


def test_an_optimizer_that_steps_ends_it_for_good(optimizers: Callable[[list[object]], None]) -> None:
    optimizers([])
    steps = GradientSteps()
    assert any(computed(steps, LOOK_AT))

    steps.optimizer_stepped()

    assert not any(computed(steps, PATIENCE))


def test_an_optimizer_is_found_among_all_objects() -> None:
    kept = torch.optim.Adam([torch.zeros(1)])
    gc.collect()

    assert gradient_steps._optimizer_exists()
    del kept
