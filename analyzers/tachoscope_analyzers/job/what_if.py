"""What a step would take without some of its causes: each step is put together again from what its ranks spent.

In synchronous training a step lasts as long as its latest rank's own time and the transfer, see `losses`. A cause is taken out of
the own time of all ranks, or of one rank only what that has beyond the usual rank; the rank that is latest without it then sets the
step, so two causes that hide each other save only together. Nobody saves more by fixing single ranks than somebody waited for them.

Does not know what else would change: a loader that is no longer waited for still needs its cores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.classify.pipeline.attribution import StagedLosses
from tachoscope_analyzers.job.classify import Classification
from tachoscope_analyzers.job.trend import estimate
from tachoscope_analyzers.job.unmeasured_waiting import signal
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.ledger.states import STATE_OF_CAUSE
from tachoscope_analyzers.records.steps import CAUSES, Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.shapley import MOST_EXACT, exact
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import UNEXPLAINED
from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_core.report.trend import Estimate

WORK = "compute"
"""Without it there is no training: of it, only what a late rank has beyond the others can be taken out."""
TRANSFER = "communication"
MOST_RANKS = 12
"""Late ranks that are offered, those that cost most."""
_LEAST_SHARE = 0.001
"""Of the mean step: less is not offered."""
_MOST_CELLS = 2_000_000
"""Steps x ranks x coalitions up to which shares are worked out in every order."""
_TOKEN = re.compile(r"([a-z_]+)(?:@(\d{1,7}))?")


@dataclass(frozen=True, slots=True, order=True)
class Removal:
    """A cause to take out: a ledger state of all ranks; or what one rank spends in it beyond the usual rank."""

    state: str
    rank: int | None = None

    def __str__(self) -> str:
        """Return it as addresses write it: `data_wait`, `compute@3`."""
        return self.state if self.rank is None else f"{self.state}@{self.rank}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A removal that would change something; `saved`: seconds per step if it alone is taken out, `spent`: that the latest rank
    spends in it.
    """

    removal: Removal
    saved: float
    spent: float


@dataclass(frozen=True, slots=True)
class WithoutCauses:
    """Steps without some causes.

    Attributes:
        step: mean seconds of a step; saved: by how much that is shorter; both with the standard error of the steps' scatter.
        goodput: share of the time in which work would be done; None: it is not known now.
        parts: seconds saved by each removal, which sum to `saved`. every_order: whether they are the same in whatever order causes
            are taken out (Shapley values), or what each saves after those before it.
    """

    step: Estimate
    saved: Estimate
    goodput: float | None
    parts: dict[Removal, float]
    every_order: bool


def removal_of(text: str) -> Removal | None:
    """Return the removal that an address names; None: it names none."""
    match = _TOKEN.fullmatch(text)
    if match is None or match[1] not in {*STATE_OF_CAUSE.values(), TRANSFER}:
        return None
    return Removal(match[1], None if match[2] is None else int(match[2]))


class WhatIf:
    """The steps of a job, prepared to be asked again and again.

    Raises:
        TachoscopeError: the job's records do not tell what a step would be.
    """

    def __init__(self, decided: Classification, report: Report) -> None:
        _check(decided)
        self._steps: Steps = decided.steps
        self._losses: Losses = decided.losses
        self._report = report
        self.measured = estimate(self._step_of(frozenset()))
        shape = self._steps.wall.shape
        self._own = {state: np.zeros(shape) for state in dict.fromkeys(STATE_OF_CAUSE.values())}
        self._over = {state: np.zeros(shape) for state in self._own}
        for cause in CAUSES:
            own = self._steps.own[cause]
            self._own[STATE_OF_CAUSE[cause]] += own
            self._over[STATE_OF_CAUSE[cause]] += np.maximum(own - _usual(own)[:, None], 0.0)

    def _step_of(self, removals: Collection[Removal]) -> Matrix:
        """Return the seconds of each step without these, shape (K,).

        max(latest rank without all of them, latest rank without those of all ranks - what was waited for) + transfer. Each term
        falls with every cause that is taken out, so no step ever becomes longer.
        """
        own = sum(self._steps.own.values(), np.zeros_like(self._steps.wall))
        spread = own.max(axis=1) - own.min(axis=1)
        transfer = self._losses.step - own.max(axis=1)
        waited = self._steps.waiting.max(axis=1) - self._steps.waiting.min(axis=1)
        whole = {one.state for one in removals if one.rank is None}
        for state in whole - {TRANSFER}:
            own = own - self._own[state]
        remaining = own.copy() if any(one.rank is not None for one in removals) else own
        for one in removals:
            if one.rank is not None and one.state not in whole:
                column = self._steps.ranks.index(one.rank)
                remaining[:, column] -= self._over[one.state][:, column]
        least = np.minimum(own.max(axis=1), own.min(axis=1) + spread) - waited
        longest = np.maximum(remaining.max(axis=1), least)
        return np.asarray(longest + (0.0 if TRANSFER in whole else transfer))

    def known(self, removals: Collection[Removal]) -> list[Removal]:
        """Return the removals that this job supports, in order."""
        states = {*self._own} - {WORK} | ({TRANSFER} if self._steps.transfer_measured else set())
        return [
            one
            for one in dict.fromkeys(removals)
            if (one.state in states if one.rank is None else one.state in self._own and one.rank in self._steps.ranks)
        ]

    def offers(self) -> list[Offer]:
        """Return possible removals by savings: states of all ranks, and what single ranks are late by."""
        least = _LEAST_SHARE * self.measured.seconds
        latest = sum(self._steps.own.values(), np.zeros_like(self._steps.wall)).argmax(axis=1)
        rows = np.arange(len(latest))
        spent = {Removal(state): float(own[rows, latest].mean()) for state, own in self._own.items() if state != WORK}
        spent[Removal(TRANSFER)] = float(self._losses.transfer.mean()) if self._steps.transfer_measured else 0.0
        whole = [self._offer(one, seconds) for one, seconds in spent.items() if seconds >= least]
        late = self._late_ranks() if len(self._steps.ranks) > 1 else []
        return sorted([*whole, *late], key=lambda offer: (-offer.saved, offer.removal.state, offer.removal.rank or 0))

    def _late_ranks(self) -> list[Offer]:
        least = 10 * _LEAST_SHARE * self.measured.seconds
        means = {state: over.mean(axis=0) for state, over in self._over.items()}
        found = [
            (float(mean[column]), Removal(state, self._steps.ranks[column]))
            for state, mean in means.items()
            for column in np.flatnonzero(mean >= least).tolist()
        ]
        return [self._offer(one, seconds) for seconds, one in sorted(found, reverse=True)[:MOST_RANKS]]

    def _offer(self, removal: Removal, spent: float) -> Offer:
        return Offer(removal, self.measured.seconds - float(self._step_of([removal]).mean()), spent)

    def without(self, removals: Sequence[Removal]) -> WithoutCauses:
        """Return the steps without some causes, of which the job has all, see `known`.

        Invariants: the measured mean without none of them; with more of them never a longer step.
        """
        chosen = list(dict.fromkeys(removals))
        left = self._step_of(chosen)
        parts, every_order = self._parts(chosen)
        return WithoutCauses(
            step=estimate(left), saved=estimate(self._losses.step - left), goodput=self._goodput(chosen, left), parts=parts,
            every_order=every_order,
        )  # fmt: skip

    def _parts(self, chosen: Sequence[Removal]) -> tuple[dict[Removal, float], bool]:
        if len(chosen) <= MOST_EXACT and self._steps.wall.size << len(chosen) <= _MOST_CELLS:
            names = {str(one): one for one in chosen}
            played = exact(lambda some: self._losses.step - self._step_of([names[name] for name in some]), list(names))
            return {names[name]: float(value.mean()) for name, value in played.values.items()}, True
        parts, before = {}, self.measured.seconds
        for place, one in enumerate(chosen, start=1):
            after = float(self._step_of(chosen[:place]).mean())
            parts[one], before = before - after, after
        return parts, False

    def _goodput(self, chosen: Collection[Removal], left: Matrix) -> float | None:
        """Return the report's goodput, with the computing that is left over the time that is left."""
        work, now = self._own[WORK], self._report.goodput
        done = float(work.sum())
        if now is None or not done or not left.any():
            return None
        columns = [self._steps.ranks.index(one.rank) for one in chosen if one.state == WORK and one.rank is not None]
        kept = done - float(self._over[WORK][:, columns].sum())
        return min(now * (kept / done) * float(self._losses.step.sum() / left.sum()), 1.0)

    def of_finding(self, finding: Finding) -> list[Removal]:
        """Return the removals that undo a finding; empty if it is not about states and ranks."""
        bottleneck = BY_SLUG.get(finding.class_)
        if bottleneck is None:
            return []
        if bottleneck.state == WORK or finding.class_ == "input_straggler":
            ranks = [] if isinstance(finding.ranks, str) else finding.ranks
            states = [WORK, UNEXPLAINED] if finding.class_ == "compute_straggler" else [bottleneck.state]
            return self.known([Removal(state, rank) for rank in ranks for state in states])
        return self.known([Removal(bottleneck.state)])


def _check(decided: Classification) -> None:
    steps = decided.steps
    if steps.waiting_unmeasured:
        raise TachoscopeError(
            f"the step time cannot be predicted: {signal(steps)} was not measured, so the latest rank is unknown",
            fix="see `tachoscope doctor` for what this machine can measure",
        )
    if isinstance(decided.losses, StagedLosses):
        raise TachoscopeError(
            "the ranks are pipeline stages: the step time is not that of the latest rank, so it cannot be predicted",
            fix="look at the pipeline's findings on the page Job",
        )


def _usual(own: Matrix) -> Matrix:
    """Return the lower median over ranks, shape (K,), as `losses` has it."""
    return np.asarray(np.sort(own, axis=1)[:, (own.shape[1] - 1) // 2])
