"""What frameworks say of a step, of evaluation and of checkpoints: Lightning, Hugging Face Trainer, Accelerate.

Their loops call torch as any loop does, so most is seen already; an adapter adds what only the framework knows. Where a version
lacks a name, nothing is wrapped and torch's own events decide.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tachoscope.importhook import after_import
from tachoscope.patches import saving, wrap
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
    after_import("transformers.modeling_utils", functools.partial(_transformers_models, probe))
    after_import("accelerate.accelerator", functools.partial(_accelerate, probe))
    after_import("accelerate.data_loader", functools.partial(_accelerate_loaders, probe))


def _evaluating(probe: Probe) -> Callable[[Function], Function]:
    """All that a function does is evaluation, its data loading included."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.mine():
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
            previous, probe.rule.explicit = probe.rule.explicit, True
            try:
                return original(*args, **kwargs)
            finally:
                probe.rule.explicit = previous  # a loop of the user's own may follow
                if optimizer_steps():
                    probe.end_step()

        return call

    return wrapper_of


def _framework_steps(probe: Probe, *, begin: bool) -> Callable[[Function], Function]:
    """After the function only the framework ends steps, or no longer does."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if probe.mine():
                probe.rule.explicit = begin
            return original(*args, **kwargs)

        return call

    return wrapper_of


def _handing_out(probe: Probe) -> Callable[[Function], Function]:
    """A loader that reads one batch ahead: the loop has a batch when it is handed out, not when it is read."""

    def wrapper_of(original: Function) -> Function:
        def hand_out(self: Any) -> Iterator[Any]:
            for batch in original(self):
                if probe.mine():
                    probe.batch_handed_out()
                yield batch

        return hand_out

    return wrapper_of


def _lightning_trainer(probe: Probe, module: ModuleType) -> None:
    wrap(module.Trainer, "save_checkpoint", functools.partial(saving, probe))


def _lightning_evaluation(probe: Probe, module: ModuleType) -> None:
    wrap(module._EvaluationLoop, "run", _evaluating(probe))


def _lightning_steps(probe: Probe, module: ModuleType) -> None:
    # One batch of the training loop, after which several optimizers may have stepped (manual optimisation) or none (accumulation).
    wrap(module._TrainingEpochLoop, "advance", _step_after(probe, lambda: probe.rule.take_stepped()))


def _transformers_trainer(probe: Probe, module: ModuleType) -> None:
    for name in ("_save_checkpoint", "save_model"):
        wrap(module.Trainer, name, functools.partial(saving, probe))
    wrap(module.Trainer, "evaluation_loop", _evaluating(probe))


def _transformers_steps(probe: Probe, module: ModuleType) -> None:
    # The Trainer calls this once an update of the parameters, after all micro-batches.
    wrap(module.CallbackHandler, "on_step_end", _step_after(probe, lambda: True))
    wrap(module.CallbackHandler, "on_train_begin", _framework_steps(probe, begin=True))
    wrap(module.CallbackHandler, "on_train_end", _framework_steps(probe, begin=False))


def _transformers_models(probe: Probe, module: ModuleType) -> None:
    # Several files, when the weights are sharded.
    wrap(module.PreTrainedModel, "save_pretrained", functools.partial(saving, probe))


def _accelerate(probe: Probe, module: ModuleType) -> None:
    for name in ("save_state", "save_model"):
        wrap(module.Accelerator, name, functools.partial(saving, probe))


def _accelerate_loaders(probe: Probe, module: ModuleType) -> None:
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        wrap(getattr(module, name, None), "__iter__", _handing_out(probe))
