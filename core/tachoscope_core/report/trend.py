"""The part of a report that is about the course of a run: how its step time changed, and which rank was late from when to when.

Seconds are those of a step of the whole job, which lasts as long as its latest rank needs; states are what that rank did, so that
they sum to the step. Times are Unix seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean of seconds per step, with its standard error from a block bootstrap over the steps of the run."""

    seconds: float
    error: float


class StateShift(msgspec.Struct, frozen=True, kw_only=True):
    """What a state took of a step before a change and after it, in seconds."""

    state: str
    before_seconds: float
    after_seconds: float


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A lasting change of the step time.

    Attributes:
        step: the first changed one. time: at which that step began.
        first_step, last_step: from where to where the two levels were seen: to the changes before and after, or the run's ends.
        before_seconds, after_seconds: mean of the steps on either side, without those that stand out, such as periodic saves.
        states: the fewest that explain most of the change, the largest part first.
        ranks: whose own time changed, or `all`.
    """

    step: int
    time: float
    first_step: int
    last_step: int
    before_seconds: float
    after_seconds: float
    states: list[StateShift]
    ranks: list[int] | Literal["all"]

    @property
    def share(self) -> float:
        """How much longer the step takes than before, as a ratio; negative: it is shorter."""
        return self.after_seconds / self.before_seconds - 1 if self.before_seconds > 0 else 0.0


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in a row in which a rank was late.

    Attributes:
        steps: of them it was late in so many. start, end: time of the first step's begin, and of the last one's end.
        seconds_per_step: that the others lost to it. state: in which it spent the most of that.
    """

    first_step: int
    last_step: int
    steps: int
    start: float
    end: float
    seconds_per_step: float
    state: str


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that kept the others waiting.

    Attributes:
        steps: in all its stretches. share: of the run's steps, a ratio. stretches: in their order.
    """

    rank: int
    steps: int
    share: float
    stretches: list[Stretch]


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps in a row as one column of a picture: 5 %, 50 % and 95 % quantile of their step time in seconds."""

    first_step: int
    last_step: int
    p05: float
    p50: float
    p95: float


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """How a run went.

    Attributes:
        device: what it ran on. samples_per_step, tokens_per_step: of all ranks; 0: not known.
        step: mean step time. states: the mean of each, largest first.
        changes: lasting changes of the step time in order; None: too few steps to tell.
        late: ranks that kept the others waiting; None: not known, from one rank or where the records of some are missing.
        picture: the step time over the run; empty where there is nothing to be seen in it.
    """

    device: str
    step: Estimate
    states: dict[str, Estimate]
    samples_per_step: float = 0.0
    tokens_per_step: float = 0.0
    changes: list[ChangePoint] | None = None
    late: list[LateRank] | None = None
    picture: list[Bin] = []
