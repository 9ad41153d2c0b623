"""The step state machine: from the few events of a training loop to its steps and their phases.

What wraps torch and frameworks (`tachoscope.patches`) tells it the events, on the watched thread: a batch is asked for and given, a
model is called, gradients are computed, an optimizer steps. It decides in which phase the time between them was, which batches
are trained on, and where a step ends. It does no input or output, starts no thread and knows no torch: clocks are given to it.

Where a step's end is decided: `backward_end`, `optimizer_end` and `explicit_step`, by `StepRule` and `GradientSteps`. All three end
in `end_step`, as do frameworks that say it themselves.

Others follow it by the attributes in which they are put, all of them by `Probe`. An event costs a look at an attribute where nobody
follows it, and makes no objects: after a step's computing, little of the probe is left in the processor's caches.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from tachoscope.timing.device_clock import GAP, HOST_TO_DEVICE
from tachoscope.timing.finished_step import FinishedStep
from tachoscope.timing.phases import (
    BACKWARD,
    COMPILE,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    OPTIMIZER,
    OTHER,
    PREPARATION,
    Timeline,
)
from tachoscope.timing.phases import HOST_TO_DEVICE as COPYING
from tachoscope.timing.step_detail import StepDetail
from tachoscope.training.evaluation import EvaluationRule
from tachoscope.training.gradient_steps import GradientSteps
from tachoscope.training.step_rule import StepRule

_CALL_MODELS = (OTHER, PREPARATION, FORWARD, LOSS)
"""Phases in which a model is called as such: elsewhere it is called by a loader, a checkpoint, or backward once more."""


class SegmentFollower(Protocol):
    """Receives what the device works on next."""

    segment: str

    def begin(self, segment: str) -> None: ...


class CallFollower(Protocol):
    """Receives calls of models with gradients, and gradient computations with the number of steps so far."""

    def model_called(self) -> None: ...
    def backward_called(self, steps: int) -> None: ...


def _nothing() -> None:
    """Do nothing: the default where no part subscribes."""


class StepMachine:
    """The steps of one thread.

    Attributes:
        steps: how many ended so far.
        trains: gradients were computed, or a step ended.
        without_gradients: the model that was called last was called without.
        has_models: outermost calls of models are reported, and there were some.
        on_first_training: called once, before the first gradients are computed or the first step ends.
        on_step: called with each step that ended, one after the other.
        device: follows what the device does; None: there is none.
        calls: receives where the loop calls from; None: no subscriber.
        model_calls: outermost calls of models with gradients in this step, as `ModelCalls` counts them.
        inside_model: one of them is running.
        models_known: the classes of models are no longer looked for.
        thread_ident: the thread whose events it is told; 0: none yet.
        quick: usual steps may be kept until `take_steps`, and events need no device timing. Only the compiled machine uses it.
    """

    __slots__ = (
        "_backward_calls",
        "_elements",
        "_loader",
        "_open_optimizers",
        "_pending",
        "_samples",
        "calls",
        "detail",
        "device",
        "evaluation",
        "gradient_steps",
        "has_models",
        "inside_model",
        "model_calls",
        "models_known",
        "on_first_training",
        "on_step",
        "quick",
        "rule",
        "steps",
        "thread_ident",
        "timeline",
        "trains",
        "without_gradients",
    )

    PARTS: ClassVar = (StepRule, EvaluationRule, GradientSteps, StepDetail)
    """The classes of its rules; the compiled machine has compiled ones."""

    def __init__(self, timeline: Timeline | None = None) -> None:
        rule, evaluation, gradient_steps, detail = self.PARTS
        self.timeline = timeline or Timeline()
        self.rule = rule()
        self.evaluation = evaluation(self.timeline)
        self.gradient_steps = gradient_steps()
        self.detail = detail()
        self.steps = 0
        self.trains = self.without_gradients = self.has_models = self.inside_model = False
        self.models_known = True
        self.quick = False
        self.model_calls = self.thread_ident = 0
        self.on_first_training: Callable[[], None] = _nothing
        self.on_step: tuple[Callable[[FinishedStep], None], ...] = ()
        self.device: SegmentFollower | None = None
        self.calls: CallFollower | None = None
        self._loader: weakref.ref[Any] | None = None
        self._pending: list[tuple[int, int]] = []
        self._open_optimizers: list[int] = []
        self._samples = self._elements = self._backward_calls = 0

    def restart(self, read_delay: Callable[[], int] | None) -> None:
        """Restart the step in the calling thread; `read_delay` returns the nanoseconds that the thread waited for a core."""
        self.detail.restart(read_delay)
        self.timeline.unwind(0)  # phases of the thread that was watched before, which no longer ends them
        self._open_optimizers.clear()
        self.timeline.reads_cpu = True
        self.timeline.restart()

    # --- batches -----------------------------------------------------------------------------------------------------------

    def batch_begin(self, loader: object) -> None:
        """The thread asks a loader's iterator for a batch."""
        if self.timeline.evaluating and self.timeline.evaluating_without_grad:
            self.end_evaluation()
        self._ask(loader)

    def batch_begin_without_gradients(self, loader: object) -> None:
        """It does so with gradients switched off."""
        self.timeline.begin_evaluation(no_grad=True)
        self._ask(loader)

    def _ask(self, loader: object) -> None:
        timeline, evaluation = self.timeline, self.evaluation
        if self._loader is None or self._loader() is not loader:
            self._loader = weakref.ref(loader)
            evaluation.settled = False
        if self.has_models and not evaluation.settled and not timeline.evaluating and evaluation.batch_asked(loader):
            self._pending.clear()
        if self._open_optimizers:
            self._leave_optimizers()
        if self.device is not None:
            self.device.begin(GAP)  # within a step that accumulates gradients, too
        timeline.enter(DATA_WAIT)

    def batch_end(self, samples: int, elements: int) -> None:
        """The loader returned a batch of so many samples and elements: preparation begins."""
        self.timeline.leave_to(PREPARATION if self.has_models else FORWARD)
        self._batch_arrived(samples, elements)

    def no_batch(self) -> None:
        """The loader was exhausted, or raised."""
        self.timeline.leave()
        if not self.timeline.evaluating:
            self.rule.loader_exhausted()

    def batch_handed_out(self) -> None:
        """The loop gets a batch that its loader read ahead; its samples were counted then."""
        self.timeline.go_on_in(PREPARATION if self.has_models else FORWARD)
        self._batch_arrived(0, 0)

    @property
    def loader(self) -> Any:
        """The loader's iterator that was asked last, None once it is gone."""
        return self._loader() if self._loader is not None else None

    def _batch_arrived(self, samples: int, elements: int) -> None:
        if self.timeline.evaluating:  # perhaps: of its batches the last one may be of the training
            before = self._pending[-1] if self._pending else (0, 0)
            self._pending = [(samples or before[0], elements or before[1])]
        elif self.has_models:
            if not self.evaluation.settled:
                self.evaluation.batch_arrived()
            self._pending.append((samples, elements))
        else:
            self._train_on(samples, elements)

    def _train_on(self, samples: int, elements: int) -> None:
        self.rule.batch_arrived(self._loader)
        self._samples += samples
        self._elements += elements

    def _train_on_pending(self) -> None:
        self.rule.batch_arrived(self._loader)
        for samples, elements in self._pending:
            self._samples += samples
            self._elements += elements
        self._pending.clear()

    @property
    def _fed(self) -> bool:
        """Whether a loader gave a batch since the last step, or will give the next one."""
        return self.rule.is_fed_by_loader or bool(self._pending)

    # --- evaluation --------------------------------------------------------------------------------------------------------

    def begin_evaluation(self) -> None:
        """What follows may be evaluation, and is unless gradients are computed."""
        self.timeline.begin_evaluation()

    def end_evaluation(self) -> None:
        """What may have been evaluation was it; its batches are not trained on."""
        if self.timeline.evaluating:
            self.timeline.end_evaluation()
            self._pending.clear()

    def mode_changed(self, *, training: bool) -> None:
        """The job called `train` or `eval` of a module."""
        if training:
            self.end_evaluation()
        elif self.steps:  # before the first step it is a model being built
            self.timeline.begin_evaluation()

    # --- models ------------------------------------------------------------------------------------------------------------

    def model_begin(self, module: Any) -> bool:
        """A model is called that no other called; False where this belongs to another phase, such as backward."""
        timeline = self.timeline
        if timeline.phase not in _CALL_MODELS:
            return False
        if self.calls is not None:
            self.calls.model_called()
        self.without_gradients = False
        timeline.enter(FORWARD)
        if timeline.evaluating:
            return True
        if self.device is not None:
            self.device.begin("forward")
        self.evaluation.called_with_gradients(module)
        if self._pending:
            self._train_on_pending()
        elif not self._fed:
            timeline.move_to_phase(OTHER, PREPARATION)
        return True

    def model_begin_without_gradients(self, module: Any) -> bool:
        """The same with gradients switched off."""
        if self.timeline.phase not in _CALL_MODELS:
            return False
        if self.has_models and not self.timeline.evaluating:
            self.evaluation.called_without_gradients(module, fed=self._fed)
        self.without_gradients = True
        if self.device is not None and self._fed and not self.timeline.evaluating:
            self.device.begin("no_grad")
        self.timeline.enter(FORWARD)
        return True

    def model_end(self) -> None:
        """The call of a model returned."""
        if self.without_gradients:
            self.timeline.leave()
            if not self.timeline.evaluating:
                self.evaluation.returned_without_gradients()
        else:
            self.timeline.leave_to(LOSS)

    def copy_begin(self) -> str:
        """A tensor of the host is about to be copied to the device; return what `copy_end` needs."""
        self.timeline.enter(COPYING)
        if self.device is None or self.timeline.evaluating:
            return ""
        before = self.device.segment
        self.device.begin(HOST_TO_DEVICE)
        return before

    def copy_end(self, before: str) -> None:
        """It is copied, or queued. What was before goes on; where no model will say that it begins, the forward pass does."""
        self.timeline.leave()
        if self.device is not None and before:
            self.device.begin("forward" if before == GAP and not self.has_models else before)

    def compile_begin(self, *, elsewhere: bool = False) -> str:
        """Code is about to be compiled, `elsewhere`: on another thread, for which this one waits. Return what `compile_end` needs.

        The device gets no work meanwhile.
        """
        if not elsewhere:
            self.timeline.enter(COMPILE)
        if self.device is None or self.timeline.evaluating:
            return ""
        before = self.device.segment
        self.device.begin(GAP)
        return before

    def compile_end(self, before: str, elsewhere_ns: int = 0) -> None:
        """It is compiled, and what was before goes on.

        Args:
            elsewhere_ns: nanoseconds that another thread took for it; 0: it was the watched one.
        """
        if elsewhere_ns:
            self.timeline.spent_elsewhere(COMPILE, elsewhere_ns)
        else:
            self.timeline.leave()
        if self.device is not None and before:
            self.device.begin(before)

    def exchanged(self) -> None:
        """The thread sent to another rank, or received: a stage of a pipeline computes a batch that no loader gave it."""
        if self.trains and self.timeline.phase == OTHER:
            self.timeline.go_on_in(LOSS if self.has_models else FORWARD)

    # --- gradients ---------------------------------------------------------------------------------------------------------

    def backward_begin(self) -> None:
        """Gradients are about to be computed: this is training."""
        timeline = self.timeline
        if timeline.evaluating:
            timeline.cancel_evaluation()
        if self._pending:
            self._train_on_pending()
        if self._open_optimizers:
            self._leave_optimizers()
        if not self.trains:
            self._begin_training()
        if self.calls is not None:
            self.calls.backward_called(self.steps)
        if timeline.reads_cpu:
            self.detail.backward_began()
        if self.device is not None:
            self.device.begin("backward")
        self._backward_calls += 1
        timeline.enter(BACKWARD)

    def backward_end(self) -> None:
        """Gradients are there; without an optimizer this may end the step."""
        self.timeline.leave_to(LOSS if self.has_models else FORWARD)
        if self.timeline.reads_cpu:
            self.detail.backward_ended()
        if self.gradient_steps.over or self.rule.explicit:
            return
        if self.gradient_steps.computed() and (self.rule.fresh_batch or not self._fed):
            self.gradient_steps.counted += 1
            self.end_step()

    # --- optimizers --------------------------------------------------------------------------------------------------------

    def optimizer_begin(self, *, with_closure: bool = False) -> None:
        """An optimizer begins its step; one with a closure computes loss and gradients in it."""
        if self.device is not None and not with_closure:
            self.device.begin("optimizer")
        self._open_optimizers.append(len(self.timeline.nested))
        self.timeline.enter(OPTIMIZER)

    def closure_begin(self) -> None:
        """An optimizer asks for the loss and its gradients."""
        self.timeline.enter(LOSS if self.has_models else FORWARD)

    def closure_end(self) -> None:
        """End the phase that `closure_begin` began, and return to the optimizer."""
        self.timeline.leave()
        if self.device is not None:
            self.device.begin("optimizer")

    def optimizer_left(self) -> None:
        """What `optimizer_begin` said ended, and was not a step."""
        if self._open_optimizers:
            self.timeline.unwind(self._open_optimizers.pop())

    def optimizer_end(self, optimizer: object) -> None:
        """An optimizer ended its step, and perhaps a step of the job with it."""
        # One that is not open is watched since the middle of its step.
        just_ended = bool(self._open_optimizers) and self.timeline.unwind(self._open_optimizers.pop())
        if not self.gradient_steps.over:
            self.gradient_steps.optimizer_stepped()
        if self.rule.optimizer_stepped(optimizer, nested=bool(self._open_optimizers)):
            self.end_step(at_last=just_ended and self.trains)
        elif self.has_models and not self.rule.explicit:
            self.timeline.go_on_in(OTHER)

    def _leave_optimizers(self) -> None:
        """Forget optimizer steps that raised, if the job went on: only in a closure are gradients computed within a step."""
        if self.timeline.phase == OPTIMIZER:
            self.timeline.unwind(self._open_optimizers[0])
            self._open_optimizers.clear()

    # --- steps -------------------------------------------------------------------------------------------------------------

    def explicit_step(self, *, samples: int, tokens: int) -> None:
        """The job says that a step ends here; from now on only it does."""
        first, self.rule.explicit = not self.rule.explicit, True
        if first and self.steps and not self.rule.fresh_batch:
            return  # the optimizer ended this very step, before anyone could know that the job would
        self.end_step(samples, tokens)

    def end_step(self, samples: int = 0, tokens: int = 0, *, at_last: bool = False) -> None:
        """A step ends here, or, `at_last`, with the event whose time was just accounted: tell who follows the steps."""
        if not self.trains:
            self._begin_training()
        self.steps += 1
        self.rule.step_ended()
        if not self.evaluation.settled:
            self.evaluation.step_ended()
        timeline = self.timeline
        # The clock of the last event is near enough to decide by.
        was_read, next_is = timeline.reads_cpu, timeline.last >= self.detail.due_at
        end, total, wall, cpu = timeline.end_step(read_cpu=next_is, at_last=at_last)
        delay = backward_delay = None
        if was_read or next_is:
            delay, backward_delay = self.detail.step_ended(self.steps, end, was_read=was_read, next_is=next_is)
        samples = samples or self._samples
        calls, elements = self._backward_calls, self._elements
        step = FinishedStep(self.steps, end, total, wall, cpu, delay, backward_delay, samples, tokens, calls, elements)
        self._samples = self._elements = self._backward_calls = 0
        for tell in self.on_step:
            tell(step)

    def take_steps(self) -> list[FinishedStep]:
        """Return the steps not yet passed to `on_step`, oldest first, on any thread. Only the compiled machine keeps steps."""
        return []

    def _begin_training(self) -> None:
        self.trains = True
        self.on_first_training()

    @property
    def steps_in_parameters(self) -> int:
        """The steps whose updates the parameters hold: a framework may save within a step, after its update."""
        return self.steps + self.rule.updated_since_step

    # --- what the sampler reads, on another thread ---------------------------------------------------------------------------

    @property
    def phase(self) -> int:
        """The phase that the watched thread is in."""
        return self.phase_of(self.timeline.phase, without_gradients=self.without_gradients)

    def phase_of(self, phase: int, *, without_gradients: bool) -> int:
        """Return what a phase of the timeline most likely turns out to be, which the next call of a model or loader decides."""
        if phase == FORWARD and without_gradients:
            return EVALUATION
        return PREPARATION if phase == OTHER and self.has_models and not self._fed else phase
