"""Finds the outermost calls of modules on the watched thread, so that what is the model can be told from what is around it.

Nothing is put on a model: its class gets a `__call__` that reports to the probe. Which classes these are is found out in a few
steps, in which `torch.nn.Module.__call__` is replaced; during the outermost call the original is back in its place, so that modules
within a model and `torch.compile` never see another one. From then on the cost of a step grows with its outermost calls only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from types import FunctionType, ModuleType
from typing import Any, Protocol

from tachoscope.timing.finished_step import FinishedStep

Function = Callable[..., Any]

DISCOVERY_STEPS = 3
"""Steps with a call of a model in which classes are looked for, each time that they are."""
MOST_STEPS_WITHOUT = 20
"""Steps without any call of a module after which nothing is looked for any longer."""
MOST_DISCOVERIES = 5
MOST_CALLS_A_BACKWARD = 64
"""With more outermost calls than this for each time that gradients are computed, the job calls layers, not models, and each call
would cost."""


class Steps(Protocol):
    """What is told of outermost calls."""

    has_models: bool
    model_calls: int
    inside_model: bool
    models_known: bool

    def model_begin(self, module: Any) -> bool: ...
    def model_begin_without_gradients(self, module: Any) -> bool: ...
    def model_end(self) -> None: ...


class Watcher(Protocol):
    """Whose steps these are, and on the thread of which identity."""

    thread_ident: int

    @property
    def machine(self) -> Steps: ...
    def stop_after_fault(self, error: Exception) -> None: ...


class ModelCalls:
    """Reports outermost calls of modules to the machine of `watcher`, once `look_for_models` was called.

    Attributes:
        active: calls are reported, and there were some; also set as `has_models` of the machine.
    """

    def __init__(self, watcher: Watcher, torch: ModuleType) -> None:
        self.active = False
        self._watcher = watcher
        self._grad_enabled = torch.is_grad_enabled
        self._is_compiling = torch.compiler.is_compiling
        self._module_class = torch.nn.Module
        self._original: Function = torch.nn.Module.__call__
        self._discovering = False
        self._classes: dict[Any, Function | None] = {}
        self._steps_with = self._steps_without = self._discoveries = 0
        global CALLS  # where the `__call__` of a class finds it: see `_reporting`
        CALLS = self

    @property
    def known(self) -> bool:
        """Whether classes are no longer looked for."""
        return not self._discovering

    def look_for_models(self) -> None:
        """Find the classes of the outermost calls in the next few steps."""
        if self._discovering or self._discoveries >= MOST_DISCOVERIES or self._module_class.__call__ is not self._original:
            return
        self._discoveries += 1
        self._steps_with = self._steps_without = 0
        self._set_discovering(discovering=True)
        self._module_class.__call__ = _DISCOVERING

    def step_ended(self, step: FinishedStep) -> None:
        """A step ended: with enough of them the classes are known; without any call the models may be others now."""
        machine = self._watcher.machine
        calls, machine.model_calls = machine.model_calls, 0
        if calls > MOST_CALLS_A_BACKWARD and calls > MOST_CALLS_A_BACKWARD * step.backward_calls:
            self.stop()
            self._discoveries = MOST_DISCOVERIES
        elif self._discovering:
            self._steps_with += calls > 0
            self._steps_without += calls == 0
            if self._steps_with >= DISCOVERY_STEPS or self._steps_without >= MOST_STEPS_WITHOUT:
                self._stop_discovering()
        elif not calls and self.active:
            self._set_active(active=False)
            self.look_for_models()

    def stop(self) -> None:
        """Give all classes back what they had."""
        self._set_active(active=False)
        self._stop_discovering()
        for owner, own in self._classes.items():
            if own is None:
                if "__call__" in owner.__dict__:
                    del owner.__call__
            else:
                owner.__call__ = own
        self._classes.clear()

    def call(self, module: Any, function: Function, args: Any, kwargs: Any) -> Any:
        """Call the function of a module, reported if it is the outermost."""
        watcher = self._watcher
        machine = watcher.machine
        if machine.inside_model or get_ident() != watcher.thread_ident or self._is_compiling():
            return function(module, *args, **kwargs)
        entered = False
        try:
            if not self._grad_enabled():
                entered = machine.model_begin_without_gradients(module)
            elif machine.model_begin(module):
                entered = True
                machine.model_calls += 1
                if self._discovering or not self.active:
                    self._watch_class(type(module))
        except Exception as error:
            watcher.stop_after_fault(error)
        if not entered:
            return function(module, *args, **kwargs)
        machine.inside_model = True
        try:
            return function(module, *args, **kwargs)
        finally:
            machine.inside_model = False
            try:
                machine.model_end()
            except Exception as error:
                watcher.stop_after_fault(error)

    def discover(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Call a module while classes are looked for."""
        if not self._discovering or self._watcher.machine.inside_model or get_ident() != self._watcher.thread_ident:
            return self._original(module, *args, **kwargs)
        self._module_class.__call__ = self._original
        try:
            return self.call(module, self._original, args, kwargs)
        finally:
            if self._discovering:
                self._module_class.__call__ = _DISCOVERING

    def _watch_class(self, owner: Any) -> None:
        """Report the calls of a class from now on."""
        self._set_active(active=True)
        if self._discovering and owner not in self._classes:
            own = owner.__dict__.get("__call__")
            self._classes[owner] = own
            inherited = owner.__call__ if own is not None or owner.__call__ is not self._original else None
            owner.__call__ = _reporting(inherited)

    def _set_active(self, *, active: bool) -> None:
        self.active = self._watcher.machine.has_models = active

    def _set_discovering(self, *, discovering: bool) -> None:
        self._discovering = discovering
        self._watcher.machine.models_known = not discovering

    def _stop_discovering(self) -> None:
        self._set_discovering(discovering=False)
        if self._module_class.__call__ is _DISCOVERING:
            self._module_class.__call__ = self._original


CALLS: ModelCalls | None = None


def _reporting(inherited: Function | None) -> Function:
    """Return a `__call__` for a class that has, or inherits, another one than that of `torch.nn.Module`, or not.

    Its class may be pickled by value, as Ray does with those of a script, and unpickled where tachoscope is not installed: so it
    uses nothing but modules that are looked up by name. What it calls is looked up at each call too, since `torch.fx` replaces it.
    """
    import torch

    is_traced = torch.compiler.is_dynamo_compiling  # pickled by its name

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        function = inherited or torch.nn.Module.__call__
        if is_traced():
            return function(self, *args, **kwargs)
        calls = getattr(sys.modules.get("tachoscope.sampling.model_calls"), "CALLS", None)
        return function(self, *args, **kwargs) if calls is None else calls.call(self, function, args, kwargs)

    found = FunctionType(__call__.__code__, {"sys": sys, "__builtins__": __builtins__}, "__call__", None, __call__.__closure__)
    found.__kwdefaults__ = __call__.__kwdefaults__
    found.__module__ = "__main__"
    return found


def _discovering(self: Any, *args: Any, **kwargs: Any) -> Any:
    import torch

    if CALLS is None or torch.compiler.is_compiling():
        return torch.nn.Module._wrapped_call_impl(self, *args, **kwargs)
    return CALLS.discover(self, args, kwargs)


_DISCOVERING = _discovering
