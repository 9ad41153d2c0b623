"""Outermost calls of models: what is reported, and that nobody else sees a difference."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
import torch
from torch.fx import symbolic_trace

from tachoscope.sampling.model_calls import DISCOVERY_STEPS, MOST_CALLS_A_BACKWARD, ModelCalls
from tachoscope.timing.finished_step import FinishedStep

STEP = FinishedStep(1, 0, 0, [], None, None, None, 0, 0, backward_calls=1)


class Watcher:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.thread_ident = threading.get_ident()
        self.machine = self
        self.has_models = self.inside_model = False
        self.models_known, self.model_calls = True, 0
        self.begun: list[str] = []
        self.ended = 0
        self.calls = ModelCalls(self, torch)

    def model_begin(self, module: Any) -> bool:
        self.begun.append(type(module).__name__)
        return True

    def model_begin_without_gradients(self, module: Any) -> bool:
        self.begun.append(type(module).__name__)
        return True

    def model_end(self) -> None:
        self.ended += 1

    def stop_after_fault(self, error: Exception) -> None:
        raise error


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    found = Watcher()
    found.calls.look_for_models()
    yield found
    found.calls.stop()
    assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl
    assert "__call__" not in Net.__dict__


def steps(watcher: Watcher, number: int, *models: torch.nn.Module) -> None:
    for _ in range(number):
        for model in models:
            model(torch.rand(2, 4))
        watcher.calls.step_ended(STEP)


def test_only_outermost_calls_are_reported_and_go_on_to_be_once_the_classes_are_known(watcher: Watcher) -> None:
    steps(watcher, DISCOVERY_STEPS, Net(), torch.nn.Identity())

    assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl  # looking for classes is over
    steps(watcher, 2, Net(), torch.nn.Identity())
    assert watcher.begun == ["Net", "Identity"] * (DISCOVERY_STEPS + 2)
    assert watcher.ended == len(watcher.begun)


def test_another_model_is_found_when_the_first_is_no_longer_called(watcher: Watcher) -> None:
    steps(watcher, DISCOVERY_STEPS, Net())
    steps(watcher, 3, torch.nn.Identity())

    assert watcher.begun[-2:] == ["Identity"] * 2
    assert watcher.calls.active


def test_a_job_that_calls_layer_after_layer_is_left_alone(watcher: Watcher) -> None:
    steps(watcher, 2, *[torch.nn.Identity() for _ in range(MOST_CALLS_A_BACKWARD + 1)])

    assert not watcher.calls.active
    assert "__call__" not in torch.nn.Identity.__dict__


def test_an_evaluation_within_a_step_may_call_the_model_any_number_of_times(watcher: Watcher) -> None:
    net = Net()
    steps(watcher, DISCOVERY_STEPS, net)
    with torch.no_grad():
        for _ in range(2 * MOST_CALLS_A_BACKWARD):
            net(torch.rand(2, 4))
    steps(watcher, 1, net)

    assert watcher.calls.active


def test_an_exception_of_a_model_passes_through_and_ends_its_call(watcher: Watcher) -> None:
    steps(watcher, DISCOVERY_STEPS, Net())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Net()(torch.rand(2, 5))

    assert watcher.ended == len(watcher.begun)


def test_other_threads_are_not_reported(watcher: Watcher) -> None:
    steps(watcher, DISCOVERY_STEPS, Net())
    before = len(watcher.begun)
    thread = threading.Thread(target=Net(), args=(torch.rand(2, 4),))
    thread.start()
    thread.join()

    assert len(watcher.begun) == before


def test_symbolic_tracing_sees_the_layers_of_a_class_that_is_reported(watcher: Watcher) -> None:
    steps(watcher, DISCOVERY_STEPS, torch.nn.Linear(4, 4), Net())

    assert [node.op for node in symbolic_trace(Net()).graph.nodes].count("call_module") == 3


def test_a_model_that_is_pickled_with_its_class_needs_no_tachoscope_to_be_read(watcher: Watcher) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("import torch\nclass Mine(torch.nn.Module):\n    def forward(self, x): return x + 1\n", namespace)
    model = namespace["Mine"]()
    steps(watcher, DISCOVERY_STEPS, model)
    assert "__call__" in type(model).__dict__

    read = "import pickle, sys, torch\nprint(pickle.load(sys.stdin.buffer)(torch.ones(1)).item(), 'tachoscope' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", read], input=cloudpickle.dumps(model), capture_output=True, check=True)

    assert done.stdout.split() == [b"2.0", b"False"]
    assert pickle.loads(pickle.dumps(Net()))(torch.rand(2, 4)).shape == (2, 4)
