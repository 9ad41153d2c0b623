"""Exclusive time accounting of one thread: every nanosecond belongs to exactly one phase.

Phases nest (a garbage collection inside forward); time goes to the innermost. Below the nesting lies the base phase, such as
`other` after a step ended. Nothing is lost between phases, so the phases of a step sum to its wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tachoscope_core.records.records import PHASES

(
    DATA_WAIT,
    HOST_TO_DEVICE,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    COLLECTIVE,
    CHECKPOINT,
    EVALUATION,
    GC,
    OTHER,
    PREPARATION,
    LOSS,
    COMPILE,
) = range(len(PHASES))

_KEPT_IN_EVALUATION = (CHECKPOINT, GC, COMPILE)

_ZEROS = [0] * len(PHASES)

Sums = tuple[list[int], list[int]]
"""Nanoseconds by phase, wall and CPU, since the step began."""


class Timeline:
    """Accounts the time of the thread that calls it; not for use from two threads."""

    __slots__ = (
        "_clock",
        "_cpu_clock",
        "_cut",
        "_eval_trains",
        "_last_cpu",
        "_no_grad",
        "_snapshot",
        "cpu",
        "evaluating",
        "last",
        "nested",
        "phase",
        "reads_cpu",
        "wall",
    )

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns, cpu_clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.wall = _ZEROS.copy()
        self.cpu = _ZEROS.copy()
        self.phase = OTHER
        self.last = 0  # the clock at the last event
        self.nested: list[int] = []  # what the open phases interrupted, the outermost first
        self._snapshot: Sums | None = None
        self.evaluating = False  # whether `begin_evaluation` is still undecided
        self._no_grad = False
        self._eval_trains = False  # whether a module in eval mode once turned out to be a frozen part of the training
        self.reads_cpu = True
        self.restart()

    def restart(self) -> None:
        """Forget all time so far; what comes belongs to a new step."""
        self.wall[:] = self.cpu[:] = _ZEROS
        self._snapshot = None
        self.evaluating = False
        self._cut = self.last = self._clock()
        self._last_cpu = self._cpu_clock()

    def _account(self) -> None:
        now = self._clock()
        self.wall[self.phase] += now - self.last
        self.last = now
        if self.reads_cpu:
            self._account_cpu(self.phase)

    def _account_cpu(self, phase: int) -> None:
        cpu = self._cpu_clock()
        self.cpu[phase] += cpu - self._last_cpu
        self._last_cpu = cpu

    # What follows up to `unwind` is called a dozen times a step and repeats `_account`: after a step's computing each further
    # function costs more for being fetched into the caches again than for what it does.

    def enter(self, phase: int) -> None:
        """Begin a phase within the present one, which goes on when it is left."""
        now, current = self._clock(), self.phase
        self.wall[current] += now - self.last
        self.last = now
        if self.reads_cpu:
            self._account_cpu(current)
        self.nested.append(current)
        self.phase = phase

    def leave(self) -> None:
        """End the innermost nested phase; without one, nothing happens."""
        if self.nested:
            now, current = self._clock(), self.phase
            self.wall[current] += now - self.last
            self.last = now
            if self.reads_cpu:
                self._account_cpu(current)
            self.phase = self.nested.pop()

    def leave_to(self, base: int) -> None:
        """End the innermost phase and, if it was the outermost too, go on in another base phase."""
        if self.nested:
            now, current = self._clock(), self.phase
            self.wall[current] += now - self.last
            self.last = now
            if self.reads_cpu:
                self._account_cpu(current)
            self.phase = self.nested.pop()
        if not self.nested:
            self.phase = base

    def go_on_in(self, base: int) -> None:
        """Go on in another base phase, if no nested one is open."""
        if not self.nested and self.phase != base:
            self._account()
            self.phase = base

    def unwind(self, depth: int) -> bool:
        """End the innermost phases until `depth` are open, more than one where an exception skipped their ends; say if one was."""
        nested = self.nested
        if len(nested) <= depth:
            return False
        now, current = self._clock(), self.phase
        self.wall[current] += now - self.last
        self.last = now
        if self.reads_cpu:
            self._account_cpu(current)
        self.phase = nested[depth]
        del nested[depth:]
        return True

    def sums(self) -> Sums:
        """Return what was accounted so far in this step."""
        self._account()
        return self.wall.copy(), self.cpu.copy()

    def was_evaluation(self, since: Sums, until: Sums) -> None:
        """Move what this step accounted between two `sums` to `evaluation`, except checkpoints, GC and compiling."""
        for now, before, after in zip((self.wall, self.cpu), since, until, strict=True):
            for phase, start in enumerate(before):
                if phase not in _KEPT_IN_EVALUATION and phase != EVALUATION:
                    now[EVALUATION] += after[phase] - start
                    now[phase] -= after[phase] - start

    def move_to_phase(self, source: int, target: int) -> None:
        """Move what was accounted to one phase in this step to another: it turned out to be that."""
        for sums in (self.wall, self.cpu):
            sums[target] += sums[source]
            sums[source] = 0

    def spent_elsewhere(self, phase: int, nanoseconds: int) -> None:
        """Another thread spent so much of the open phase on `phase`, while this one waited for it; called on that thread."""
        self.wall[self.phase] -= nanoseconds
        self.wall[phase] += nanoseconds

    def begin_evaluation(self, *, no_grad: bool = False) -> None:
        """From here on it may be evaluation; `end_evaluation` or `cancel_evaluation` decides.

        Args:
            no_grad: a batch is asked for with gradients switched off, which ends when one is asked for with gradients.
        """
        if self._snapshot is None:
            self._snapshot = self.sums()
            self.evaluating = True
            self._no_grad = False
        self._no_grad = self._no_grad or no_grad

    def end_evaluation(self) -> None:
        """Move what was accounted since `begin_evaluation` to evaluation, except checkpoints, GC and compiling."""
        if self._snapshot is None:
            return
        self.was_evaluation(self._snapshot, self.sums())
        self._snapshot = None
        self.evaluating = False
        if not self.nested:
            self.phase = OTHER

    def cancel_evaluation(self) -> None:
        """Keep the phases as accounted: it was training with a frozen sub-module in eval mode."""
        self._eval_trains = self._eval_trains or (self.evaluating and not self._no_grad)
        self._snapshot = None
        self.evaluating = False

    @property
    def evaluating_without_grad(self) -> bool:
        """Whether batches were asked for with gradients switched off since `begin_evaluation`."""
        return self.evaluating and self._no_grad

    @property
    def phase_now(self) -> int:
        """The phase as far as it can be told while it lasts: what is not decided yet is evaluation, if that was never wrong."""
        likely = self.evaluating and (self._no_grad or not self._eval_trains)
        return EVALUATION if likely and self.phase not in _KEPT_IN_EVALUATION else self.phase

    def end_step(self, *, read_cpu: bool = True, at_last: bool = False) -> tuple[int, int, list[int], list[int] | None]:
        """End the step; accounting starts again at zero.

        Args:
            read_cpu: whether the next step reads the CPU clock, which costs a system call an event.
            at_last: the step ends with the last event and not now, which saves a reading of the clocks.

        Returns:
            The clock now, the nanoseconds since the last cut, and these by phase: wall, and CPU or None if it was not read.
        """
        if not at_last:
            self._account()
        end = self.last
        done = (end, end - self._cut, self.wall, self.cpu if self.reads_cpu else None)
        self._cut = end
        self._snapshot = None
        self.evaluating = False
        if not self.nested:
            self.phase = OTHER
        self.wall = _ZEROS.copy()
        if self.reads_cpu:
            self.cpu = _ZEROS.copy()
        elif read_cpu:
            self._last_cpu = self._cpu_clock()
        self.reads_cpu = read_cpu
        return done
