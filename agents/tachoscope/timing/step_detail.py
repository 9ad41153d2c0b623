"""In which steps the CPU clocks are read, and how long the thread waited for a core in those: each reading is a system call."""

from __future__ import annotations

from collections.abc import Callable

FIRST_DETAILED_STEPS = 100
DETAIL_EVERY_NS = 100_000_000
"""The CPU clocks are read in the first steps, then in one step a tenth of a second: they are system calls, and cost most."""


class StepDetail:
    """Follows the steps of one thread.

    Attributes:
        due_at: a step that begins at this moment or later is read in detail, in monotonic nanoseconds.
    """

    __slots__ = ("_backward", "_backward_began", "_read_delay", "_step_began", "due_at")

    def __init__(self) -> None:
        self.due_at = 0
        self.restart(None)

    def restart(self, read_delay: Callable[[], int] | None) -> None:
        """Begin a step here.

        Args:
            read_delay: returns the nanoseconds that the thread was ready to run but had no core; None: nobody knows.
        """
        self._read_delay = read_delay
        self._step_began = read_delay() if read_delay is not None else 0
        self._backward = self._backward_began = 0

    def backward_began(self) -> None:
        """Backward begins in a step that is read in detail."""
        if self._read_delay is not None:
            self._backward_began = self._read_delay()

    def backward_ended(self) -> None:
        """Add what the thread waited for a core during the backward pass."""
        if self._read_delay is not None:
            self._backward += self._read_delay() - self._backward_began

    def step_ended(self, steps: int, end: int, *, was_read: bool, next_is: bool) -> tuple[int | None, int | None]:
        """End a step that was read in detail, or after which one begins that is.

        Args:
            steps: steps so far. end: when it ended, in monotonic nanoseconds.

        Returns:
            The nanoseconds without a core, of the step and of its backward; None: not known.
        """
        if next_is and steps >= FIRST_DETAILED_STEPS - 1:
            self.due_at = end + DETAIL_EVERY_NS
        if self._read_delay is None:
            return None, None
        now, began, backward = self._read_delay(), self._step_began, self._backward
        self._step_began, self._backward = now, 0
        return (now - began, backward) if was_read else (None, None)
