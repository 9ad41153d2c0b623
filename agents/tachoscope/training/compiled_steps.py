"""The compiled step machine, where there is the native module: the state of `StepMachine` and its rules in C, and the usual events.

A class of it has the members and methods of its C type, and all other methods of the Python class of the same name. So what is not
usual is done by the same Python as where nothing is compiled, on the same state: `StepMachine` is the description of both.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from types import FunctionType, ModuleType
from typing import Any, cast

from tachoscope.sampling.model_calls import MOST_CALLS_A_BACKWARD
from tachoscope.timing.finished_step import FinishedStep
from tachoscope.timing.phases import Timeline
from tachoscope.training.step_machine import StepMachine
from tachoscope.training.step_records import FIRST_STEPS, SLOW_STEP_NS
from tachoscope_core.native import native

MODULE = "tachoscope.training._steps"


class Kind(IntEnum):
    """For what a gate stands; as in `_gates.h`."""

    NEXT_BATCH = 0
    CALL_MODEL = 1
    BACKWARD = 2
    BEFORE_OPTIMIZER = 3
    AFTER_OPTIMIZER = 4


def new_machine(clock: Callable[[], int] | None = None, cpu_clock: Callable[[], int] | None = None) -> StepMachine:
    """Return a step machine: a compiled one where there is the native module.

    Args:
        clock, cpu_clock: return nanoseconds; None: the system's.
    """
    clocks = [clock, cpu_clock] if clock is not None and cpu_clock is not None else []
    module = native(MODULE).module
    if module is None:
        return StepMachine(Timeline(*clocks))
    machine = _machine_class(module)(module.Timeline(*clocks))
    machine.finished_step = FinishedStep
    machine.first_steps, machine.slow_step_ns, machine.most_calls = FIRST_STEPS, SLOW_STEP_NS, MOST_CALLS_A_BACKWARD
    return cast(StepMachine, machine)


def is_compiled(machine: StepMachine) -> bool:
    """Return whether `machine` is a compiled one, which gates can tell and whose steps are to be taken by `take_steps`."""
    return not isinstance(machine, StepMachine)


def gate(
    kind: Kind, wrapper: Callable[..., Any], fault: Callable[[Exception], None], original: Any = None, **more: Any
) -> Callable[..., Any]:
    """Return what does the usual for `wrapper`, and else calls it; `wrapper` itself where nothing is compiled.

    Args:
        fault: is given an exception of the probe's own. original: what the wrapper calls.
        more: `first_batch(iterator, batch)`, which returns the samples of a batch, and `elements_of(batch)`.
    """
    module = native(MODULE).module
    made: Callable[..., Any] = wrapper if module is None else module.Gate(kind, wrapper, fault, original, **more)
    return made


def open_gates(torch: ModuleType) -> None:
    """Say that torch is there: gates ask it whether gradients are switched on, and whether it traces."""
    module = native(MODULE).module
    if module is not None:
        module.open_gates(torch.is_grad_enabled, torch.compiler)


def watch(machine: StepMachine) -> None:
    """Have gates tell this machine from now on."""
    if is_compiled(machine):
        native(MODULE).module.watch(machine)


@cache
def _machine_class(module: Any) -> Any:
    """Return the compiled class of `StepMachine`, whose rules are compiled ones."""
    module.follow(StepMachine)
    return _class(module, StepMachine, PARTS=tuple(_class(module, part) for part in StepMachine.PARTS))


def _class(module: Any, kind: type, **more: Any) -> type:
    base = getattr(module, kind.__name__)
    methods = {name: value for name, value in vars(kind).items() if isinstance(value, FunctionType | property)}
    own = {name: value for name, value in methods.items() if name == "__init__" or name not in vars(base)}
    return type(
        f"Compiled{kind.__name__}", (base,), {"__slots__": (), "__doc__": kind.__doc__, "__module__": __name__, **own, **more}
    )
