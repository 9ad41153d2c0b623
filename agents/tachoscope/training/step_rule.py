"""Which optimizer step ends a step of the job: the first after a new batch, so that several optimizers do not count twice.

In a loop that no `DataLoader` feeds it is each step of the optimizer that stepped first. Where a framework or the job itself says
when a step ends, no optimizer does.
"""

from __future__ import annotations

import weakref
from typing import Any

MOST_UPDATES_A_STEP = 100
"""More updates of an optimizer than this without one that counts: what counted before, a loader or an optimizer, is out of use."""


class StepRule:
    """What decides about the next optimizer step."""

    __slots__ = ("_feeding", "_lead_optimizer", "_stepped", "_updates", "explicit", "fresh_batch")

    def __init__(self) -> None:
        self.explicit = False
        """A framework or the job says when a step ends."""
        self.fresh_batch = False
        """A batch arrived since the last step."""
        self._feeding: weakref.ref[Any] | None = None
        self._lead_optimizer = 0
        self._stepped = False
        self._updates: dict[int, int] = {}

    def batch_arrived(self, loader: weakref.ref[Any] | None) -> None:
        self.fresh_batch = True
        self._feeding = loader

    def loader_exhausted(self) -> None:
        """The loader has no more; a batch that it read ahead may still be in use."""
        self._feeding = None

    def optimizer_stepped(self, optimizer: object, *, nested: bool) -> bool:
        """Return whether a step of the job ends; `nested`: within another optimizer's step or its base class."""
        self._stepped = True
        if self.explicit or nested:
            return False
        key = id(optimizer)
        self._lead_optimizer = self._lead_optimizer or key
        if self.fresh_batch or (not self.is_fed_by_loader and self._lead_optimizer == key):
            return True
        self._updates[key] = updates = self._updates.get(key, 0) + 1
        if updates >= MOST_UPDATES_A_STEP:
            self._feeding, self._lead_optimizer = None, key
        return False

    @property
    def is_fed_by_loader(self) -> bool:
        """Whether a loader feeds the loop.

        An iterator that is gone feeds no loop: `next(iter(loader))` gave the loop all its data, or a look at it.
        """
        return self._feeding is not None and self._feeding() is not None

    def take_stepped(self) -> bool:
        """Return whether an optimizer stepped since the last call."""
        stepped, self._stepped = self._stepped, False
        return stepped

    @property
    def updated_since_step(self) -> bool:
        """Whether the parameters are those of a step that its framework or the job has not said to have ended yet."""
        return self.explicit and self._stepped

    def step_ended(self) -> None:
        self.fresh_batch = self._stepped = False
        if self._updates:
            self._updates.clear()
