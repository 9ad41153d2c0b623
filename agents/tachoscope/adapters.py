"""What frameworks say of a step, of evaluation and of checkpoints: Lightning, Hugging Face Trainer, Accelerate.

Their loops call torch as any loop does, so most is seen already; an adapter adds what only the framework knows. Where a version
lacks a name, nothing is wrapped and torch's own events decide.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tachoscope import timeline as tl
from tachoscope.importhook import after_import
from tachoscope.probe import Probe

Function = Callable[..., Any]


def install(probe: Probe) -> None:
    """Wrap each framework when it is imported."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        after_import(f"{package}.trainer.trainer", functools.partial(_lightning_trainer, probe))
        after_import(f"{package}.loops.evaluation_loop", functools.partial(_lightning_evaluation, probe))
        after_import(f"{package}.loops.training_epoch_loop", functools.partial(_lightning_steps, probe))
    after_import("transformers.trainer", functools.partial(_transformers_trainer, probe))
    after_import("transformers.trainer_callback", functools.partial(_transformers_steps, probe))
    after_import("accelerate.accelerator", functools.partial(_accelerate, probe))


def _wrap(owner: Any, name: str, wrapper_of: Callable[[Function], Function]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(wrapper_of(original)))


def _within(probe: Probe, phase: int) -> Callable[[Function], Function]:
    """Account the time in a function to a phase; a checkpoint is recorded as well."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.mine():
                return original(*args, **kwargs)
            begin = time.monotonic()
            outermost = probe.phase != phase
            probe.timeline.enter(phase)
            try:
                return original(*args, **kwargs)
            finally:
                probe.timeline.leave()
                if phase == tl.CHECKPOINT and outermost and probe.steps:
                    probe.checkpoint_saved(blocking_seconds=time.monotonic() - begin, size_bytes=0)

        return call

    return wrapper_of


def _evaluating(probe: Probe) -> Callable[[Function], Function]:
    """All that a function does is evaluation, its data loading included."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.mine() or not probe.steps:
                return original(*args, **kwargs)
            probe.timeline.begin_evaluation()
            try:
                return original(*args, **kwargs)
            finally:
                probe.timeline.end_evaluation()

        return call

    return wrapper_of


def _step_after(probe: Probe, optimizer_steps: Callable[[], bool]) -> Callable[[Function], Function]:
    """A step ends when the function returns and an optimizer stepped meanwhile."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.mine():
                return original(*args, **kwargs)
            probe.explicit_steps = True
            try:
                return original(*args, **kwargs)
            finally:
                if optimizer_steps():
                    probe.end_step()

        return call

    return wrapper_of


def _lightning_trainer(probe: Probe, module: ModuleType) -> None:
    _wrap(module.Trainer, "save_checkpoint", _within(probe, tl.CHECKPOINT))


def _lightning_evaluation(probe: Probe, module: ModuleType) -> None:
    _wrap(module._EvaluationLoop, "run", _evaluating(probe))


def _lightning_steps(probe: Probe, module: ModuleType) -> None:
    # One batch of the training loop, after which several optimizers may have stepped (manual optimisation) or none (accumulation).
    _wrap(module._TrainingEpochLoop, "advance", _step_after(probe, probe.take_optimizer_stepped))


def _transformers_trainer(probe: Probe, module: ModuleType) -> None:
    _wrap(module.Trainer, "_save_checkpoint", _within(probe, tl.CHECKPOINT))
    _wrap(module.Trainer, "evaluation_loop", _evaluating(probe))


def _transformers_steps(probe: Probe, module: ModuleType) -> None:
    # The Trainer calls this once an update of the parameters, after all micro-batches.
    _wrap(module.CallbackHandler, "on_step_end", _step_after(probe, lambda: True))


def _accelerate(probe: Probe, module: ModuleType) -> None:
    for name in ("save_state", "save_model"):
        _wrap(module.Accelerator, name, _within(probe, tl.CHECKPOINT))
