"""The part of a report that holds a run against an earlier one. Seconds are per step of the whole job, see `trend`."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["slower", "faster", "alike", "unclear", "not_comparable"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The step, or a state of it, on both sides.

    Attributes:
        interval: 95 % interval of `seconds - baseline_seconds`. beyond_noise: whether it excludes no difference.
    """

    name: str
    baseline_seconds: float
    seconds: float
    interval: tuple[float, float]
    beyond_noise: bool

    @property
    def difference(self) -> float:
        """Seconds per step that it became longer."""
        return self.seconds - self.baseline_seconds


class LineageDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What the two runs were made of differently; empty: not known on that side."""

    name: str
    baseline: str
    now: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A run against its baseline.

    Attributes:
        verdict: `slower` and `faster`: by a warning's share of the baseline's step or more, and beyond the noise of both; `alike`:
            certainly by less; `unclear`: the noise is too large to say; `not_comparable`: a step is not the same work in both.
        severity: of `slower`, as a loss of that share has it. share: by which the step became longer, a ratio of the baseline's.
        step: the step. states: the others, the largest differences first.
        ranks: whose own time grew (or shrank), or `all`; None: cannot be determined.
        made_of: differences in lineage. notes: what else differs, and what the comparison cannot say.
    """

    baseline: str
    source: str
    baseline_steps: int
    baseline_ranks: int
    verdict: Verdict
    severity: Literal["critical", "warning"] | None
    share: float
    step: Difference
    states: list[Difference]
    ranks: list[int] | Literal["all"] | None
    made_of: list[LineageDifference]
    notes: list[str]
