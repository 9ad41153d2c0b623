"""What a run of the lab is, decided before it begins: drawn from a seed, so that the same seed asks for the same runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WARM_UP_STEPS = 3
"""First steps that the truth leaves out; the analysis leaves out its own."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault of a run: its class, the way in which it is caused, and what was drawn for it.

    Attributes:
        seconds_ratio: seconds that it is to cost, over those of the clean step. first_step: from which step on it is there.
        parameters: what was drawn, by name; `rank` is the culprit, -1: all ranks.
    """

    slug: str
    cause: str
    seconds_ratio: float
    first_step: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """The culprit, -1 for all ranks."""
        return int(self.parameters.get("rank", -1))


@dataclass(frozen=True, slots=True)
class Spec:
    """A run.

    Attributes:
        set: `development`, `test` or `smoke`. kind: `fault`, `clean`, `lookalike` or `pair` (two faults at once).
        lookalike: the pair of the reference that it belongs to, such as `4v12`; empty: none.
        workload: name of the training that it happens in, with what was drawn for it in `shape`.
    """

    id: str
    set: str
    kind: str
    lookalike: str
    workload: str
    severity: float
    world_size: int
    steps: int
    seed: int
    shape: dict[str, Any]
    faults: tuple[Planned, ...]

    @property
    def name(self) -> str:
        """What it is about, for people."""
        what = " + ".join(f"{fault.slug}/{fault.cause}" for fault in self.faults) or "clean"
        return f"{what} {self.severity:.0%} {self.workload}" if self.faults else f"{what} {self.workload}"
