"""What one object of Kubernetes says about its job. The readers of each kind give it, `jobs` puts it together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tachoscope_analyzers.schedulers.common.allocation import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """One moment of a job's life, in Unix seconds: its quota was granted, all of the gang ran, or it was stopped, and how."""

    time: float
    what: Literal["eligible", "started", "stopped"]
    state: State = "unknown"
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an object tells.

    Attributes:
        marks: with known times only. finished: it will not run again.
        gang: pods that have to run before training begins; None: not told.
        restarts: allocations that it had before the present one, as far as it counts them.
        queues: it waits for a quota before its pods are made. waiting: why it does not run now.
        accelerators, device: that it asks for in all.
    """

    marks: tuple[Milestone, ...] = ()
    finished: bool = False
    gang: int | None = None
    restarts: int = 0
    queues: bool = False
    waiting: str = ""
    accelerators: int = 0
    device: str = ""


def mark(
    time: float | None, what: Literal["eligible", "started", "stopped"], state: State = "unknown", reason: str = ""
) -> tuple[Milestone, ...]:
    """Return the mark, or none where its time is not known."""
    return () if time is None else (Milestone(time=time, what=what, state=state, reason=reason),)
