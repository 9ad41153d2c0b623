"""Tells evaluation from training where nobody calls `eval()`: by gradients and by loaders.

A loader whose batches go through a model without gradients, and through none with them, feeds an evaluation. Without a loader, a
call without gradients of a model that is trained is evaluation; one of another model, such as a teacher's, is part of the training.
"""

from __future__ import annotations

import weakref
from itertools import islice
from typing import Any

from tachoscope.timing.phases import Sums, Timeline

_MOST_LOADERS = 64


class EvaluationRule:
    """Decides by the next model call what the time before it was."""

    __slots__ = (
        "_after",
        "_batch_since",
        "_began",
        "_fed",
        "_last_model",
        "_loader",
        "_timeline",
        "_trained",
        "_training_loaders",
        "settled",
    )

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.settled = False
        """A loader is trained with, and nothing is to be decided: this rule need not be told of its batches, nor that steps end."""
        self._began: Sums | None = None
        """Where what may be evaluation began."""
        self._after: Sums | None = None
        """Where its last call of a model returned."""
        self._batch_since = False
        """A loader gave a batch since it began."""
        self._fed = False
        """A loader had given the batch with which it began."""
        self._loader = 0
        self._training_loaders: set[int] = set()
        self._trained: set[int] = set()
        self._last_model: weakref.ref[Any] | None = None

    def batch_asked(self, loader: object) -> bool:
        """A batch is requested. Return whether the batches since the last call with gradients were an evaluation."""
        evaluated = self._began is not None and self._after is not None
        if evaluated:
            assert self._began is not None
            self._timeline.was_evaluation(self._began, self._timeline.sums())
            self._began = self._after = None
        self._loader = _identity(loader)
        if self._loader not in self._training_loaders and self._began is None:
            self._begin(fed=False)
        self.settled = self._began is None
        return evaluated

    def batch_arrived(self) -> None:
        self._batch_since = True

    def called_without_gradients(self, module: Any, *, fed: bool) -> None:
        if self._began is None and (fed or self._is_trained(module)):
            self._begin(fed=fed)

    def returned_without_gradients(self) -> None:
        if self._began is not None:
            self._after = self._timeline.sums()

    def called_with_gradients(self, module: Any) -> None:
        """A model is called with gradients: it and its inputs are trained."""
        if self._last_model is None or self._last_model() is not module:
            self._last_model = weakref.ref(module)
            self._trained.update(_parameters(module))
        if self._began is None:
            return
        if self._batch_since:
            if len(self._training_loaders) < _MOST_LOADERS:
                self._training_loaders.add(self._loader)
        elif self._after is not None and not self._fed:
            self._timeline.was_evaluation(self._began, self._after)
        self._began = self._after = None

    def step_ended(self) -> None:
        """The sums of a step that ended are gone."""
        self._began = self._after = None

    def _begin(self, *, fed: bool) -> None:
        self._began, self._batch_since, self._fed = self._timeline.sums(), False, fed
        self.settled = False

    def _is_trained(self, module: Any) -> bool:
        return not self._trained.isdisjoint(_parameters(module))


def _identity(iterator: object) -> int:
    """Return what the iterators of a loader share, over its epochs: what draws its indices."""
    return id(getattr(iterator, "_index_sampler", iterator))


def _parameters(module: Any) -> list[int]:
    """Return what tells the parameters of a model from those of others, in whatever it is wrapped: the first one's identity."""
    return [id(parameter) for parameter in islice(module.parameters(), 1)]
