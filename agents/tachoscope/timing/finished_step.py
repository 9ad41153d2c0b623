"""What is known of a step when it has ended, as all that follows steps is given it."""

from __future__ import annotations

import msgspec


class FinishedStep(msgspec.Struct, frozen=True, gc=False):
    """A step as the training thread leaves it, in nanoseconds.

    `wall` and `cpu` are by phase; `cpu` and the delays are None in a step whose CPU clocks were not read.
    """

    number: int
    end: int
    wall_total: int
    wall: list[int]
    cpu: list[int] | None
    step_delay: int | None
    backward_delay: int | None
    samples: int
    tokens: int
    backward_calls: int = 1
    elements: int = 0
