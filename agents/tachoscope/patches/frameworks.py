"""What frameworks say of a step, of evaluation and of checkpoints: Lightning, Hugging Face Trainer, Accelerate.

Their loops call torch as any loop does, so most is seen already; an adapter adds what only the framework knows. Where a version
lacks a name, nothing is wrapped and torch's own events decide.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tachoscope.lineage import hyperparameters as framework_hyperparameters
from tachoscope.patches.torch_checkpoints import argument, loading, saving
from tachoscope.patches.wrap import Function, call_guarded, wrap
from tachoscope.process.import_hook import after_import
from tachoscope.training.probe import Probe


def install(probe: Probe) -> None:
    """Wrap each framework when it is imported."""
    for package in ("lightning.pytorch", "pytorch_lightning"):
        after_import(f"{package}.trainer.trainer", functools.partial(_lightning_trainer, probe))
        after_import(f"{package}.trainer.connectors.checkpoint_connector", functools.partial(_lightning_restores, probe))
        after_import(f"{package}.plugins.io.async_plugin", functools.partial(_lightning_asynchronous, probe))
        after_import(f"{package}.loops.evaluation_loop", functools.partial(_lightning_evaluation, probe))
        after_import(f"{package}.loops.training_epoch_loop", functools.partial(_lightning_steps, probe))
    after_import("transformers.trainer", functools.partial(_transformers_trainer, probe))
    after_import("transformers.trainer_callback", functools.partial(_transformers_steps, probe))
    after_import("transformers.modeling_utils", functools.partial(_transformers_models, probe))
    after_import("accelerate.accelerator", functools.partial(_accelerate, probe))
    after_import("accelerate.data_loader", functools.partial(_accelerate_loaders, probe))


def _evaluating(probe: Probe) -> Callable[[Function], Function]:
    """Account a function as evaluation, with its data loading."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.in_watched_thread():
                return original(*args, **kwargs)
            call_guarded(probe, probe.machine.begin_evaluation)
            try:
                return original(*args, **kwargs)
            finally:
                call_guarded(probe, probe.machine.end_evaluation)

        return call

    return wrapper_of


def _step_after(probe: Probe, optimizer_steps: Callable[[], bool]) -> Callable[[Function], Function]:
    """A step ends when the function returns and an optimizer stepped meanwhile."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not probe.in_watched_thread():
                return original(*args, **kwargs)
            previous, probe.machine.rule.explicit = probe.machine.rule.explicit, True
            try:
                return original(*args, **kwargs)
            finally:
                probe.machine.rule.explicit = previous  # a loop of the user's own may follow
                if call_guarded(probe, optimizer_steps):
                    call_guarded(probe, probe.machine.end_step)

        return call

    return wrapper_of


def _framework_steps(probe: Probe, *, begin: bool) -> Callable[[Function], Function]:
    """Let only the framework end steps after this function, or no longer."""

    def wrapper_of(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if probe.in_watched_thread():
                probe.machine.rule.explicit = begin
            return original(*args, **kwargs)

        return call

    return wrapper_of


def _handing_out(probe: Probe) -> Callable[[Function], Function]:
    """Mark when a batch is handed out: a loader that reads ahead has it earlier."""

    def wrapper_of(original: Function) -> Function:
        def hand_out(self: Any) -> Iterator[Any]:
            for batch in original(self):
                if probe.in_watched_thread():
                    call_guarded(probe, probe.machine.batch_handed_out)
                yield batch

        return hand_out

    return wrapper_of


def _lightning_trainer(probe: Probe, module: ModuleType) -> None:
    wrap(module.Trainer, "fit", framework_hyperparameters.of_lightning)
    wrap(module.Trainer, "save_checkpoint", functools.partial(saving, probe, name_of=argument("filepath", 1)))


def _lightning_restores(probe: Probe, module: ModuleType) -> None:
    # Here all strategies read the checkpoint; what follows takes the states from memory.
    wrap(module._CheckpointConnector, "resume_start", functools.partial(loading, probe, name_of=argument("checkpoint_path", 1)))


def _lightning_asynchronous(probe: Probe, module: ModuleType) -> None:
    def save_of(original: Function) -> Function:
        def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            if probe.in_watched_thread() and probe.checkpoints.saves.depth:
                # It writes with one thread, so that what is asked of this thread now is done after the checkpoint is whole.
                call_guarded(probe, probe.checkpoints.completes_with, self._executor.submit(_raise_error_of, self))

        return save_checkpoint

    wrap(module.AsyncCheckpointIO, "save_checkpoint", save_of)


def _raise_error_of(plugin: Any) -> None:
    if plugin._error is not None:
        raise plugin._error


def _lightning_evaluation(probe: Probe, module: ModuleType) -> None:
    wrap(module._EvaluationLoop, "run", _evaluating(probe))


def _lightning_steps(probe: Probe, module: ModuleType) -> None:
    # One batch of the training loop, after which several optimizers may have stepped (manual optimisation) or none (accumulation).
    wrap(module._TrainingEpochLoop, "advance", _step_after(probe, lambda: probe.machine.rule.take_stepped()))


def _transformers_trainer(probe: Probe, module: ModuleType) -> None:
    wrap(module.Trainer, "_save_checkpoint", functools.partial(saving, probe, name_of=_transformers_folder))
    wrap(module.Trainer, "save_model", functools.partial(saving, probe, name_of=argument("output_dir", 1)))
    for name, parameter in (
        ("_load_from_checkpoint", "resume_from_checkpoint"),
        ("_load_optimizer_and_scheduler", "checkpoint"),
        ("_load_rng_state", "checkpoint"),
    ):
        wrap(module.Trainer, name, functools.partial(loading, probe, name_of=argument(parameter, 1)))
    wrap(module.Trainer, "evaluation_loop", _evaluating(probe))


def _transformers_folder(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:  # noqa: ARG001
    """Return the folder that the Trainer makes for this checkpoint, as its own `_save_checkpoint` names it."""
    trainer, trial = args[0], kwargs.get("trial", args[2] if len(args) > 2 else None)
    return os.path.join(trainer._get_output_dir(trial=trial), f"checkpoint-{trainer.state.global_step}")


def _transformers_steps(probe: Probe, module: ModuleType) -> None:
    # The Trainer calls this once an update of the parameters, after all micro-batches.
    wrap(module.CallbackHandler, "on_step_end", _step_after(probe, lambda: True))
    wrap(module.CallbackHandler, "on_train_begin", _framework_steps(probe, begin=True))
    wrap(module.CallbackHandler, "on_train_begin", framework_hyperparameters.of_transformers)
    wrap(module.CallbackHandler, "on_train_end", _framework_steps(probe, begin=False))


def _transformers_models(probe: Probe, module: ModuleType) -> None:
    # Several files, when the weights are sharded.
    wrap(module.PreTrainedModel, "save_pretrained", functools.partial(saving, probe, name_of=argument("save_directory", 1)))


def _accelerate(probe: Probe, module: ModuleType) -> None:
    # With automatic names only the result tells the folder.
    wrap(module.Accelerator, "save_state", functools.partial(saving, probe, name_of=lambda _, __, folder: folder))
    wrap(module.Accelerator, "save_model", functools.partial(saving, probe, name_of=argument("save_directory", 2)))
    wrap(module.Accelerator, "load_state", functools.partial(loading, probe, name_of=argument("input_dir", 1)))


def _accelerate_loaders(probe: Probe, module: ModuleType) -> None:
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        wrap(getattr(module, name, None), "__iter__", _handing_out(probe))
