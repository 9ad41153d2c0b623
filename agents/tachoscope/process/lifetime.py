"""What is to happen when this process ends, and in a process that is forked from it."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable

from tachoscope.process.import_hook import after_import


class _Hook:
    """Holds what is to happen: multiprocessing keeps only a weak reference."""

    def __init__(self, close_as_child: Callable[[], None]) -> None:
        self.close_as_child = close_as_child

    def close_at_its_exit(self) -> None:
        from multiprocessing.util import Finalize

        Finalize(None, self.close_as_child, exitpriority=0)


_HOOKS: list[_Hook] = []


def on_end_and_fork(
    close: Callable[[], None], after_fork_in_child: Callable[[], None], *, close_as_child: Callable[[], None] | None = None
) -> None:
    """Call `close` at the end of this process and of those forked from it, and `after_fork_in_child` in these when they begin.

    Args:
        close_as_child: called in place of `close` at the end of a process of multiprocessing, which leaves without atexit.
    """
    hook = _Hook(close_as_child or close)
    _HOOKS.append(hook)
    os.register_at_fork(after_in_child=after_fork_in_child)
    atexit.register(close)
    after_import("multiprocessing.util", lambda util: util.register_after_fork(hook, _Hook.close_at_its_exit))
