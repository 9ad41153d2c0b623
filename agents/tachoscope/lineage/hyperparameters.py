"""Hyper-parameters of Lightning modules, and Hugging Face TrainingArguments that differ from the defaults."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any

from tachoscope.lineage import collect as lineage

Function = Callable[..., Any]
_PLACES = ("output_dir", "logging_dir", "run_name", "local_rank", "resume_from_checkpoint", "report_to", "hub_", "push_to_hub")
"""Beginnings of the names of arguments that say where a run is, not what it is."""


def of_lightning(original: Function) -> Function:
    """Wrap `Trainer.fit(model, ...)`, so that the `hparams` of the model are recorded; no error reaches the training."""

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):  # what it is made of is worth knowing, but not the run
            model = args[0] if args else kwargs.get("model")
            lineage.saw_hyperparameters(dict(getattr(model, "hparams", None) or {}))
        return original(self, *args, **kwargs)

    return fit


def of_transformers(original: Function) -> Function:
    """Wrap `CallbackHandler.on_train_begin(args, ...)`, so that the arguments that differ from the defaults are recorded."""

    def on_train_begin(self: Any, arguments: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            lineage.saw_hyperparameters(changed(arguments))
        return original(self, arguments, *args, **kwargs)

    return on_train_begin


def changed(arguments: Any) -> Mapping[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, as far as they are plain values."""
    found = {}
    for field in dataclasses.fields(arguments):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        value = getattr(arguments, field.name)
        if isinstance(value, enum.Enum):
            value = value.value
        if isinstance(value, bool | int | float | str) and value != default and not field.name.startswith(_PLACES):
            found[field.name] = value
    return found
