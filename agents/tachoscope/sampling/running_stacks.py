"""Stacks of the watched thread while it runs: by the native module where it can be used, else by signals.

A thread that looks at another one through `sys._current_frames` needs the interpreter's lock, and gets it where the other gives it
away: in calls of native code, hardly ever in pure Python. Neither of the two sources depends on that.
"""

from __future__ import annotations

from tachoscope.sampling.signalled_stacks import SignalledStacks
from tachoscope.sampling.stacks import PhaseSource, StackSample
from tachoscope.sampling.unlocked_stacks import UnlockedStacks

EVERY_SECONDS = 0.1
"""CPU time of the thread between two stacks, on average."""


class RunningStacks:
    """Takes a stack each `EVERY_SECONDS` of the CPU time of the thread that calls `start`, until `stop`."""

    def __init__(self, watched: PhaseSource) -> None:
        self._unlocked = UnlockedStacks(watched, EVERY_SECONDS)
        self._signalled = SignalledStacks(watched, EVERY_SECONDS)

    @property
    def on(self) -> bool:
        """Whether stacks are taken, with the interpreter's lock or without."""
        return self._unlocked.on or self._signalled.on

    def start(self) -> bool:
        """Start if anything can take stacks of the calling thread; return whether it started."""
        return self._unlocked.start() or self._signalled.start()

    def drain(self) -> list[StackSample]:
        """Return the stacks taken since the last call. Thread-safe."""
        return self._unlocked.drain() or self._signalled.drain()

    def dropped(self) -> int:
        """Return how many stacks were dropped since the start: what was read was none, or the thread waited by then."""
        return self._unlocked.dropped()

    def stop(self) -> None:
        """Take no more stacks, neither natively nor by signals."""
        self._unlocked.stop()
        self._signalled.stop()
