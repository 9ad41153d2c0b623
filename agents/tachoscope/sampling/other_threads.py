"""Threads that compute gradients beside the one that is watched: how many, so that the report can say that it is not on them."""

from __future__ import annotations

import threading


class OtherThreads:
    """Counts threads that compute gradients, except autograd's own, which recompute checkpointed layers."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    @property
    def count(self) -> int:
        """Return how many threads of the job computed gradients unwatched so far."""
        return sum(self._known.values())

    def computes(self, watched: int) -> bool:
        """The calling thread is about to compute gradients, and `watched` is another: say whether to watch it from now on, since
        that one has ended.
        """
        me = threading.get_ident()
        if me in self._known:
            return False
        alive = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
        if me in alive and watched not in alive:
            return True
        self._known[me] = me in alive
        return False
