"""Which events of a loop end a step, and to which phase the time between them goes: sequences of events, and no torch.

All of it is asked of the Python machine and of the compiled one, which must not differ in anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope.timing import phases
from tachoscope.timing.finished_step import FinishedStep
from tachoscope.timing.phases import Timeline
from tachoscope.training import step_machine
from tachoscope.training.compiled_steps import MODULE, new_machine
from tachoscope.training.step_machine import StepMachine
from tachoscope_core.native import native

PROBE = str(Path(step_machine.__file__).parents[1])
MOST_CALLS = {"python": 25, "compiled": 0}
"""Python functions of the probe that a step calls, without those of wrappers and followers: after a step's computing each costs
about a microsecond. One more is to be worth that.
"""


def python_machine(clock: Callable[[], int], cpu_clock: Callable[[], int]) -> StepMachine:
    return StepMachine(Timeline(clock, cpu_clock))


MACHINES = {"python": python_machine, "compiled": new_machine}


def needs_compiled() -> None:
    if native(MODULE).module is None:
        pytest.skip(f"the native module is {native(MODULE).reason}")


@pytest.fixture(params=MACHINES, scope="module", autouse=True)
def kind(request: pytest.FixtureRequest) -> None:
    if request.param == "compiled":
        needs_compiled()
    Loop.kind = request.param


class Loader:
    """As much of a loader's iterator as is looked at."""


class Model:
    def __init__(self) -> None:
        self.weight = object()

    def parameters(self) -> Iterator[object]:
        yield self.weight


class Loop:
    """Tells a machine the events of a loop; each of the four things that take time takes one nanosecond."""

    kind = "python"

    def __init__(self, *, models_are_seen: bool = True, kind: str = "") -> None:
        self.now = 0
        self.machine = MACHINES[kind or Loop.kind](lambda: self.now, lambda: self.now // 3)
        self.machine.has_models = models_are_seen
        self.steps: list[FinishedStep] = []
        self.machine.on_step = (self.steps.append,)
        self.train, self.validation = Loader(), Loader()
        self.model = Model()

    def batch(self, loader: Loader | None = None, *, grad: bool = True) -> None:
        begin = self.machine.batch_begin if grad else self.machine.batch_begin_without_gradients
        begin(loader or self.train)
        self.now += 1
        self.machine.batch_end(4, 8)

    def call(self, model: Model | None = None, *, grad: bool = True) -> None:
        begin = self.machine.model_begin if grad else self.machine.model_begin_without_gradients
        called = begin(model or self.model)
        self.now += 1
        if called:
            self.machine.model_end()

    def backward(self) -> None:
        self.machine.backward_begin()
        self.now += 1
        self.machine.backward_end()

    def optimizer(self, which: object = "one") -> None:
        self.machine.optimizer_begin()
        self.now += 1
        self.machine.optimizer_end(which)

    def compile(self) -> None:
        before = self.machine.compile_begin()
        self.now += 1
        self.machine.compile_end(before)

    def backward_compiled_elsewhere(self) -> None:
        """As on an accelerator: autograd has a thread of its own, for which this one waits."""
        self.machine.backward_begin()
        before = self.machine.compile_begin(elsewhere=True)
        self.now += 3
        self.machine.compile_end(before, 2)
        self.machine.backward_end()

    def step(self) -> None:
        self.batch()
        self.call()
        self.backward()
        self.optimizer()

    def seconds(self, phase: int) -> list[int]:
        return [step.wall[phase] for step in self.steps]


def plain(loop: Loop) -> None:
    for _ in range(3):
        loop.step()


def accumulation(loop: Loop) -> None:
    for number in range(6):
        loop.batch()
        loop.call()
        loop.backward()
        if number % 2:
            loop.optimizer()


def two_optimizers(loop: Loop) -> None:
    for _ in range(3):
        loop.step()
        loop.call()
        loop.backward()
        loop.optimizer("generator")


def two_optimizers_without_loader(loop: Loop) -> None:
    for _ in range(3):
        for which in ("discriminator", "generator"):
            loop.call()
            loop.backward()
            loop.optimizer(which)


def closure(loop: Loop) -> None:
    for _ in range(3):
        loop.batch()
        loop.machine.optimizer_begin(with_closure=True)
        for _ in range(4):
            loop.machine.closure_begin()
            loop.call()
            loop.backward()
            loop.machine.closure_end()
        loop.machine.optimizer_end("lbfgs")


def no_optimizer(loop: Loop) -> None:
    loop.machine.gradient_steps.active = True  # as found where no optimizer exists
    for _ in range(3):
        loop.batch()
        loop.call()
        loop.backward()


def explicit_step(loop: Loop) -> None:
    for _ in range(3):
        for _ in range(2):
            loop.call()
            loop.backward()
            loop.optimizer()
        loop.machine.explicit_step(samples=9, tokens=5)


def nested_optimizer(loop: Loop) -> None:
    for _ in range(3):
        loop.batch()
        loop.backward()
        loop.machine.optimizer_begin()
        loop.optimizer("its base class")
        loop.machine.optimizer_end("one")


def optimizer_that_raises(loop: Loop) -> None:
    for _ in range(3):
        loop.batch()
        loop.backward()
        loop.machine.optimizer_begin()  # and no end
        loop.step()


def evaluation_with_eval(loop: Loop) -> None:
    for _ in range(3):
        loop.step()
        loop.machine.mode_changed(training=False)
        for _ in range(2):
            loop.batch(loop.validation)
            loop.call()
        loop.machine.mode_changed(training=True)


def evaluation_without_eval(loop: Loop) -> None:
    for _ in range(3):
        loop.step()
        for _ in range(2):
            loop.batch(loop.validation)
            loop.call(grad=False)


@pytest.mark.parametrize(
    ("events", "steps", "samples"),
    [
        (plain, 3, 12),
        (accumulation, 3, 24),
        (two_optimizers, 3, 12),
        (closure, 3, 12),
        (no_optimizer, 3, 12),
        (nested_optimizer, 3, 12),
        (optimizer_that_raises, 3, 24),
        (evaluation_with_eval, 3, 12),
    ],
)
@pytest.mark.parametrize("models_are_seen", [True, False])
def test_a_step_ends_with_the_first_update_after_a_new_batch(
    events: Callable[[Loop], None], steps: int, samples: int, models_are_seen: bool
) -> None:
    loop = Loop(models_are_seen=models_are_seen)

    events(loop)

    assert [step.number for step in loop.steps] == list(range(1, steps + 1))
    assert sum(step.samples for step in loop.steps) == samples
    assert all(sum(step.wall) == step.wall_total for step in loop.steps)


def test_without_a_loader_the_optimizer_that_stepped_first_ends_steps() -> None:
    loop = Loop()

    two_optimizers_without_loader(loop)

    assert len(loop.steps) == 3


def test_an_optimizer_that_is_watched_since_the_middle_of_its_step_ends_a_step_when_it_ends() -> None:
    loop = Loop()
    loop.step()

    loop.batch()
    loop.call()
    loop.backward()
    loop.now += 1
    loop.machine.optimizer_end("one")

    assert [sum(step.wall) for step in loop.steps] == [4, 4]


def test_from_the_first_explicit_step_on_only_explicit_steps_end_steps() -> None:
    loop = Loop()

    explicit_step(loop)

    # The first optimizer steps ended steps before anyone could know.
    assert [(step.samples, step.tokens) for step in loop.steps[-2:]] == [(9, 5), (9, 5)]
    assert [step.backward_calls for step in loop.steps[-2:]] == [2, 2]


def test_each_event_is_in_its_own_phase() -> None:
    loop = Loop()

    plain(loop)

    for phase in (phases.DATA_WAIT, phases.FORWARD, phases.BACKWARD, phases.OPTIMIZER):
        assert loop.seconds(phase) == [1, 1, 1]


def test_compiling_is_a_phase_of_its_own_in_whatever_it_happens() -> None:
    loop = Loop()
    for _ in range(2):
        loop.batch()
        assert loop.machine.model_begin(loop.model)
        loop.compile()
        loop.machine.model_end()
        loop.backward_compiled_elsewhere()
        loop.optimizer()

    assert loop.seconds(phases.COMPILE) == [3, 3]
    assert loop.seconds(phases.FORWARD) == [0, 0]
    assert loop.seconds(phases.BACKWARD) == [1, 1]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_while_code_is_compiled_the_device_gets_no_work(elsewhere: bool) -> None:
    class Device:
        def __init__(self) -> None:
            self.segment, self.begun = "backward", []

        def begin(self, segment: str) -> None:
            self.segment = segment
            self.begun.append(segment)

    loop = Loop()
    loop.machine.device = device = Device()
    before = loop.machine.compile_begin(elsewhere=elsewhere)
    loop.machine.compile_end(before, 1 if elsewhere else 0)

    assert device.begun == ["gap", "backward"]


def test_what_an_evaluation_compiles_is_compiling() -> None:
    loop = Loop()
    loop.step()
    loop.machine.mode_changed(training=False)
    loop.compile()
    loop.call(grad=False)
    loop.machine.mode_changed(training=True)
    loop.step()

    assert loop.seconds(phases.COMPILE) == [0, 1]
    assert loop.seconds(phases.EVALUATION) == [0, 1]


def test_what_a_closure_computes_is_not_the_optimizers() -> None:
    loop = Loop()

    closure(loop)

    assert loop.seconds(phases.FORWARD) == loop.seconds(phases.BACKWARD) == [4, 4, 4]
    assert loop.seconds(phases.OPTIMIZER) == [0, 0, 0]


@pytest.mark.parametrize("events", [evaluation_with_eval, evaluation_without_eval])
def test_an_evaluation_and_its_loading_are_in_a_phase_of_their_own(events: Callable[[Loop], None]) -> None:
    loop = Loop()

    events(loop)
    loop.step()

    assert loop.seconds(phases.EVALUATION) == [0, 4, 4, 4]
    assert loop.seconds(phases.DATA_WAIT) == [1, 1, 1, 1]
    assert [step.samples for step in loop.steps] == [4, 4, 4, 4]


def test_eval_before_the_first_step_is_a_model_being_built() -> None:
    loop = Loop()
    loop.machine.mode_changed(training=False)

    loop.batch()

    assert loop.machine.timeline.phase_now == phases.PREPARATION


def test_a_model_in_eval_mode_that_is_trained_nevertheless_is_training() -> None:
    loop = Loop()
    loop.step()
    loop.machine.mode_changed(training=False)

    loop.step()

    assert loop.seconds(phases.EVALUATION) == [0, 0]
    assert loop.seconds(phases.FORWARD) == [1, 1]


def test_who_follows_is_told_each_step_once_in_order_and_the_first_gradients_before_them() -> None:
    loop = Loop()
    told: list[str] = []
    loop.machine.on_first_training = lambda: told.append("first")
    loop.machine.on_step = (lambda step: told.append(f"a{step.number}"), lambda step: told.append(f"b{step.number}"))

    loop.step()
    loop.step()

    assert told == ["first", "a1", "b1", "a2", "b2"]


def test_a_step_is_read_in_detail_first_and_then_ten_times_a_second() -> None:
    loop = Loop()
    for _ in range(100):
        loop.step()
    for _ in range(3):
        loop.now += 60_000_000
        loop.step()

    assert [step.cpu is not None for step in loop.steps] == [True] * 100 + [False, False, True]


def test_a_plain_step_makes_few_calls() -> None:
    loop = Loop()
    for _ in range(200):
        loop.step()
    calls: list[str] = []

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and PROBE in frame.f_code.co_filename:
            calls.append(frame.f_code.co_name)

    sys.setprofile(called)
    loop.step()
    sys.setprofile(None)

    assert len(loop.steps) == 201
    assert len(calls) <= MOST_CALLS[Loop.kind], calls


EVENTS: list[Callable[[Loop], None]] = [
    lambda loop: loop.batch(),
    lambda loop: loop.batch(loop.validation, grad=False),
    lambda loop: loop.machine.batch_begin(loop.train),
    lambda loop: loop.machine.no_batch(),
    lambda loop: loop.machine.batch_handed_out(),
    lambda loop: loop.call(),
    lambda loop: loop.call(Model(), grad=False),
    lambda loop: loop.machine.model_end(),
    lambda loop: loop.backward(),
    lambda loop: loop.machine.backward_begin(),
    lambda loop: loop.machine.backward_end(),
    lambda loop: loop.optimizer("two"),
    lambda loop: loop.machine.optimizer_begin(),
    lambda loop: loop.machine.optimizer_begin(with_closure=True),
    lambda loop: loop.machine.closure_begin(),
    lambda loop: loop.machine.closure_end(),
    lambda loop: loop.machine.optimizer_left(),
    lambda loop: loop.machine.optimizer_end("one"),
    lambda loop: loop.machine.mode_changed(training=False),
    lambda loop: loop.machine.mode_changed(training=True),
    lambda loop: loop.machine.exchanged(),
    lambda loop: loop.machine.copy_end(loop.machine.copy_begin()),
    lambda loop: loop.compile(),
    lambda loop: loop.machine.compile_begin(),
    lambda loop: loop.backward_compiled_elsewhere(),
    lambda loop: loop.machine.explicit_step(samples=0, tokens=0),
]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=60), st.booleans())
def test_whatever_the_order_of_events_nothing_raises_and_all_time_is_in_one_phase_of_one_step(
    events: list[tuple[Callable[[Loop], None], int]], models_are_seen: bool
) -> None:
    loop = Loop(models_are_seen=models_are_seen)
    for event, passed in events:
        loop.now += passed
        event(loop)
    loop.machine.end_step()

    assert sum(step.wall_total for step in loop.steps) == loop.now
    assert all(sum(step.wall) == step.wall_total and min(step.wall) >= 0 for step in loop.steps)
    assert [step.number for step in loop.steps] == list(range(1, len(loop.steps) + 1))


@pytest.mark.bar(but=("compiled",))  # it runs both
@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=80), st.booleans(), st.integers(0, 4))
def test_the_compiled_machine_and_the_python_one_tell_the_same_steps_and_are_in_the_same_phase(
    events: list[tuple[Callable[[Loop], None], int]], models_are_seen: bool, usual_steps: int
) -> None:
    needs_compiled()
    loops = [Loop(models_are_seen=models_are_seen, kind=kind) for kind in MACHINES]
    for loop in loops:
        for _ in range(usual_steps):
            loop.step()
    for event, passed in events:
        for loop in loops:
            loop.now += passed
            event(loop)
        python, compiled = (loop.machine for loop in loops)
        assert (python.phase, python.timeline.phase_now, python.steps) == (
            compiled.phase,
            compiled.timeline.phase_now,
            compiled.steps,
        )
        assert python.steps_in_parameters == compiled.steps_in_parameters
    assert loops[0].steps == loops[1].steps
