"""From where the loop calls its models and computes gradients: taken in the steps in which the sampler asks for it."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from tachoscope.sampling.loop_code import MOST_CALLS
from tachoscope.sampling.stacks import Chain, chain_of

STEPS_TO_FIND_MODELS = 20
"""A job that called no module with gradients in so many steps computes without."""
_CALLER = 3
"""Frames from here to the job's: the machine's, that of the wrapped function, and what called it."""


class Followed(Protocol):
    """Where the one who follows calls is put."""

    calls: Any


class LoopStacks:
    """Follows the calls of `machine` from `take` on, until both kinds of call were seen.

    Attributes:
        models, backward: from where models and backward were called in a step, once `wanted` is False again.
    """

    __slots__ = ("_machine", "backward", "models")

    def __init__(self, machine: Followed) -> None:
        self.models: list[Chain] = []
        self.backward: Chain = ()
        self._machine = machine

    @property
    def wanted(self) -> bool:
        """Whether stacks are still to be taken."""
        return self._machine.calls is not None

    def take(self) -> None:
        """Take them in the next step; from any thread."""
        self._machine.calls = self

    def taken(self) -> tuple[list[Chain], Chain]:
        """Return the stacks of models and of backward, each once; without that of backward they are not complete."""
        models, backward = self.models, self.backward
        self.models, self.backward = [], ()
        return models, backward

    def model_called(self) -> None:
        """Keep the caller's stack of a model that is called with gradients, of `MOST_CALLS` at most."""
        if len(self.models) < MOST_CALLS:
            self.models.append(chain_of(sys._getframe(_CALLER)))

    def backward_called(self, steps: int) -> None:
        """Gradients are about to be computed, in the step after so many."""
        if self.models or steps >= STEPS_TO_FIND_MODELS:
            self.backward = chain_of(sys._getframe(_CALLER))
            self._machine.calls = None
