"""Exclusive time accounting of one thread: every nanosecond belongs to exactly one phase.

Phases nest (a garbage collection inside forward); time goes to the innermost. Below the nesting lies the base phase: `forward`
after a batch arrived, `other` after a step ended. Nothing is lost between phases, so the phases of a step sum to its wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tachoscope_core.records import PHASES

DATA_WAIT, HOST_TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, COLLECTIVE, CHECKPOINT, EVALUATION, GC, OTHER = range(len(PHASES))
INDEX = {name: index for index, name in enumerate(PHASES)}

_KEPT_IN_EVALUATION = (CHECKPOINT, GC)


class Timeline:
    """Accounts the time of the thread that calls it; not for use from two threads."""

    __slots__ = ("_clock", "_cpu_clock", "_cut", "_last", "_last_cpu", "_no_grad", "_snapshot", "_stack", "cpu", "phase", "wall")

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, cpu_clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.wall = [0] * len(PHASES)
        self.cpu = [0] * len(PHASES)
        self.phase = OTHER
        self._stack: list[int] = []
        self._snapshot: tuple[list[int], list[int]] | None = None
        self._no_grad = False
        self.restart()

    def restart(self) -> None:
        """Forget all time so far; what comes belongs to a new step."""
        self.wall[:] = [0] * len(PHASES)
        self.cpu[:] = [0] * len(PHASES)
        self._snapshot = None
        self._cut = self._last = self._clock()
        self._last_cpu = self._cpu_clock()

    def _account(self) -> None:
        now, cpu = self._clock(), self._cpu_clock()
        phase = self.phase
        self.wall[phase] += now - self._last
        self.cpu[phase] += cpu - self._last_cpu
        self._last, self._last_cpu = now, cpu

    def enter(self, phase: int) -> None:
        """Begin a nested phase."""
        self._account()
        self._stack.append(self.phase)
        self.phase = phase

    def leave(self) -> None:
        """End the innermost nested phase; without one, nothing happens."""
        if self._stack:
            self._account()
            self.phase = self._stack.pop()

    def leave_to(self, base: int) -> None:
        """End the innermost phase and, if it was the outermost too, go on in another base phase."""
        self.leave()
        if not self._stack:
            self.phase = base

    def go_on_in(self, base: int) -> None:
        """Go on in another base phase, if no nested one is open."""
        if not self._stack and self.phase != base:
            self._account()
            self.phase = base

    @property
    def depth(self) -> int:
        """How many nested phases are open."""
        return len(self._stack)

    def unwind(self, depth: int) -> None:
        """End the innermost phases until `depth` are open; more than one where an exception skipped their ends."""
        while len(self._stack) > depth:
            self.leave()

    def begin_evaluation(self, *, no_grad: bool = False) -> None:
        """From here on it may be evaluation; `end_evaluation` or `cancel_evaluation` decides.

        Args:
            no_grad: a batch is asked for with gradients switched off, which ends when one is asked for with gradients.
        """
        if self._snapshot is None:
            self._account()
            self._snapshot = (self.wall.copy(), self.cpu.copy())
            self._no_grad = False
        self._no_grad = self._no_grad or no_grad

    def end_evaluation(self) -> None:
        """It was evaluation: what was accounted since `begin_evaluation` moves there, but for checkpoints and GC."""
        if self._snapshot is None:
            return
        self._account()
        for now, before in zip((self.wall, self.cpu), self._snapshot, strict=True):
            for phase, start in enumerate(before):
                if phase not in _KEPT_IN_EVALUATION and phase != EVALUATION:
                    now[EVALUATION] += now[phase] - start
                    now[phase] = start
        self._snapshot = None
        if not self._stack:
            self.phase = OTHER

    def cancel_evaluation(self) -> None:
        """It was training after all (a frozen sub-module in eval mode): the phases stand as they were accounted."""
        self._snapshot = None

    @property
    def evaluating(self) -> bool:
        """Whether `begin_evaluation` is still undecided."""
        return self._snapshot is not None

    @property
    def evaluating_without_grad(self) -> bool:
        """Whether batches were asked for with gradients switched off since `begin_evaluation`."""
        return self._snapshot is not None and self._no_grad

    def cut(self) -> tuple[int, int]:
        """End the step here: return the clock now and the nanoseconds since the last cut; accounting starts at zero.

        The caller reads `wall` and `cpu` before the next event and calls `clear`.
        """
        self._account()
        wall = self._last - self._cut
        self._cut = self._last
        self._snapshot = None
        if not self._stack:
            self.phase = OTHER
        return self._last, wall

    def clear(self) -> None:
        """Set all phases to zero after a cut."""
        self.wall = [0] * len(PHASES)
        self.cpu = [0] * len(PHASES)
