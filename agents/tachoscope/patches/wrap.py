"""How functions of torch and of frameworks are replaced by ones that tell the probe. The original is called whatever happens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tachoscope.training.probe import Probe

Function = Callable[..., Any]
T = TypeVar("T")


def wrap(owner: Any, name: str, wrapper_of: Callable[[Function], Function]) -> None:
    """Replace the function `name` of `owner`, if it has one, by `wrapper_of(function)`."""
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(wrapper_of(original)))


def timed_as_phase(probe: Probe, phase: int, original: Function) -> Function:
    """Return `original` with the time in it accounted to a phase.

    While torch.compile traces, the original alone is seen.
    """
    from torch.compiler import is_compiling

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not probe.begin_phase(phase):
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            probe.end_phase()

    return call


def call_guarded(probe: Probe, function: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
    """Call the probe's own function. Its faults end the watching; the job's exceptions pass through."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        probe.stop_after_fault(error)
        return None
